"""What the best attack known demonstrates, from a file to what is published, is no more than what is claimed.

It notices half the noise of every mechanism, and records that move other people's rows. Regressions are attacked in
`tests/party_agent/private/regression/test_attack.py`, whose runs are as many.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from commingle.shared.documents.linkage import pseudonyms
from commingle.shared.documents.manifest import StatedLoss
from commingle.shared.documents.schema import Attribute, CategoricalAttribute, NumericAttribute
from commingle.shared.documents.terms import Terms
from commingle.shared.mechanisms.moments.block import KEYED_MOMENTS
from tests.hostile.distinguishing import Attack, Numbers, Prepared, difference, halved, numbers_of
from tests.hostile.records.cells import OWN
from tests.hostile.records.kinds import Csv, Excel, Kind, Row, Source, Sqlite
from tests.hostile.records.search import people
from tests.hostile.travelling import ATTACKS, epsilons
from tests.hostile.travelling import Attack as Overheard
from tests.world.consortium import LINKAGE, kept_folder

pytestmark = pytest.mark.slow

AGE, DOSE = NumericAttribute(name="age", lower=0, upper=100), NumericAttribute(name="dose", lower=0, upper=1000)
SICK = NumericAttribute(name="sick", lower=0, upper=1, missing="midpoint")
BLOOD = CategoricalAttribute(name="blood", levels=("0", "A", "B", "AB"), missing="indicator")
ATTRIBUTES: Mapping[str, tuple[Attribute, ...]] = {"clinic": (AGE, DOSE), "insurer": (SICK,)}
BUCKETS = 512
MECHANISMS: Mapping[str, Mapping[str, Any]] = {
    "rmgm": {"mechanism": "rmgm"},
    "rmgm, sparse": {"mechanism": "rmgm", "projection": "sparse"},
    "rmgm, keyed": {"mechanism": "rmgm", "keyed": True, "epsilon": 1.0},
    "rmgm, two stages": {"mechanism": "rmgm", "first_stage_share": 0.25},
    "dgm": {"mechanism": "dgm"},
    "moments": {"mechanism": "moments"},
    "moments, asked last": {"mechanism": "moments", "names": ("insurer", "clinic")},
    "moments, keyed": {"mechanism": "moments", "keyed": True, "buckets": BUCKETS, "epsilon": 1.0},
    "moments, two stages": {"mechanism": "moments", "first_stage_share": 0.25},
}


@cache
def attacked(name: str) -> tuple[Prepared, Numbers]:
    """A release of that mechanism and which number is in which integer: found once in this process."""
    prepared = Prepared(kept_folder(), Csv(), ATTRIBUTES, {"epsilon": 3.0, **MECHANISMS[name]})
    return prepared, numbers_of(prepared)


def own(age: float, dose: int, *, sick: bool = True) -> Row:
    return OWN, age, dose, sick, "A", date(2020, 2, 28)


def require_private(attack: Attack, claim: StatedLoss, tell: Callable[[str, object], None]) -> None:
    """The loss and what is demonstrated of it are no more than is claimed; with half the noise more is demonstrated."""
    claimed, (shown, right), (broken, too_often) = claim.epsilon, attack.demonstrated(), attack.demonstrated(halved)
    tell("epsilon", f"claimed {claimed:.2f}, the tables' {attack.epsilon:.2f}, shown {shown:.2f}, at half {broken:.2f}")
    assert attack.epsilon <= claimed * (1 + 1e-9)
    assert shown <= claimed < broken
    assert 100 * attack.right <= claim.guess_percent
    assert right <= claim.guess_percent < too_often


@pytest.mark.parametrize("name", MECHANISMS)
def test_loss_of_the_worst_records_is_no_more_than_claimed(
    name: str, record_property: Callable[[str, object], None]
) -> None:
    """Of a person at the clinic, to everybody and to the insurer; who is keyed is there or not, alone in its bucket."""
    choices, (prepared, numbers) = MECHANISMS[name], attacked(name)
    mine = {party.party: party.loss.own for party in numbers.privacy.per_party}["clinic"]
    target = sharing_a_bucket(prepared, 1)[0] if "buckets" in choices else OWN
    within = prepared.with_own((target, *own(100, 1000)[1:]))
    without = prepared.with_own(*([] if "keyed" in choices else [own(0, 0)]))
    apart = difference(prepared, {"clinic": within, "insurer": within}, {"clinic": without, "insurer": within})
    for inside in ((), ("insurer",)):
        require_private(Attack.best(numbers, apart, inside), mine, record_property)


@pytest.mark.parametrize("strangers", [1, 2])
def test_stranger_who_meets_the_target_tells_no_more_of_who_is_there(
    strangers: int, record_property: Callable[[str, object], None]
) -> None:
    """The adversary has the linkage key, and has put people of its choice into the target's bucket.

    The target, which the insurer holds, closes the bucket of one stranger and takes the longest row out; of two it is
    closed before.
    """
    prepared, numbers = attacked("moments, keyed")
    mine = {party.party: party.loss.own for party in numbers.privacy.per_party}["clinic"]
    target, *others = ((name, 100, 1000, *own(100, 1000)[3:]) for name in sharing_a_bucket(prepared, 1 + strangers))
    there, gone, insured = (prepared.with_own(*rows) for rows in ([target, *others], others, [target]))
    apart = difference(prepared, {"clinic": there, "insurer": insured}, {"clinic": gone, "insurer": insured})
    if strangers > 1:
        assert not apart.any()
        return
    for inside in ((), ("insurer",)):
        require_private(Attack.best(numbers, apart, inside), mine, record_property)


def sharing_a_bucket(prepared: Prepared, count: int) -> list[str]:
    """Ids of so many new people of one bucket, in which nobody else is."""
    names = [*(row[0] for row in prepared.rows), *(f"t{i:04}" for i in range(6000))]
    found = pseudonyms(LINKAGE, [name.encode() for name in names], spec_digest=prepared.release)
    bucket = KEYED_MOMENTS.places(cast("Terms", SimpleNamespace(table_rows=BUCKETS)), found)
    free = next(place for place in range(BUCKETS) if place not in bucket[: len(prepared.rows)])
    return [name for name, place in zip(names, bucket, strict=True) if place == free][:count]


@pytest.mark.parametrize("name", ["rmgm", "moments"])
def test_loss_of_records_of_all_parties_is_no_more_than_outsiders_are_said_to_see(
    name: str, record_property: Callable[[str, object], None]
) -> None:
    prepared, numbers = attacked(name)
    rows = own(100, 1000), own(0, 1000 if name == "moments" else 0, sick=False)
    one, other = (dict.fromkeys(ATTRIBUTES, prepared.with_own(row)) for row in rows)
    attack = Attack.best(numbers, difference(prepared, one, other))
    require_private(attack, numbers.privacy.outsiders.own, record_property)


def test_attack_fails_where_an_integer_that_differs_has_no_noise() -> None:
    prepared, numbers = attacked("rmgm")
    apart = difference(prepared, {"clinic": prepared.with_own(own(100, 0))}, {})
    with pytest.raises(AssertionError, match="without noise"):
        Attack.best(replace(numbers, scale=0 * numbers.scale), apart)


def _quoted(kind: Kind[Source], records: Sequence[Any]) -> Sequence[Any]:
    """The person's first cell begins with a quotation mark that is not closed."""
    mine = kind.honest(own(50, 500))
    return [line.replace(b"s031,", b's031,"') if line == mine else line for line in records]


def _one_byte_more(kind: Kind[Source], records: Sequence[Any]) -> Sequence[Any]:
    mine = kind.honest(own(50, 500))
    return [line + b"x" if line == mine else line for line in records]


def _in_another_order(kind: Kind[Source], records: Sequence[Any]) -> Sequence[Any]:
    """As a database may have them that has written one anew."""
    del kind
    return [records[i] for i in np.random.default_rng(2).permutation(len(records))]


def _text_among_booleans(kind: Kind[Source], records: Sequence[Any]) -> Sequence[Any]:
    mine, text = kind.honest(own(50, 500)), kind.honest((*own(50, 500)[:3], "unknown", *own(50, 500)[4:]))
    return [text if record == mine else record for record in records]


RECORDS: Mapping[str, tuple[Kind[Source], Callable[[Kind[Source], Sequence[Any]], Sequence[Any]]]] = {
    "an open quotation mark": (Csv(), _quoted),
    "one byte too many": (Csv(encoding="utf-16"), _one_byte_more),
    "rows written anew": (Sqlite(texts=False), _in_another_order),
    "a text among booleans": (Excel(), _text_among_booleans),
}


WHOLE: Mapping[str, tuple[Attribute, ...]] = {"clinic": (AGE, DOSE, SICK), "insurer": (BLOOD,)}


@cache
def numbers_of_any_kind() -> Numbers:
    """Which number is in which integer does not depend on the kind of a source."""
    return numbers_of(Prepared(kept_folder(), Csv(), WHOLE, {"mechanism": "rmgm", "keyed": True}))


@pytest.mark.parametrize("name", RECORDS)
def test_loss_of_a_hostile_record_is_no_more_than_claimed(
    tmp_path: Path, name: str, record_property: Callable[[str, object], None]
) -> None:
    """Others have two rows each where their order is what differs."""
    kind, change = RECORDS[name]
    prepared = Prepared(tmp_path, kind, WHOLE, {"mechanism": "rmgm", "keyed": True})
    rows = [row for row in people(twice=change is _in_another_order) if row[0] != OWN]
    records = [*map(kind.honest, rows[:30]), kind.honest(own(50, 500)), *map(kind.honest, rows[30:])]
    apart, numbers = difference(prepared, {"clinic": records}, {"clinic": change(kind, records)}), numbers_of_any_kind()
    stated = {party.party: party.loss.stated for party in numbers.privacy.per_party}["clinic"]
    claimed = max(loss.epsilon for loss in stated)  # the record may be there or not, or have other values
    attack = Attack.best(numbers, apart)
    shown, _ = attack.demonstrated()
    record_property("epsilon", f"claimed {claimed:.2f}, the tables' {attack.epsilon:.2f}, shown {shown:.2f}")
    assert shown <= claimed, f"shown {shown:.2f}, the tables' {attack.epsilon:.2f}, claimed {claimed:.2f}"


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.seen_by)
def test_what_travels_beside_what_is_opened_tells_nothing_and_without_its_protection_everything(
    attack: Overheard,
) -> None:
    demonstrated, unprotected = epsilons(attack, runs=200)
    assert demonstrated == 0.0
    assert unprotected > 0
