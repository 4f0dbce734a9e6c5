"""Figures in the prose of measurement pages that no mark answers for.

A mark stands behind what it answers for: `<!--NAME-->` behind a figure of the data files, which is compared, and
`<!--paper-->`, `<!--set-->` or `<!--once-->` behind words whose figures are the paper's, a condition of the run, or of
a run that kept no file. Questions, settings, commands and what stands above the first heading need none.
"""

import re
from collections.abc import Iterator

from tests.docs.figures.data import RHO, Figures

STATED = ("paper", "set", "once")
_FLAGS = re.DOTALL | re.MULTILINE
_UNREAD = (
    re.compile(r"\A.*?(?=^## )|^## (Question|Setting|Command)$.*?(?=^## |\Z)", _FLAGS),
    re.compile(r"^\*(Question|Setting|Command)\.\*.*?(?=^$|\Z)", _FLAGS),
    re.compile(r"```.*?```|^( {4}|#).*?$|`[^`]*`", _FLAGS),
    re.compile(r"!\[.*?\]\([^)]*\)|\]\([^)]*\)|<!-- .*? -->", _FLAGS),
)
_WORDS = "two|three|four|five|six|seven|eight|nine|ten|eleven|twelve"
_CONDITIONS = (
    rf"(?:[εδ{RHO}nkdcTNλ]|epsilon|delta) (?:=|≤|≥|<|>|from|on|near) [\d.,e-]*\d(?:(?:,| and| to| or) [\d.,]*\d)*",
    r"\b(?:[Ff]igures?|[Tt]ables?|[Tt]heorems?|ADR|sections?|algorithms?|commit) \d[\w.]*(?:(?:,| and| to) \d[\w.]*)*",
    r"\[proof, [\d.]+(?: and [\d.]+)?\)",
    r"\b95 % intervals|\bbelow 1\b|\(?\b(?:19|20)\d\d\)?\b",
    r"[\w(]\^\(?-?\d[/\d]*\)?|\d/n\b|\d/ε|1/\(n ε²\)|R²",
)
_HARMLESS = re.compile("|".join(_CONDITIONS))
_FIGURES = (
    r"(?<!\w)\d[\d.,]*(?![a-zA-Z\d])",
    rf"\b(?:all|{_WORDS}) of (?:all |the )?(?:{_WORDS})\b",
    rf"\ball (?:{_WORDS})\b|\b(?:{_WORDS}) million",
)
_FIGURE = re.compile("|".join(_FIGURES))


def unmarked(text: str, figures: Figures) -> Iterator[str]:
    """Words with a figure and no mark behind it, of a page whose tables have been taken out."""
    for pattern in _UNREAD:
        text = pattern.sub("", text)
    for name, value in figures.items():
        text = text.replace(f"{value}<!--{name}-->", "")
    text = re.sub(rf"(?:[^|;.]|[.](?!\s))*?<!--(?:{'|'.join(STATED)})-->", "", " ".join(text.split()))
    for words in re.split(r"\||;|: |[.](?=\s)", text):
        if _FIGURE.search(_HARMLESS.sub("", words)):
            yield words.strip()
