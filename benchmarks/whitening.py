"""What a public whitening gains in a multi-party release: coefficient error and R^2 with and without it.

python -m benchmarks.whitening [--quick] [--data DIR] [--json FILE]

Two tables, split over three parties: the ill-conditioned design of the public second moment paper (d = 10) and
winequality_white (left out where the data are absent). Bounds and whitening come from public rows that are then set
aside. Blocks are made from encoded rows by the code that agents run, but that the noise is a rounded normal instead
of the exact discrete Gaussian, for speed. Coefficients are judged against least squares on the private rows, in
standard deviations of the attributes; both figures are medians over repeats.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from math import sqrt
from pathlib import Path
from typing import Any, Literal

import click
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.tables import DATA, columns, entries
from commingle.party_agent.private.public_rows import make_whitening
from commingle.party_agent.private.rows import RawBatch
from commingle.services.fit import FitRequest, PreparedMoments, fit_prepared
from commingle.shared.documents.keys import Fingerprint
from commingle.shared.documents.row_maps import row_map
from commingle.shared.documents.schema import Attribute, NumericAttribute, Whitening
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.study import Member, Study, StudyParty, build_spec
from commingle.shared.dp.fixed_point import quantise
from commingle.shared.encoding import bounded_rows
from commingle.shared.mechanisms import mechanism_of
from commingle.shared.mechanisms.moments.block import places
from commingle.shared.release.matrix import assemble, second_moments
from commingle.shared.release.plan import plan_block

Array = NDArray[np.float64]
_NOBODY = Fingerprint("0" * 64)
_PARTIES = 3
_MechanismName = Literal["rmgm", "dgm", "moments"]
_MECHANISMS: tuple[_MechanismName, ...] = ("rmgm", "dgm", "moments")
_WHITENED = {"whitened, radius 0.5": 0.5, "whitened, radius 1": 1.0, "whitened, radius 1.41": sqrt(2)}
_ESTIMATORS = ("ols", "measurement_error", "shrunken")


@dataclass(frozen=True, slots=True)
class Design:
    """A table whose last column is the label.

    Attributes:
        public, private: (m, p) and (n, p) rows in original units.
    """

    name: str
    public: Array
    private: Array

    @property
    def schema(self) -> tuple[NumericAttribute, ...]:
        """Bounds: the public rows' own, half their range wider on either side."""
        low, high = self.public.min(axis=0), self.public.max(axis=0)
        wider = (high - low) / 2
        return tuple(
            NumericAttribute(name=f"x{j}", lower=float(a), upper=float(b))
            for j, (a, b) in enumerate(zip(low - wider, high + wider, strict=True))
        )

    @property
    def truth(self) -> Array:
        """Least squares on the private rows: intercept and slopes."""
        return np.asarray(np.linalg.lstsq(_with_ones(self.private[:, :-1]), self.private[:, -1])[0])


def synthetic(n: int) -> Design:
    """N(mu, Psi) with Psi = Q diag(1 ... 1e-3) Q^T and mu ~ N(0, I), y = x beta + N(0, 0.05^2); 250 public rows."""
    draw = np.random.default_rng(20)
    Q = np.linalg.qr(draw.normal(size=(10, 10)))[0]
    x = draw.normal(size=10) + draw.normal(size=(n + 250, 10)) @ (Q * np.sqrt(np.geomspace(1, 1e-3, 10))) @ Q.T
    y = x @ draw.normal(size=10) + draw.normal(0, 0.05, len(x))
    rows = np.column_stack([x, y])
    return Design("synthetic", rows[:250], rows[250:])


def wine(data: Path) -> Design:
    """249 public and 4,649 private rows, as in the paper."""
    rows = np.random.default_rng(0).permutation(np.column_stack(columns(data, "winequality_white")))
    return Design("winequality_white", rows[:249], rows[249:])


def specification(design: Design, variant: str, *, mechanism: _MechanismName, epsilon: float, k: int) -> ReleaseSpec:
    """The spec of one release, the attributes dealt out in order."""
    shares = [tuple(map(int, part)) for part in np.array_split(np.arange(design.private.shape[1]), _PARTIES)]
    parties = []
    for number, share in enumerate(shares):
        attributes = tuple(design.schema[j] for j in share)
        terms: dict[str, Any] = {"first_stage_share": None}
        if variant in _WHITENED:
            whitening = _whitening(design.public, share, attributes, _WHITENED[variant] * sqrt(len(share)))
            terms |= {"whitening": whitening, "row_norm": 1.0}
        elif variant == "row norm":  # as long as the public rows are on average
            terms["row_norm"] = float(sqrt((encoded(design, design.public)[:, share] ** 2).sum(axis=1).mean()))
        parties.append(StudyParty(name=f"p{number}", dataset="d", attributes=attributes, **terms))
    study = Study(
        study="s",
        mechanism=mechanism,
        subjects="listed",
        k=k if mechanism == "rmgm" else None,
        epsilon=epsilon,
        delta=1e-5,
        n=len(design.private),
        parties=tuple(parties),
    )
    members = {f"p{i}": Member(f"{i:064x}", "0" * 64) for i in range(_PARTIES)}
    return build_spec(study, members=members, proposer=_NOBODY, seed=bytes(32), now=datetime(2026, 1, 1, tzinfo=UTC))


def encoded(design: Design, rows: Array) -> Array:
    """In [-1, 1]."""
    low, high = np.array([(a.lower, a.upper) for a in design.schema]).T
    return np.asarray(np.clip(2 * (rows - low) / (high - low) - 1, -1, 1))


def releases(design: Design, spec: ReleaseSpec, *, repeats: int) -> Iterator[PreparedMoments]:
    """Moments of repeated releases; rows are mixed or multiplied once, noise is drawn anew."""
    q, start, blocks, mechanism = quantise(encoded(design, design.private)), 0, [], mechanism_of(spec)
    for party in spec.parties:
        end = start + len(party.columns)
        accumulator = mechanism.accumulator(spec, end - start)
        bounded = bounded_rows(party.row_norm, row_map(spec, party, None), fraction_bits=spec.fraction_bits)
        accumulator.add(np.arange(spec.n), bounded(q[:, start:end]))
        blocks.append(accumulator.total())
        start = end
    if spec.interactive:
        blocks = products(spec, blocks)
    random = np.random.default_rng(1)

    def draw(sigma: int, count: int) -> NDArray[np.int64]:
        return np.rint(random.normal(0, sigma, count)).astype(np.int64)

    for _ in range(repeats):
        noisy = [
            block + mechanism.noise(spec, party, sigma=plan_block(spec, party).sigma, draw=draw)
            for block, party in zip(blocks, spec.parties, strict=True)
        ]
        yield PreparedMoments.of_release(second_moments(spec, "0" * 64, assemble(spec, noisy)), spec)


def products(spec: ReleaseSpec, rows: list[NDArray[np.int64]]) -> list[NDArray[np.int64]]:
    """What parties that exchange first upload, but for noise; of a cross block the later one has the whole."""
    everything = np.column_stack([np.full(spec.n, 2**spec.fraction_bits), *rows])
    found = []
    for own, place in zip(rows, places(spec).values(), strict=True):
        block = everything.T @ own
        block[place.stop :] = 0
        found.append(block)
    return found


def measure(design: Design, spec: ReleaseSpec, *, repeats: int) -> dict[str, Any]:
    """Medians over the repeats: relative error of the standardised slopes, R^2 on the private rows, feature_root."""
    x, y = design.private[:, :-1], design.private[:, -1]
    truth, spread = design.truth[1:], x.std(axis=0)
    possible = [name for name in _ESTIMATORS if name in mechanism_of(spec).fit.estimators]
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in possible}
    roots = []
    for prepared in releases(design, spec, repeats=repeats):
        for name in possible:
            fit = fit_prepared(prepared, FitRequest(target=design.schema[-1].name, estimator=name))
            error = np.linalg.norm((fit.coefficients[1:] - truth) * spread) / np.linalg.norm(truth * spread)
            missed = y - _with_ones(x) @ fit.coefficients
            found[name].append((float(error), 1 - float((missed**2).mean() / y.var())))
        roots.append(fit.diagnostics.feature_root or 0.0)
    medians = {name: np.median(values, axis=0).tolist() for name, values in found.items()}
    return {"feature_root": float(np.median(roots)), **{n: {"error": e, "r2": r} for n, (e, r) in medians.items()}}


def _whitening(public: Array, places: tuple[int, ...], attributes: tuple[Attribute, ...], radius: float) -> Whitening:
    batch = RawBatch({a.name: pa.array(public[:, j]) for a, j in zip(attributes, places, strict=True)}, len(public))
    return make_whitening(lambda _: iter([batch]), attributes, ridge=1e-6, radius=radius).whitening


def _with_ones(x: Array) -> Array:
    return np.column_stack([np.ones(len(x)), x])


@click.command()
@click.option("--quick", is_flag=True, help="One epsilon and two repeats, for CI.")
@click.option("--data", type=click.Path(path_type=Path, file_okay=False), default=DATA)
@click.option("--json", "json_file", type=click.Path(path_type=Path))
def main(*, quick: bool, data: Path, json_file: Path | None) -> None:
    """Print the table and, if asked, write it as JSON."""
    designs = [synthetic(2_000 if quick else 20_000)]
    if entries(data):
        designs.append(wine(data))
    else:
        print(f"winequality_white left out: no data in {data}")
    results = []
    print(f"{'':59}{'root':>7}" + "".join(f"{name + ': error, R2':>30}" for name in _ESTIMATORS))
    for design, mechanism, epsilon in product(designs, _MECHANISMS, (10.0,) if quick else (1.0, 3.0, 10.0, 30.0)):
        for variant in ("plain", "row norm", *_WHITENED):
            spec = specification(design, variant, mechanism=mechanism, epsilon=epsilon, k=200)
            found = measure(design, spec, repeats=2 if quick else 20)
            results.append(
                {"table": design.name, "mechanism": mechanism, "epsilon": epsilon, "variant": variant, **found}
            )
            figures = "".join(
                f"{found[e]['error']:>20.2f}{found[e]['r2']:>10.3f}" if e in found else f"{'-':>20}{'-':>10}"
                for e in _ESTIMATORS
            )
            print(f"{design.name:18} {mechanism:8}{epsilon:5g} {variant:26}{found['feature_root']:>7.2f}{figures}")
    if json_file is not None:
        json_file.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
