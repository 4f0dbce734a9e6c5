"""Formulas of generalised linear models: outcome ~ features, joined by +; `.` is all others (docs/adr/0034)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from commingle.services.errors import FormulaError, InteractionError
from commingle.shared.errors import FeaturesError, TargetAmongFeaturesError, UnknownAttributeError

_TOKEN = re.compile(
    r"\s*(?:`(?P<quoted>[^`]*)`(?P<event>\[.*\](?=\s*~))?|(?P<sign>[~+*:^|()-])|(?P<bare>[^~+*:^|()`-]+))"
)
_SHAPE = 'Write it as "outcome ~ age + sex", or "outcome ~ ." for all others; put other names into backticks.'
_PRODUCTS = frozenset("*:^")


@dataclass(frozen=True, slots=True)
class Formula:
    """An outcome and the features that explain it.

    Attributes:
        outcome: an attribute.
        event: the level of the outcome whose odds are modelled, if the formula names one.
        features: attributes, in order.
    """

    outcome: str
    event: str | None
    features: tuple[str, ...]

    @classmethod
    def of(
        cls, outcome: str, features: Sequence[str] | None, attributes: Sequence[str], offset: str | None = None
    ) -> Self:
        """The formula of these names; the outcome may have its event in brackets.

        `features` of None stands for all attributes but the offset. Raises UnknownAttributeError, FeaturesError,
        TargetAmongFeaturesError: as `parse`.
        """
        name, event = _outcome(outcome, attributes)
        chosen = [each for each in attributes if each not in {name, offset}] if features is None else list(features)
        for each in chosen:
            _known(each, attributes)
        if name in chosen:
            raise TargetAmongFeaturesError(f"{name!r} is both outcome and feature", remedy="Leave it out on the right.")
        if not chosen or len(set(chosen)) < len(chosen):
            raise FeaturesError("no features are named, or one twice", remedy=_SHAPE)
        return cls(name, event, tuple(chosen))


def parse(text: str, attributes: Sequence[str], offset: str | None = None) -> Formula:
    """A formula over these attributes: `outcome[level] ~ a + b`, `outcome ~ .`, `outcome ~ . - a`.

    A name may have spaces and commas; put a name that contains a sign of formulas into backticks. `.` leaves the offset
    out.

    Raises:
        FormulaError: the text is no formula.
        InteractionError: it has products of features.
        UnknownAttributeError: it names something that is no attribute.
        FeaturesError: it names no feature, or one twice.
        TargetAmongFeaturesError: the outcome is one of the features.
    """
    if not isinstance(text, str):
        raise FormulaError("a formula is a text", remedy=_SHAPE)
    left, tilde, right = _split(_tokens(text))
    if not tilde or len(left) != 1 or left[0].sign:
        raise FormulaError("a formula has one outcome on the left of one ~", remedy=_SHAPE)
    outcome = left[0].text
    name, _ = _outcome(outcome, attributes)
    features = _features(right, [each for each in attributes if each not in {name, offset}], attributes)
    return Formula.of(outcome, features, attributes)


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    sign: bool = False
    quoted: bool = False


def _tokens(text: str) -> list[_Token]:
    found, at, text = list[_Token](), 0, text.strip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise FormulaError("a backtick in the formula has no partner", remedy=_SHAPE)
        at = match.end()
        if match["quoted"] is not None:
            found.append(_Token(match["quoted"] + (match["event"] or ""), quoted=True))
        elif match["sign"] is not None:
            found.append(_Token(match["sign"], sign=True))
        elif name := match["bare"].strip():
            found.append(_Token(name))
    return found


def _split(tokens: list[_Token]) -> tuple[list[_Token], bool, list[_Token]]:
    tilde = _Token("~", sign=True)
    if tokens.count(tilde) != 1:
        return [], False, []
    at = tokens.index(tilde)
    return tokens[:at], True, tokens[at + 1 :]


def _outcome(name: str, attributes: Sequence[str]) -> tuple[str, str | None]:
    event = None
    if name not in attributes and name.endswith("]") and "[" in name:  # names of attributes have no brackets
        name, _, event = name[:-1].partition("[")
    return _known(name if name in attributes else name.strip(), attributes), event


def _features(tokens: list[_Token], others: list[str], attributes: Sequence[str]) -> list[str]:
    if any(token.sign and token.text in _PRODUCTS for token in tokens):
        raise InteractionError(
            "the formula has a product of features, and a release has sums of two attributes at a time",
            remedy="Leave it out; or propose a study with the combination as one attribute with levels.",
        )
    found = list[str]()
    terms = [_Token("+", sign=True), *tokens] if tokens and not tokens[0].sign else tokens
    if len(terms) % 2:
        raise FormulaError("the features are not names joined by +", remedy=_SHAPE)
    for sign, name in zip(terms[::2], terms[1::2], strict=True):
        if not sign.sign or name.sign or sign.text not in {"+", "-"}:
            raise FormulaError("the features are not names joined by +", remedy=_SHAPE)
        if not name.quoted and name.text in {"0", "1"}:
            raise FormulaError("there always is an intercept", remedy="Leave the 0 or 1 out.")
        if sign.text == "+":
            found += others if name.text == "." and not name.quoted else [_known(name.text, attributes)]
        elif _known(name.text, attributes) in found:
            found.remove(name.text)
    return found


def _known(name: str, attributes: Sequence[str]) -> str:
    if name not in attributes:
        raise UnknownAttributeError(name, attributes)
    return name
