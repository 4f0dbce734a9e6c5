"""What a comment, a message or a page cites is in this repository: page, heading, paragraph, decision, module, test."""

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = (".dev/commingle", "shared", "party_agent", "coordinator", "services", "benchmarks", "tests")
PYTHON = sorted({path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")} - {Path(__file__)})
OTHERS = [
    path
    for path in sorted(
        [*ROOT.glob("*"), *(ROOT / "deploy").rglob("*"), *(ROOT / ".ci").rglob("*"), *(ROOT / "shared").rglob("*.c")]
    )
    if path.is_file()
    and path.suffix in {"", ".toml", ".yml", ".sh", ".conf", ".c"}
    and path.name not in {".git", "mkdocs.yml"}
]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("*.md"))]
PROOFS = [page for page in PAGES if page.parent.name == "proofs"]

PAGE = re.compile(r"(?<![\w/.-])([\w./-]*[\w-]\.md)\b((?:,? ?#[\w-]+)*)(?:,? (?:sections? )?(\d+(?:\.\d+)?)\b)?")
DECISION = re.compile(r"\bADRs? \d+(?:(?:, | and )\d+)*|\bdocs/adr/\d{4}\b")
LINK = re.compile(r"\]\(([^()\s]+)\)")
CODE_FILE = re.compile(
    r"`([\w./-]+/[\w-]+\.(?:py|c|sh|conf|toml|yml)|(?:shared|party_agent|coordinator|services|tests)/[\w/]+)\b(?!\*)"
)
MODULE = re.compile(r"`(?:commingle\.)?((?:shared|party_agent|coordinator|services)(?:\.[A-Za-z_]\w*)+)")
NAMES_IN_FILE = re.compile(r"`((?:shared|party_agent|coordinator|services)/[\w/]+\.py): ([\w., ]+)`")
TEST_NAME = re.compile(r"\btest_\w+[a-z0-9]\b(?!\.\w)")


@cache
def prose(path: Path) -> tuple[tuple[int, str], ...]:
    """Comments and texts of a module, line by line; a lone file name is no citation."""
    source = path.read_text()
    if not any(kind.search(source) for kind in (PAGE, DECISION, MODULE)):
        return ()  # far sooner than to parse it
    comments = [
        (token.start[0], token.string)
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    ]
    texts = [
        part
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.search(r"\s", node.value)
        for part in enumerate(node.value.splitlines(), start=node.lineno)
    ]
    return (*comments, *texts)


def without_urls(text: str) -> str:
    return re.sub(r"\bhttps?://\S+", "", text)


@cache
def anchors(path: Path) -> frozenset[str]:
    """Those of a page's headings, as GitHub and the site make them."""
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    seen: Counter[str] = Counter()
    for heading in re.findall(r"^#+ +(.*?) *$", text, re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        seen[slug] += 1
        if seen[slug] > 1:
            seen[f"{slug}-{seen[slug] - 1}"] += 1
    return frozenset(seen)


@cache
def paragraphs(path: Path) -> frozenset[str]:
    """Numbers of a proof's sections and paragraphs."""
    return frozenset(re.findall(r"^(?:#+ )?(\d+(?:\.\d+)?)[. ]", path.read_text(), re.MULTILINE))


def missing(text: str, *folders: Path) -> Iterator[str]:
    """What of the pages and decisions that a text names is not there, looked for from any of these folders."""
    for name, headings, number in PAGE.findall(without_urls(text)):
        page = next((folder / name for folder in folders if (folder / name).is_file()), None)
        if page is None:
            yield name
            continue
        yield from (f"{name}{found}" for found in re.findall(r"#[\w-]+", headings) if found[1:] not in anchors(page))
        if number and "proofs" in page.parts and number not in paragraphs(page):
            yield f"{name} {number}"
    for found in DECISION.findall(text):
        for number in re.findall(r"\d+", found):
            if not list((ROOT / "docs" / "adr").glob(f"{int(number):04d}-*.md")):
                yield f"ADR {number}"


def missing_modules(text: str) -> Iterator[str]:
    """Dotted names that are no module, and no name in the module before their last part."""
    for name in MODULE.findall(text):
        place = ROOT / name.replace(".", "/")
        within = [place.parent.with_suffix(".py"), place.parent / "__init__.py"]
        named = any(home.is_file() and re.search(rf"\b{place.name}\b", home.read_text()) for home in within)
        if not (named or place.is_dir() or place.with_suffix(".py").is_file()):
            yield name


def lines(path: Path) -> Iterable[tuple[int, str]]:
    return enumerate(path.read_text().splitlines(), start=1)


def told(
    paths: Iterable[Path],
    wrong: Callable[[Path, str], Iterable[str]],
    read: Callable[[Path], Iterable[tuple[int, str]]] = lines,
) -> list[str]:
    """What is wrong in these files, with its place."""
    return [
        f"{path.relative_to(ROOT)}:{line}: {what}"
        for path in paths
        for line, text in read(path)
        for what in wrong(path, text)
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("as docs/design/states.md#ledger, #hash-chain and ADR 9 say (docs/adr/0013); README.md", []),
        ("docs/proofs/sensitivity.md 3.4, and docs/proofs/sensitivity.md,\n2.2", []),
        ("see protocol.md section 4", ["protocol.md"]),
        ("docs/design/states.md#ledger, #room", ["docs/design/states.md#room"]),
        ("docs/proofs/sensitivity.md 3.99", ["docs/proofs/sensitivity.md 3.99"]),
        ("ADRs 1 and 99", ["ADR 99"]),
        ("https://example.org/page.md", []),
    ],
)
def test_what_is_cited_and_missing_is_told(text: str, found: list[str]) -> None:
    assert list(missing(text, ROOT)) == found


def test_module_that_is_named_and_missing_is_told() -> None:
    text = "`commingle.shared.dp.accounting`, `shared.dp.accounting.least_sigma`, `shared.dp.reckoning`"
    assert list(missing_modules(text)) == ["shared.dp.reckoning"]


@pytest.mark.slow
def test_pages_and_decisions_that_code_names_exist() -> None:
    assert told(PYTHON, lambda _, text: missing(text, ROOT), prose) == []
    assert told(OTHERS, lambda _, text: missing(text, ROOT)) == []


def test_pages_and_decisions_that_pages_name_exist() -> None:
    assert told(PAGES, lambda page, text: missing(LINK.sub("]", text), page.parent, ROOT / "docs", ROOT)) == []


def test_links_of_pages_lead_to_files_and_headings_that_exist() -> None:
    def broken(page: Path, text: str) -> Iterator[str]:
        for link in LINK.findall(text):
            name, _, heading = link.partition("#")
            target = (page.parent / name).resolve() if name else page
            if re.match(r"https?:|mailto:", link):
                continue
            if not target.is_relative_to(ROOT) or not target.exists() or (heading and heading not in anchors(target)):
                yield link

    assert told(PAGES, broken) == []


def test_modules_that_code_names_exist() -> None:
    assert told(PYTHON, lambda _, text: missing_modules(text), prose) == []


def test_files_that_pages_name_exist() -> None:
    files = [f"/{path.relative_to(ROOT)}" for path in [*PYTHON, *OTHERS]]

    def absent(_: Path, text: str) -> Iterator[str]:
        for name in CODE_FILE.findall(text):
            if not (ROOT / name).exists() and not any(file.endswith(f"/{name}") for file in files):
                yield name

    assert told((page for page in PAGES if page.name != "CHANGELOG.md"), absent) == []  # which says what was


def test_names_that_proofs_look_for_in_a_file_are_there() -> None:
    found = []

    def absent(_: Path, text: str) -> Iterator[str]:
        for file, names in NAMES_IN_FILE.findall(text):
            found.append(file)
            held = (ROOT / file).read_text()
            yield from (f"{file}: {name}" for name in re.findall(r"\w+", names) if not re.search(rf"\b{name}\b", held))

    assert told(PROOFS, absent) == []
    assert found


def test_tests_that_proofs_name_exist() -> None:
    tests = {name for path in PYTHON for name in re.findall(r"\bdef (test_\w+)", path.read_text())}
    tests |= {path.stem for path in PYTHON}
    assert told(PROOFS, lambda _, text: {*TEST_NAME.findall(text)} - tests) == []


def test_nothing_names_a_path_beside_the_repository() -> None:
    assert told([*PYTHON, *OTHERS, *PAGES], lambda _, text: re.findall(r"\.\./shared.*", text)) == []
