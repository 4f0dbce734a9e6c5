"""What splitting the noise of a moments release by public quantities gains, against equal noise on every entry.

python -m benchmarks.allocation

For each real table, its numeric columns over three parties: root mean square noise of the centred moments
S_ab - S_0a S_0b / n relative to equal weights, from stated variances and the column means; nothing is drawn.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from shared.privacy.calibration import Calibration, calibrated_rho
from shared.protocol.mechanisms.moments import moments
from shared.protocol.plan import plan_blocks
from shared.protocol.schema import NumericAttribute
from shared.protocol.spec import PartySpec, ReleaseSpec

_DATA = Path(__file__).parents[2] / "shared" / "data"
_TABLES = [
    "airfoil",
    "autompg",
    "bike",
    "breastcancer",
    "concrete",
    "diabetes130",
    "elevators",
    "energy",
    "gpu_sgemm",
    "housing",
    "insurance_numeric",
    "keggdirected",
    "kin40k",
    "nhanes_bp",
    "parkinsons",
    "pol",
    "protein",
    "pumadyn32nm",
    "skillcraft",
    "sml",
    "stock",
    "support2",
    "wine",
    "winequality_white",
]
Array = NDArray[np.float64]


def gain(widths: tuple[int, ...], means: Array) -> float:
    """Root mean square noise of centred moments over that of equal weights, epsilon = 1 and delta = 1e-5 a party."""
    spec = _spec(widths)
    nothing = np.zeros((len(spec.columns),) * 2, np.int64)
    ours = moments(spec, [plan.sigma for plan in plan_blocks(spec)], nothing).entry_variance
    assert ours is not None  # noqa: S101 - this mechanism states it
    return float(np.sqrt(_centred(ours, means) / _centred(_equal(widths), means)))


def _centred(variance: Array, means: Array) -> float:
    # Var(E_ab - m_a E_0b - m_b E_0a), summed
    return float(variance[1:, 1:].sum() + 2 * (means**2).sum() * variance[0, 1:].sum())


def _equal(widths: tuple[int, ...]) -> Array:
    """Variances where every entry of a party has weight 1 (half off the diagonal): numeric columns, no row norm."""
    p = sum(widths)
    shares, own_blocks, start = np.zeros((p + 1, p + 1)), np.zeros((p + 1, p + 1)), 1
    for d in widths:
        k = 1 + p - d
        e = min(4 * d, 2 * d + k)
        variance = ((2 * d + k) * e - e * e / 2) / (2 * calibrated_rho(Calibration.ZCDP, epsilon=1, delta=1e-5))
        own = slice(start, start + d)
        shares[:, own] = variance
        shares[own, own] = 0
        own_blocks[own, own] = variance / 2 * (1 + np.eye(d))
        start += d
    total: Array = shares + shares.T + own_blocks
    return total


def _spec(widths: tuple[int, ...]) -> ReleaseSpec:
    ends = np.cumsum(widths).tolist()
    parties = tuple(
        PartySpec(
            name=f"party-{end}",
            signing_key=f"{end:064x}",
            sealing_key=f"{end:064x}",
            dataset="data",
            attributes=tuple(NumericAttribute(name=f"x{i}", lower=0, upper=1) for i in range(end - width, end)),
        )
        for width, end in zip(widths, ends, strict=True)
    )
    now = datetime.now(UTC)
    return ReleaseSpec(
        study="Allocation",
        created=now,
        expires=now + timedelta(days=1),
        mechanism="moments",
        fraction_bits=14,
        seed="00" * 32,
        epsilon=1.0,
        delta=1e-5,
        n=1000,
        parties=parties,
        proposer="00" * 32,
    )


def main() -> None:
    """Print the table."""
    gains = []
    for name in _TABLES:
        table = pq.read_table(_DATA / f"{name}.parquet").to_pandas().select_dtypes("number").to_numpy(float)
        rows = table[np.isfinite(table).all(axis=1)]
        low, high = rows.min(axis=0), rows.max(axis=0)
        varies = high > low
        means = (2 * (rows.mean(axis=0) - low)[varies] / (high - low)[varies]) - 1
        widths = tuple(len(part) for part in np.array_split(means, 3))
        gains.append(gain(widths, means))
        print(f"{name:20} columns {widths}  mean square of means {np.mean(means**2):.2f}  noise {gains[-1]:.3f}")
    print(f"mean {np.mean(gains):.3f}, least {min(gains):.3f}, most {max(gains):.3f}")


if __name__ == "__main__":
    if not _DATA.is_dir():
        raise SystemExit(f"no tables in {_DATA}; nothing to measure")
    main()
