"""What splitting the noise of a moments release by public quantities gains, against equal noise on every entry.

python -m benchmarks.allocation

For each real table, its numeric columns over three parties: root mean square noise of the centred moments
S_ab - S_0a S_0b / n relative to equal weights, from stated variances and the column means; nothing is drawn.
"""

from itertools import accumulate, pairwise

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks.moments_noise import entry_variance
from benchmarks.tables import DATA
from commingle.services.simulation.dataset import PartyShare
from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.dp.calibration import Calibration
from commingle.shared.dp.gaussian import calibrated_rho

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
    attributes = [NumericAttribute(name=f"x{place}", lower=0, upper=1) for place in range(sum(widths))]
    ends = [0, *accumulate(widths)]
    parties = [PartyShare(f"party-{end}", tuple(attributes[start:end])) for start, end in pairwise(ends)]
    ours = entry_variance(parties, epsilon=1.0, delta=1e-5)
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


def main() -> None:
    """Print the table."""
    gains = []
    for name in _TABLES:
        table = pq.read_table(DATA / f"{name}.parquet").to_pandas().select_dtypes("number").to_numpy(float)
        rows = table[np.isfinite(table).all(axis=1)]
        low, high = rows.min(axis=0), rows.max(axis=0)
        varies = high > low
        means = (2 * (rows.mean(axis=0) - low)[varies] / (high - low)[varies]) - 1
        widths = tuple(len(part) for part in np.array_split(means, 3))
        gains.append(gain(widths, means))
        print(f"{name:20} columns {widths}  mean square of means {np.mean(means**2):.2f}  noise {gains[-1]:.3f}")
    print(f"mean {np.mean(gains):.3f}, least {min(gains):.3f}, most {max(gains):.3f}")


if __name__ == "__main__":
    if not DATA.is_dir():
        raise SystemExit(f"no tables in {DATA}; nothing to measure")
    main()
