"""An empirical privacy audit: the best distinguishing attack's epsilon, bounded from below, beside the epsilon claimed.

python -m benchmarks.privacy_audit [--quick] [--json FILE]

Adversary: knows the whole table but for one subject, who has one of two values as far apart as the schema allows;
sees one released block. The optimal test is a threshold on the block's projection onto the difference of the two
noiseless blocks (Neyman, Pearson). From its true and false positive rate, each bounded by Clopper-Pearson at 99.95 %,
follows a lower bound on the separation mu of the two distributions (Gaussian differential privacy: Dong, Roth, Su
2022; auditing by it: Nasr et al. 2023), hence by its exact curve on epsilon at DELTA. Integer noise of this size
(sigma above 10^4) cannot be told from continuous noise by any such test. A true claim is exceeded with probability
below 0.001.

The real path is audited: `private.privatise` on real files with the product's sampler. Privatising is deterministic
but for the noise it adds, so the noiseless blocks are made once and each run draws, for both tables, only the noise of
those entries in which they differ: entries are independent, and the others have weight zero in the statistic. That
nothing is lost by it is checked for SAMPLED whole runs of `privatise` per table: it asks the sampler once, for the
planned sigma and every entry, and what it returns is the noiseless block plus what it was given, integer by integer. A
broken mechanism with half the noise is audited beside it, to show that the attack notices. Where subjects are keyed
the adversary wonders whether the subject is there at all, knowing its values and the linkage key.
`benchmarks.moments_audit` has the attacks on moments releases, `benchmarks.exchange_audit` those on what travels for
one beside what is opened.
"""

import json
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import click
import numpy as np
from numpy.typing import NDArray

from benchmarks.distinguishing import ALPHA, DELTA, SAMPLED, SUBJECTS, Debited, centred, epsilon_bound, halved
from benchmarks.exchange_audit import audit_exchange
from benchmarks.moments_audit import audit_moments
from commingle.party_agent.private.privatise import BlockRequest, privatise
from commingle.party_agent.private.sources import FileSource, open_source
from commingle.party_agent.private.table import PrivateTable
from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.documents.spec import PartySpec, ReleaseSpec
from commingle.shared.documents.subject_ids import SubjectKey
from commingle.shared.dp.calibration import Calibration
from commingle.shared.dp.noise import Sampler, rounded_gaussian
from commingle.shared.dp.sensitivity import Adjacency
from commingle.shared.release.plan import plan_block

_ATTRIBUTES = (NumericAttribute(name="a", lower=0, upper=1), NumericAttribute(name="b", lower=0, upper=1))


def request(mechanism: Literal["rmgm", "dgm"], epsilon: float, *, keyed: bool = False) -> BlockRequest:
    """One party's share of a release of two attributes."""
    party = PartySpec(
        name="party",
        signing_key="0" * 64,
        sealing_key="0" * 64,
        dataset="audit",
        attributes=_ATTRIBUTES,
        subjects="keyed" if keyed else None,
    )
    now = datetime(2026, 1, 1, tzinfo=UTC)
    spec = ReleaseSpec(
        study="audit",
        created=now,
        expires=now + timedelta(days=1),
        mechanism=mechanism,
        k=8 if mechanism == "rmgm" else None,
        seed="1" * 64,
        calibration=Calibration.ANALYTIC,
        epsilon=epsilon,
        delta=DELTA,
        n=SUBJECTS,
        alignment="keyed" if keyed else "exact",
        adjacency=Adjacency.ADD_REMOVE if keyed else Adjacency.REPLACE_ONE,
        parties=(party,),
        proposer="0" * 64,
    )
    return BlockRequest(spec, party, plan_block(spec, party), b"\x01" * 32 if keyed else None)


def neighbours(folder: Path, *, keyed: bool = False) -> Iterator[PrivateTable]:
    """Two tables: the last subject's values are all 1 in one, and in the other all 0, or the subject is not there."""
    for value in (0, 1):
        path = folder / f"{value}.csv"
        rows = [f"{i},{(i % 7) / 7},{(i % 5) / 5}" for i in range(SUBJECTS - 1)]
        rows += [f"{SUBJECTS},{value},{value}"] if value or not keyed else []
        path.write_text("id,a,b\n" + "\n".join(rows))
        yield PrivateTable(open_source(FileSource(path=str(path))), SubjectKey.of("id"), _ATTRIBUTES)


def noiseless(table: PrivateTable, asked: BlockRequest) -> NDArray[np.int64]:
    """A table's block without noise, flat. Raises AssertionError where the product adds anything but noise to it."""
    charge = Debited("0" * 64, asked.plan.charge.units, table.scan().digest)

    def block(sampler: Sampler) -> NDArray[np.int64]:
        return privatise(table, asked, charge=charge, draw=sampler).integers.ravel()

    still = block(lambda _, count: np.zeros(count, np.int64))
    check_sampled(block, still, asked.plan.sigma)
    return still


def scores(
    apart: NDArray[np.int64], *, sigma: int, draw: Sampler, runs: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The attack's statistic on either table, `runs` times; `apart` is the difference of the noiseless blocks."""
    seen = apart[apart != 0]
    distance = float(np.linalg.norm(seen))
    noise = draw(sigma, runs * len(seen)).reshape(runs, -1)
    return centred(distance, noise @ (seen / distance))


def check_sampled(run: Callable[[Sampler], NDArray[np.int64]], still: NDArray[np.int64], sigma: int) -> None:
    """Raise AssertionError unless whole runs of the product add to the noiseless block what the sampler drew, once."""
    drawn: list[NDArray[np.int64]] = []
    asked: list[tuple[int, int]] = []

    def recording(scale: int, count: int) -> NDArray[np.int64]:
        asked.append((scale, count))
        drawn.append(rounded_gaussian(scale, count))
        return drawn[-1].copy()

    for number in range(SAMPLED):
        released = run(recording)
        if asked[number:] != [(sigma, still.size)] or not np.array_equal(released, still + drawn[number]):
            raise AssertionError("the block is not the noiseless block plus one draw of the planned noise")


def audit(
    mechanism: Literal["rmgm", "dgm"], epsilon: float, *, runs: int, alpha: float = ALPHA, keyed: bool = False
) -> dict[str, Any]:
    """The bound for the mechanism and for its broken twin."""
    asked = request(mechanism, epsilon, keyed=keyed)
    with tempfile.TemporaryDirectory() as folder:
        without, within = (noiseless(table, asked) for table in neighbours(Path(folder), keyed=keyed))
    honest, broken = (
        epsilon_bound(*scores(within - without, sigma=asked.plan.sigma, draw=draw, runs=runs), alpha=alpha)
        for draw in (rounded_gaussian, halved)
    )
    return {
        "mechanism": mechanism,
        "seen_by": "anyone, of who is there" if keyed else "anyone",
        "claimed": epsilon,
        "demonstrated": honest,
        "with_half_the_noise": broken,
    }


@click.command()
@click.option("--quick", is_flag=True, help="Few runs, for CI.")
@click.option("--json", "json_file", type=click.Path(path_type=Path))
def main(*, quick: bool, json_file: Path | None) -> None:
    """Print claimed and demonstrated epsilon of every mechanism."""
    runs, epsilons = (4_000, (3.0,)) if quick else (20_000, (0.5, 1.0, 3.0))
    rowwise: tuple[Literal["rmgm", "dgm"], ...] = ("rmgm", "dgm")
    results = [audit(mechanism, epsilon, runs=runs) for mechanism in rowwise for epsilon in epsilons]
    results += [audit("rmgm", epsilon, runs=runs, keyed=True) for epsilon in epsilons]
    results += [result for epsilon in epsilons for result in audit_moments(epsilon, runs=runs)]
    print(f"{'mechanism':<10}{'seen by':<38}{'claimed':>10}{'shown':>10}{'half noise':>12}")
    for r in results:
        print(
            f"{r['mechanism']:<10}{r['seen_by']:<38}{r['claimed']:>10.2f}{r['demonstrated']:>10.2f}"
            f"{r['with_half_the_noise']:>12.2f}"
        )
    travelled = audit_exchange(epsilons[-1], runs=runs // 100)
    print(f"{'':<10}{'what travels of an exchange':<38}{'claimed':>10}{'shown':>10}{'bare':>12}")
    for r in travelled:
        print(
            f"{r['mechanism']:<10}{r['seen_by']:<38}{r['claimed']:>10.2f}{r['demonstrated']:>10.2f}"
            f"{r['unprotected']:>12.2f}"
        )
    if json_file is not None:
        report = {"runs": runs, "delta": DELTA, "results": results, "travelled": travelled}
        json_file.write_text(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
