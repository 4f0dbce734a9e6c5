"""What parties sign in an exchange: which statements are taken, what follows from them, and who is named for one."""

from dataclasses import replace

import pytest

from commingle.shared.documents.dsse import seal
from commingle.shared.documents.model import WireModel, encode
from commingle.shared.documents.spec import MAX_COLUMNS, MAX_PARTIES
from commingle.shared.documents.statements import DeviationError
from commingle.shared.errors import DocumentError, ExchangeError, SignatureError, SpecError
from commingle.shared.mechanisms.moments.exchange.messages import (
    Quotation,
    ReplyStatement,
    columns_digest,
    open_columns,
    open_reply_statement,
    quotations,
    quoted,
    recorded_transcript,
)
from tests.shared.mechanisms.moments.exchange.world import KEYS, NAMES, STAGED, exchanged, spec_of, start
from tests.world.noise import seeded_noise
from tests.world.side import Exchanging

SPEC = spec_of()


@pytest.fixture(scope="module")
def world() -> Exchanging:
    return exchanged(SPEC, draw=seeded_noise(3))


def test_columns_signed_by_another_or_for_others_are_refused(world: Exchanging) -> None:
    with pytest.raises(SignatureError):
        open_columns(world.exchange, world.signed_columns("clinic", KEYS["lab"]), "clinic")
    with pytest.raises(DocumentError, match="another release or member"):
        open_columns(world.exchange, world.signed_columns("clinic", KEYS["lab"]), "lab")
    with pytest.raises(DocumentError, match="another release or member"):
        open_columns(world.exchange, world.signed_columns("clinic", spec="11" * 32), "clinic")
    with pytest.raises(DocumentError, match="another set of approvals"):
        open_columns(world.exchange, world.signed_columns("clinic", approvals="11" * 32), "clinic")
    again = start(SPEC, head="11" * 32)
    with pytest.raises(DocumentError, match="another set of approvals"):
        open_columns(again.exchange, world.columns["clinic"], "clinic")
    assert open_columns(world.exchange, world.columns["clinic"], "clinic").envelope == world.columns["clinic"]


@pytest.mark.parametrize(
    ("party", "sums"), [("clinic", None), ("clinic", (1, 2, 3)), ("clinic", (1,) * 5), ("lab", (1,))]
)
def test_columns_without_the_sums_of_their_first_stage_are_refused(party: str, sums: tuple[int, ...] | None) -> None:
    staged = start(spec_of(STAGED, n=400))
    staged.bodies[party] = b""
    with pytest.raises(DocumentError, match="sums of its first stage"):
        open_columns(staged.exchange, staged.signed_columns(party, sums=sums), party)
    open_columns(staged.exchange, staged.signed_columns(party), party)


def test_reply_signed_by_another_or_for_another_release_or_party_is_refused(world: Exchanging) -> None:
    with pytest.raises(SignatureError):
        open_reply_statement(world.exchange, world.signed_reply("lab", KEYS["clinic"]), "lab")
    with pytest.raises(DocumentError, match="another release or member"):
        open_reply_statement(world.exchange, world.signed_reply("lab", KEYS["registry"]), "registry")
    with pytest.raises(DocumentError, match="another release or member"):
        open_reply_statement(world.exchange, world.signed_reply("lab", spec="11" * 32), "lab")
    assert open_reply_statement(world.exchange, world.replies["lab"], "lab").envelope == world.replies["lab"]


def test_nobody_agrees_before_all_columns_and_replies_are_there(world: Exchanging) -> None:
    for missing in NAMES:
        columns = {name: sent for name, sent in world.columns.items() if name != missing}
        replies = {name: sent for name, sent in world.replies.items() if name != missing}
        with pytest.raises(ExchangeError, match=f"no columns by {missing}"):
            columns_digest(world.exchange, columns)
        for changes in ({"columns": columns}, {"replies": replies}):
            with pytest.raises(ExchangeError, match=f"by {missing} yet"):
                replace(world, **changes).transcript()  # type: ignore[arg-type] # either is of its field


def test_columns_of_a_stranger_are_refused(world: Exchanging) -> None:
    with pytest.raises(SpecError, match="stranger is not a member"):
        columns_digest(world.exchange, {**world.columns, "stranger": world.columns["lab"]})


def test_party_that_shows_each_of_two_others_one_set_of_columns_is_named_with_both(world: Exchanging) -> None:
    """By either of the two, from what it was shown and the other's reply: the coordinator passes on what it likes."""
    first, second = world.columns["clinic"], world.signed_columns("clinic", body_sha256="11" * 32)
    other = replace(world, columns={**world.columns, "clinic": second})
    mixed = {**world.replies, "registry": other.signed_reply("registry")}
    for columns, evidence in ((world.columns, (second, first)), (other.columns, (first, second))):
        with pytest.raises(DeviationError, match=r"clinic .* two sets of columns") as found:
            replace(world, columns=columns, replies=mixed).transcript()
        assert (found.value.party, found.value.evidence) == ("clinic", evidence)


@pytest.mark.parametrize("how", ["forged", "of another party", "left out", "other sums"])
def test_party_that_quotes_what_nobody_signed_is_named_and_nobody_else(world: Exchanging, how: str) -> None:
    quotes = quotations(world.exchange, world.columns)
    clinic, lab = quotes["clinic"], quotes["lab"]
    altered = {
        "forged": {**quotes, "clinic": clinic.model_copy(update={"body_sha256": "11" * 32})},
        "of another party": {**quotes, "clinic": lab},
        "left out": {name: quote for name, quote in quotes.items() if name != "clinic"},
        "other sums": {**quotes, "clinic": clinic.model_copy(update={"sums": (1, 2)})},
    }[how]
    replies = {**world.replies, "lab": world.signed_reply("lab", columns=altered)}
    with pytest.raises(DeviationError, match=r"quote") as found:
        replace(world, replies=replies).transcript()
    assert (found.value.party, found.value.evidence) == ("lab", None)


def test_quotation_is_the_statement_again_whatever_it_holds(world: Exchanging) -> None:
    staged = start(spec_of(STAGED, n=400))
    staged.bodies = staged.answers = dict.fromkeys(NAMES, b"")
    staged.columns = {name: staged.signed_columns(name) for name in NAMES}
    for made in (world, staged):
        said = open_reply_statement(made.exchange, made.signed_reply("lab"), "lab").document
        assert quoted(made.exchange, said) == made.columns


class Unversioned(WireModel):
    """A statement of columns without fields that have defaults."""

    spec: str
    party: str
    approvals: str
    body_sha256: str

    @classmethod
    def signed_as(cls) -> str:
        return "columns"


def test_columns_stated_in_other_bytes_than_a_quotation_has_are_refused(world: Exchanging) -> None:
    """Or whoever quotes them would seem to quote what was never signed."""
    said = open_columns(world.exchange, world.columns["clinic"], "clinic").document
    shorter = Unversioned(**said.model_dump(include=set(Unversioned.model_fields)))
    with pytest.raises(DocumentError, match="lack a field"):
        open_columns(world.exchange, seal(shorter, key=KEYS["clinic"]), "clinic")


def test_reply_of_the_most_parties_and_columns_is_within_what_a_statement_can_have() -> None:
    quote = Quotation(body_sha256="0" * 64, sig="s" * 88, sums=(-(1 << 63),) * (2 * MAX_COLUMNS // MAX_PARTIES))
    names = [f"{number:063}" for number in range(MAX_PARTIES)]
    reply = ReplyStatement(spec="0" * 64, party=names[0], columns=dict.fromkeys(names, quote), body_sha256="0" * 64)
    assert len(encode(reply)) <= ReplyStatement.largest_bytes


def test_digests_and_transcript_change_with_everything_they_stand_for(world: Exchanging) -> None:
    staged = start(spec_of(STAGED, n=400))
    staged.bodies = dict.fromkeys(NAMES, b"")
    sums = staged.sums["clinic"]
    assert sums is not None
    seen = {columns_digest(staged.exchange, {n: staged.signed_columns(n) for n in NAMES})}
    others = {n: staged.signed_columns(n) for n in ("lab", "registry")}
    changed = staged.signed_columns("clinic", sums=(sums[0] + 1, *sums[1:]))
    seen.add(columns_digest(staged.exchange, {"clinic": changed, **others}))
    seen |= {columns_digest(world.exchange, world.columns), world.transcript()}
    for name in NAMES:
        columns = {**world.columns, name: world.signed_columns(name, body_sha256="11" * 32)}
        seen.add(columns_digest(world.exchange, columns))
        agreed = replace(world, columns=columns)
        seen.add(replace(agreed, replies={n: agreed.signed_reply(n) for n in NAMES}).transcript())
        replies = {**world.replies, name: world.signed_reply(name, body_sha256="11" * 32)}
        seen.add(replace(world, replies=replies).transcript())
    again = start(SPEC, head="11" * 32)
    again.bodies, again.answers = world.bodies, world.answers
    again.columns = {n: again.signed_columns(n) for n in NAMES}
    seen.add(replace(again, replies={n: again.signed_reply(n) for n in NAMES}).transcript())
    assert len(seen) == 4 + 3 * 3 + 1


def test_transcript_of_a_coordinators_history_is_the_one_that_is_signed(world: Exchanging) -> None:
    columns, replies = ({n: sent.digest for n, sent in found.items()} for found in (world.columns, world.replies))
    assert recorded_transcript(world.exchange, columns=columns, replies=replies) == world.transcript()
    for kind, name in ((kind, name) for kind in ("columns", "replies") for name in NAMES):
        other: dict[str, dict[str, str]] = {"columns": dict(columns), "replies": dict(replies)}
        other[kind][name] = "11" * 32
        assert recorded_transcript(world.exchange, **other) != world.transcript()
        del other[kind][name]
        assert recorded_transcript(world.exchange, **other) != world.transcript()


def test_release_of_a_kind_without_an_exchange_has_none() -> None:
    with pytest.raises(ExchangeError, match="needs no exchange"):
        start(spec_of(mechanism="dgm", fraction_bits=15))
