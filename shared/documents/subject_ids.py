"""How subjects are identified: by columns, and by the named rule with which every member writes each of them.

A rule never changes what it does: another way of writing gets another name (docs/design/encoding.md#subject-ids).
"""

import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints

from commingle.shared.errors import SpecError
from commingle.shared.text import counted, printable

_PREFIX = "[A-Za-z_.:#/-]{1,16}"
_AFTER = f"digits-after:{_PREFIX}/1"
IdRule = (
    Literal["exact/1", "text/1", "code/1", "digits/1", "date/1"]
    | Annotated[str, StringConstraints(pattern=rf"^{_AFTER}$")]
)
MAX_KEYS = 8
IdRules = Annotated[tuple[IdRule, ...], Field(min_length=1, max_length=MAX_KEYS)]
"""One rule for each column that identifies a subject, in order."""
SubjectColumns = str | Annotated[tuple[str, ...], Field(min_length=1, max_length=MAX_KEYS)]
"""The column that identifies a subject, or several that do so together."""
EXACT: IdRules = ("exact/1",)  # what it means, and always meant, to leave the rules out

LONGEST_PART = 1024
"""Bytes of UTF-8 that a cell of an id has at most: putting many combining marks in order takes quadratic time."""

_RUNS = re.compile(r"\d+|[^\W\d_]+|[\W_]")
_LONGEST_FORM, _RARE, _SHOWN_FORMS = 64, 20, 3
_NUMBER = re.compile(r"[0-9]+([ -][0-9]+)*")
_PREFIXED = re.compile(rf"(?:'({_PREFIX})', )?digits \((\d+)( to \d+)?(, some with leading zeros)?\)")
_ISO_DATE = re.compile(r"(\d{4})-?(\d{2})-?(\d{2})([T ]00:00(:00(\.0+)?)?)?", re.ASCII)


def canonical_subject(identifier: str) -> bytes:
    """NFC-normalised, stripped UTF-8: the rule exact/1. Empty for what can be no part of an id."""
    return _exact(identifier).encode() if _is_possible(identifier) else b""


def _is_possible(text: str) -> bool:
    # short enough, and of whole characters: half a surrogate pair is none
    try:
        return len(text) <= LONGEST_PART and len(text.encode()) <= LONGEST_PART
    except UnicodeEncodeError:
        return False


def _exact(text: str) -> str:
    return unicodedata.normalize("NFC", text).strip()


def _text(text: str) -> str:
    """NFKC without case or format characters, one blank for any white space."""
    folded = "".join(c for c in unicodedata.normalize("NFD", text) if unicodedata.category(c) != "Cf")
    for _ in range(2):  # folding can undo normalisation, and the other way round (Unicode 3.13, D146)
        folded = unicodedata.normalize("NFKC", folded.casefold())
    return " ".join(folded.split())


def _code(text: str) -> str:
    """The letters and digits of text/1, side by side."""
    return unicodedata.normalize("NFKC", "".join(character for character in _text(text) if character.isalnum()))


def _digits(text: str) -> str:
    """Digits 0 to 9 without leading zeros and single blanks or hyphens between; nothing for any other text."""
    folded = _text(text)
    return (re.sub("[ -]", "", folded).lstrip("0") or "0") if _NUMBER.fullmatch(folded) else ""


def _digits_after(prefix: str, text: str) -> str:
    """The digits/1 of what follows a prefix, in capitals or not; of the whole text if the prefix is not there."""
    return _digits(_text(text).removeprefix(_text(prefix)))


def _date(text: str) -> str:
    """A date of the ISO calendar, which may be followed by midnight, as YYYY-MM-DD; nothing for any other text."""
    found = _ISO_DATE.fullmatch(_exact(text))
    if found is None:
        return ""
    try:
        return date(int(found[1]), int(found[2]), int(found[3])).isoformat()
    except ValueError:
        return ""


_RULES: Mapping[str, Callable[[str], str]] = {
    "exact/1": _exact,
    "text/1": _text,
    "code/1": _code,
    "digits/1": _digits,
    "date/1": _date,
}
RULE_NAMES = (*_RULES, "digits-after:P-/1")  # the last one has the prefix P-; any other may stand in its place


def is_id_rule(name: str) -> bool:
    """Whether there is a rule of that name: one of `RULE_NAMES`, or the last one with another prefix."""
    return name in _RULES or re.fullmatch(_AFTER, name) is not None


def _written_by(rule: IdRule) -> Callable[[str], str]:
    return _RULES.get(rule) or partial(_digits_after, rule.removeprefix("digits-after:").removesuffix("/1"))


@dataclass(frozen=True, slots=True)
class SubjectKey:
    """The columns that identify subjects, and the rule by which each is written."""

    columns: tuple[str, ...]
    rules: IdRules

    @classmethod
    def of(cls, columns: SubjectColumns, rules: IdRules | None = None) -> Self:
        """A key; without rules each column is taken exactly.

        Raises SpecError: not one rule a column, or a column twice.
        """
        names = (columns,) if isinstance(columns, str) else columns
        chosen = EXACT * len(names) if rules is None else rules
        if len(chosen) != len(names) or len(set(names)) != len(names):
            raise SpecError(
                f"{len(chosen)} rules ({', '.join(chosen)}) for the subject id columns {', '.join(names)}",
                remedy="Name every column once and give each its rule, in the same order.",
            )
        return cls(names, chosen)

    def __str__(self) -> str:
        pairs = zip(self.columns, self.rules, strict=True)
        return ", ".join(name if rule in EXACT else f"{name} ({rule})" for name, rule in pairs)

    def canonical(self, cells: Sequence[str]) -> bytes:
        """One subject's id, from the text of its cells; empty if a cell does not follow its rule. Total.

        The parts of several columns stand in a JSON array, so no two lists of parts give the same bytes.
        """
        each = zip(self.rules, cells, strict=True)
        parts = [_written_by(rule)(cell) if _is_possible(cell) else "" for rule, cell in each]
        if not all(parts):
            return b""
        return (parts[0] if len(parts) == 1 else json.dumps(parts, ensure_ascii=False, separators=(",", ":"))).encode()

    def written(self, cells: Sequence[str]) -> bytes:
        """One subject's id from cells that are taken as they stand."""
        return SubjectKey(self.columns, EXACT * len(self.columns)).canonical(cells)


def id_parts(identifier: str, columns: int) -> tuple[str, ...]:
    """The parts of a canonical id of that many columns; the rule that made a part writes it as it stands."""
    return (identifier,) if columns == 1 else tuple(json.loads(identifier))


def forms_of(ids: Iterable[str]) -> tuple[str, ...]:
    """How ids are written that a twentieth of them or more share, in words that people can read to each other.

    If all of at least `_RARE` are digits behind one prefix that a rule can have, the prefix stands there as it is. A
    function of private rows: only for their owner, who compares it with other members' owners before a release.
    """
    found, total = dict[tuple[str, ...], list[list[str]]](), 0
    for each in ids:
        runs = _RUNS.findall(each[:_LONGEST_FORM])
        found.setdefault(tuple(map(_kind, runs)), []).append(runs)
        total += 1
    often = [(kinds, each) for kinds, each in found.items() if len(each) * _RARE >= total]
    often.sort(key=lambda form: (-len(form[1]), form[0]))
    prefixes = {"".join(runs[:-1]) for _, each in often for runs in each}
    known = len(found) == len(prefixes) == 1 and total >= _RARE and often[0][0][-1] == "digits"
    if known and re.fullmatch(_PREFIX, min(prefixes)):
        kinds, of_all = often[0]
        return (f"{printable(*prefixes)!r}, {_run_in_words(kinds[-1], [runs[-1] for runs in of_all])}",)
    return tuple(
        ", ".join(_run_in_words(kind, column) for kind, column in zip(kinds, zip(*each, strict=True), strict=True))
        for kinds, each in often[:_SHOWN_FORMS]
    )


def prefix_rule(members: Iterable[Sequence[str]]) -> IdRule | None:
    """The rule by which ids of all members are digits, if their `forms_of` differ by one constant prefix.

    None unless each member has one form, either with that prefix or of digits alone, and the rule keeps ids apart: they
    have equally many digits, or none has leading zeros.
    """
    prefixes = set[str]()
    for forms in members:
        found = _PREFIXED.fullmatch(forms[0]) if len(forms) == 1 else None
        if found is None or (found[3] and found[4]):
            return None
        prefixes.add(found[1] or "")
    prefixes.discard("")
    return f"digits-after:{prefixes.pop()}/1" if len(prefixes) == 1 else None


def _kind(run: str) -> str:
    first = run[0]
    if first.isdigit():
        return "digits" if run.isascii() else "other digits"  # a rule may write these as it does 0 to 9
    return run if not first.isalpha() else "capitals" if run.isupper() else "letters"


def _run_in_words(kind: str, runs: Sequence[str]) -> str:
    if kind not in {"digits", "other digits", "capitals", "letters"}:
        return repr(printable(kind))
    least, most = min(map(len, runs)), max(map(len, runs))
    zeros = kind == "digits" and any(run[0] == "0" and len(run) > 1 for run in runs)
    return f"{kind} ({least if least == most else f'{least} to {most}'}{', some with leading zeros' if zeros else ''})"


_UNEVEN = "another number of cells than there are columns"


@dataclass(frozen=True, slots=True)
class IdCounts:
    """Counts about the subject ids of a table. They are functions of private rows: only for their owner.

    Attributes:
        missing: rows with an empty cell in the key.
        invalid: others with a cell that does not follow its rule, is no text, or is too long to be part of an id.
        duplicates: rows behind another one with the same id.
        changed: ids that a rule writes otherwise than exact/1, which only drops what stands around them.
        unreadable: records that could not be read at all and are no rows.
        uneven: rows that have fewer or more cells than the source has columns.
    """

    rows: int = 0
    missing: int = 0
    invalid: int = 0
    duplicates: int = 0
    changed: int = 0
    unreadable: int = 0
    uneven: int = 0

    def __add__(self, other: Self) -> Self:
        """The caller still looks for duplicates between both."""
        added = ("rows", "missing", "invalid", "changed", "unreadable", "uneven")
        return type(self)(**{name: getattr(self, name) + getattr(other, name) for name in added})

    @property
    def problems(self) -> list[str]:
        """Why these rows are no list of subjects, each reason with its count; empty if they are one."""
        found = (
            (self.missing, "subject id is missing", "subject ids are missing"),
            (self.invalid, "subject id does not follow its rule", "subject ids do not follow their rule"),
            (self.duplicates, "duplicate subject id", "duplicate subject ids"),
            (self.unreadable, "record cannot be read", "records cannot be read"),
            (self.uneven, f"record has {_UNEVEN}", f"records have {_UNEVEN}"),
        )
        return [counted(count, one, many) for count, one, many in found if count]

    def sentence(self, key: SubjectKey) -> str:
        """All counts, for the owner of the rows."""
        ids = counted(self.changed, "id is", "ids are")
        written = [f"{ids} written otherwise by {', '.join(key.rules)}"] if self.changed else []
        return ", ".join([counted(self.rows, "row"), *self.problems, *written])
