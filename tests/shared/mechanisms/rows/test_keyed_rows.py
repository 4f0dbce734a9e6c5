"""Blocks of keyed subjects: what one subject more moves them by, and what follows for noise and charges."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from benchmarks.release_law import proposed, study_of
from commingle.shared.documents.linkage import pseudonyms
from commingle.shared.documents.row_maps import row_bound, row_sensitivity
from commingle.shared.documents.schema import Attribute, BinaryAttribute, CategoricalAttribute, NumericAttribute
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.dp.fixed_point import presence
from commingle.shared.dp.sensitivity import Adjacency
from commingle.shared.encoding import bounded_rows
from commingle.shared.errors import SpecError
from commingle.shared.mechanisms import mechanism_of
from commingle.shared.mechanisms.prediction import noise_variance
from commingle.shared.mechanisms.rows.sketch import SignStream
from commingle.shared.release.checks import closed
from commingle.shared.release.plan import plan_block

X = NumericAttribute(name="x", lower=-1, upper=1)
B = BinaryAttribute(name="b", levels=("no", "yes"))
C = CategoricalAttribute(name="c", levels=("r", "s", "t"))
VALUES = st.one_of(st.integers(-(2**15), 2**15), st.sampled_from([-(2**15), -1, 0, 1, 2**15]))
LEVELS = st.sampled_from([(2**15, 0), (0, 2**15), (0, 0)])


def spec_of(*attributes: Attribute, mechanism: str = "rmgm", **changes: Any) -> ReleaseSpec:
    facts: dict[str, Any] = {"subjects": "keyed", **({"k": 16} if mechanism == "rmgm" else {}), **changes}
    return proposed(
        study_of(attributes, (len(attributes),), 100, 1.0, first_stage_share=None, mechanism=mechanism, **facts)
    )


def test_block_moves_by_the_root_of_k_times_the_row_and_its_presence() -> None:
    spec, draw = spec_of(X, B, C), np.random.default_rng(1)
    names = pseudonyms(b"\x01" * 32, [b"a", b"b", b"c"], spec_digest="0" * 64)
    rows = np.column_stack([np.full(3, 2**14), draw.integers(-(2**15), 2**15, (3, 4))])
    with_one, without = (mechanism_of(spec).accumulator(spec.terms, 5) for _ in range(2))
    with_one.add(names, rows)
    without.add(names[:2], rows[:2])
    moved = with_one.total() - without.total()
    assert int(np.sum(moved**2)) == 16 * int(rows[2] @ rows[2])


@pytest.mark.parametrize("row_norm", [None, 0.5])
def test_forecast_counts_the_noise_that_is_drawn(row_norm: float | None) -> None:
    spec = spec_of(X, B, C, row_norm=row_norm)
    plan = plan_block(spec, spec.parties[0])
    assert noise_variance(closed(spec)) == pytest.approx([(plan.sigma * plan.step) ** 2] * 4, rel=1e-3)


@pytest.mark.parametrize("row_norm", [None, 0.001, 0.5, 1.0])
def test_sensitivity_is_of_presence_and_row_or_of_values_alone(row_norm: float | None) -> None:
    spec = spec_of(X, B, C, row_norm=row_norm)
    [party] = spec.parties
    longest = int(min(Fraction(8, 3), Fraction(row_norm or 9) ** 2) * 4**15)
    bound = 4**14 + longest
    assert row_bound(spec.terms, party) == row_sensitivity(spec.terms, party, Adjacency.ADD_REMOVE) == bound
    apart = int(min(Fraction(10), 4 * Fraction(row_norm or 9) ** 2) * 4**15)
    assert row_sensitivity(spec.terms, party, Adjacency.REPLACE_ONE) == apart
    plan = plan_block(spec, party)
    assert plan.cost.replacement is not None
    for rho, moved in ((plan.loss, bound), (plan.cost.replacement.rho, apart)):
        exact = Fraction(16 * moved, 2 * plan.sigma**2)
        assert exact <= Fraction(rho.units, 2**64) < exact + Fraction(1, 2**64)


def test_neither_figure_stands_for_the_other() -> None:
    """Of long rows other values cost more, at most four times; of short ones hardly anything, as presence does not."""
    ratios = []
    for row_norm in (None, 0.5, 0.01):
        plan = plan_block(spec := spec_of(X, B, C, row_norm=row_norm), spec.parties[0])
        assert plan.cost.replacement is not None
        ratios.append(plan.cost.replacement.rho.units / plan.loss.units)
    assert 1 < ratios[0] < 4
    assert ratios[2] < 0.01


ROWS = st.tuples(VALUES, st.sampled_from([-(2**15), 2**15]), LEVELS).map(lambda row: [row[0], row[1], *row[2]])


@pytest.mark.parametrize("row_norm", [None, 0.05, 0.5, 1.0])
def test_no_subject_more_and_no_other_values_move_a_block_farther_than_either_figure_and_some_as_far(
    row_norm: float | None,
) -> None:
    """Searched for, with the accumulator of the product; the farthest pairs of `ENDS` attain both."""
    spec = spec_of(X, B, C, row_norm=row_norm)
    plan = plan_block(spec, spec.parties[0])
    clip = bounded_rows(spec.parties[0], fraction_bits=15)
    names = pseudonyms(b"\x01" * 32, [b"a", b"b"], spec_digest="0" * 64)
    assert plan.cost.replacement is not None

    def block(*rows: list[int]) -> NDArray[np.int64]:
        made = mechanism_of(spec).accumulator(spec.terms, 5)
        if rows:
            q = clip(np.array(rows, np.int64))
            made.add(names[: len(rows)], np.column_stack([np.full(len(rows), presence(15)), q]))
        return made.total()

    def mu_squared(one: NDArray[np.int64], other: NDArray[np.int64]) -> Fraction:
        return Fraction(int(np.sum((one - other) ** 2)), plan.sigma**2)

    present, replaced = (Fraction(2 * rho.units, 2**64) for rho in (plan.loss, plan.cost.replacement.rho))

    @given(ROWS, ROWS, ROWS)
    def search(row: list[int], other: list[int], beside: list[int]) -> None:
        assert mu_squared(block(beside, row), block(beside)) <= present
        assert mu_squared(block(beside, row), block(beside, other)) <= replaced
        assert mu_squared(block(row), block(other, beside)) <= 4 * max(present, replaced)

    search()
    one, other = [2**15, 2**15, 2**15, 0], [-(2**15), -(2**15), 0, 2**15]
    assert mu_squared(block(one), block()) >= Fraction(999, 1000) * present
    # no two rows with levels are quite opposite
    assert mu_squared(block(one), block(other)) >= Fraction(999 if row_norm is None else 930, 1000) * replaced


def test_signs_follow_from_the_beginning_of_a_pseudonym_and_not_from_places() -> None:
    names = pseudonyms(b"\x01" * 32, [b"a", b"b"], spec_digest="0" * 64)
    stream = SignStream(bytes(32))
    both, swapped = stream.packed(names, 256), stream.packed(names[::-1], 256)
    assert np.array_equal(both, swapped[::-1])
    assert not np.array_equal(both[0], both[1])
    by_rank = np.zeros((1, 32), np.uint8)
    by_rank[0, 11] = 7
    assert np.array_equal(stream.packed(by_rank, 256), stream.packed(np.array([7]), 256))


def test_pseudonyms_depend_on_key_release_and_id() -> None:
    made = [
        pseudonyms(key * 32, [identifier], spec_digest=digest * 64).tobytes()
        for key in (b"\x01", b"\x02")
        for digest in "ab"
        for identifier in (b"x", b"y")
    ]
    assert len(set(made)) == len(made)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"mechanism": "dgm"}, "its data sets are listed"),
        ({"buckets": 50}, "buckets are for keyed data sets of moments"),
    ],
)
def test_what_keyed_subjects_cannot_have_is_refused_in_words(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        spec_of(X, B, **changes)


def test_document_of_listed_subjects_says_nothing_of_them() -> None:
    listed = spec_of(X, B, subjects="listed")
    assert not {"subjects", "buckets"} & listed.model_dump(mode="json").keys()
    assert "subjects" not in listed.parties[0].model_dump(mode="json")
