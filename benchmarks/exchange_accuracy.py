"""Releases that parties exchange for: their test R^2 beside plain NumPy noise of their law, and their noise by itself.

python -m benchmarks.exchange_accuracy [--releases N] [--table NAME]... [--noise N] [--quick] [--data DIR] [--json FILE]

R^2: four tables, three parties, epsilon = 1, delta = 1e-5, one stage, a fifth of the rows held out, fits `shrunken`.
Each release is a whole exchange in this process, with keys of its own: what is encrypted, replied, opened and assembled
is what agents and coordinator make, with the product's sampler. Bounds are trusted, which leaves nothing out that an
opened number depends on. Beside it stands the exact matrix plus normal noise of the variances that are published. What
differs is chance: the standard error of the difference says how much.

Noise: of few subjects and 3 x 20 columns, so many exchanges. The squares of what is published less what is true, over
the variance that is stated, have the mean 1 if that is the variance.
"""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import numpy as np

from benchmarks.exchanged import Integers, agreed, approved
from benchmarks.moments import Case, load, spec_of, test_r2
from benchmarks.reporting import heading, row
from benchmarks.stages import noisy_moments
from benchmarks.tables import DATA
from commingle.services.fit import PreparedMoments
from commingle.shared.documents.keys import SigningKey
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.dp.noise import rounded_gaussian
from commingle.shared.encoding import bounded_rows
from commingle.shared.release.matrix import assemble, second_moments

_SMALL = 20_000
TABLES = ("bike_hour", "diabetes130", "gpu_sgemm", "winequality_white")


@dataclass(frozen=True, slots=True)
class Compared:
    """Mean test R^2 over releases, and the standard error of the difference of the two means."""

    table: str
    n: int
    releases: int
    exchanged: float
    numpy: float
    error: float
    least_squares: float


def with_keys(spec: ReleaseSpec) -> tuple[ReleaseSpec, dict[str, SigningKey]]:
    """The spec with keys that somebody holds, and bounds that are trusted."""
    keys = {name: SigningKey(os.urandom(32)) for name in ("coordinator", *(party.name for party in spec.parties))}
    parties = tuple(
        p.model_copy(update=dict.fromkeys(("signing_key", "sealing_key"), keys[p.name].verifying_key.raw.hex()))
        for p in spec.parties
    )
    proposer = keys["coordinator"].fingerprint
    return spec.model_copy(update={"parties": parties, "proposer": proposer, "bounds": "trusted"}), keys


def parts(case: Case, spec: ReleaseSpec) -> dict[str, Integers]:
    """Each party's integer rows, as its agent makes them of encoded ones."""
    ends = np.cumsum([len(party.columns) for party in spec.parties])[:-1]
    own = zip(spec.parties, np.split(case.rows, ends, axis=1), strict=True)
    bits = spec.fraction_bits
    return {party.name: bounded_rows(party.row_norm, None, fraction_bits=bits)(rows) for party, rows in own}


def exchanged(spec: ReleaseSpec, rows: dict[str, Integers]) -> PreparedMoments:
    """One release, as parties make it."""
    keyed, keys = with_keys(spec)
    world = agreed(keyed, keys)
    for name, own in rows.items():
        world.encrypt(name, own)
    for name in rows:
        world.reply(name, rounded_gaussian)
    blocks = [world.submit(name, rounded_gaussian) for name in rows]
    found = second_moments(keyed, world.exchange.spec.digest, assemble(keyed, blocks))
    return PreparedMoments.of_release(found, keyed, dict.fromkeys(rows))


def drawn(spec: ReleaseSpec, rows: dict[str, Integers], random: np.random.Generator) -> PreparedMoments:
    """One release of the same law, in plain NumPy."""
    A = np.hstack([np.ones((spec.n, 1)), *(own / 2**spec.fraction_bits for own in rows.values())])
    return PreparedMoments.of_release(noisy_moments(spec, A.T @ A, random), spec, dict.fromkeys(rows))


def noise_ratios(releases: int, *, n: int = 40, columns: int = 20) -> dict[str, tuple[int, float, float]]:
    """By kind of entry: how many were drawn, the mean of their squares over what is stated, and its standard error."""
    rows_of, found = np.random.default_rng(5), []
    for _ in range(releases):
        world = approved(n, columns, 3)
        spec, parties = world.exchange.spec.document, world.exchange.parties
        rows = {
            name: rows_of.integers(-(2**spec.fraction_bits), 2**spec.fraction_bits, (n, columns)) for name in parties
        }
        made = exchanged(spec, rows)
        A = np.hstack([np.ones((n, 1)), *(own / 2**spec.fraction_bits for own in rows.values())])
        stated = made.entry_variance
        assert stated is not None  # noqa: S101 - this mechanism states it
        found.append(np.divide((made.gram - A.T @ A) ** 2, stated, where=stated > 0, out=np.zeros_like(A.T @ A)))
    holder = np.concatenate([[-1], np.repeat(np.arange(3), columns)])
    above, same = np.triu(np.ones_like(found[0], bool), 1), holder[:, None] == holder
    kinds = {
        "linear terms": np.arange(len(holder)) * (holder[:, None] == -1) > 0,
        "diagonal": np.diag(holder >= 0),
        "above the diagonal": above & same,
        "cross blocks": above & ~same & (holder[:, None] >= 0),
    }
    kinds["all"] = np.logical_or.reduce(list(kinds.values()))
    squares = {kind: np.array(found)[:, where] for kind, where in kinds.items()}
    return {kind: (s.size, float(s.mean()), float(s.std() / np.sqrt(s.size))) for kind, s in squares.items()}


def compare(name: str, data: Path, releases: int) -> Compared:
    """Both kinds on one table; of a small one more releases, which differ more and cost less."""
    case = load(name, data)
    spec = spec_of(case, "moments", row_norm=1)
    releases *= max(1, _SMALL // spec.n)
    rows, random = parts(case, spec), np.random.default_rng(7)
    ours = [test_r2(case, exchanged(spec, rows), "shrunken") for _ in range(releases)]
    law = [test_r2(case, drawn(spec, rows, random), "shrunken") for _ in range(releases)]
    return Compared(
        table=name,
        n=spec.n,
        releases=releases,
        exchanged=float(np.mean(ours)),
        numpy=float(np.mean(law)),
        error=float(np.hypot(np.std(ours), np.std(law)) / np.sqrt(max(releases - 1, 1))),
        least_squares=case.judge.score(case.judge.coefficients).test_r2 or 0.0,
    )


@click.command()
@click.option("--releases", type=int, default=20, show_default=True, help="Of each kind; more of small tables.")
@click.option("--table", "tables", type=click.Choice(TABLES), multiple=True, help="Only this one.")
@click.option("--noise", type=int, help="Only the noise of so many exchanges.")
@click.option("--quick", is_flag=True, help="One table and few releases, for CI.")
@click.option("--data", type=click.Path(path_type=Path), default=DATA, show_default=True)
@click.option("--json", "json_file", type=click.Path(path_type=Path))
def main(
    *, releases: int, tables: tuple[str, ...], noise: int | None, quick: bool, data: Path, json_file: Path | None
) -> None:
    """Print the table and, if asked, write the figures as JSON."""
    if noise is not None:
        ratios = noise_ratios(noise)
        print("\n".join(heading("entries", "drawn", "variance over stated", "±")))
        for kind, (count, ratio, error) in ratios.items():
            print(row(kind, f"{count:,}", f"{ratio:.4f}", f"{error:.4f}"))
        if json_file is not None:
            json_file.write_text(json.dumps(ratios, indent=2) + "\n")
        return
    print("\n".join(heading("table (n)", "exchanged", "plain NumPy", "difference", "±", "least squares")), flush=True)
    found = []
    for name in TABLES[-1:] if quick else tables or TABLES:
        c = compare(name, data, 2 if quick else releases)
        found.append(c)
        figures = (c.exchanged, c.numpy, c.exchanged - c.numpy, c.error, c.least_squares)
        print(row(f"{c.table} ({c.n:,})", *(f"{figure:.4f}" for figure in figures)), flush=True)
    if json_file is not None:
        json_file.write_text(json.dumps([asdict(c) for c in found], indent=2) + "\n")


if __name__ == "__main__":
    main()
