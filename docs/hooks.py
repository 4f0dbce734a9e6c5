# ruff: noqa: INP001 - read by mkdocs, not a package
"""What the site shows beside the pages of this folder: OpenAPI, changelog, contributing, documents, errors, tables."""

import ast
import csv
import importlib
import json
import pkgutil
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from commingle.shared import documents, mechanisms, release
from commingle.shared.documents.model import WireModel

ROOT = Path(__file__).parents[1]
PACKAGES = ("shared", "party_agent", "coordinator", "services")
LIMITS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "above {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "below {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
}
Node = dict[str, Any]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that no Markdown file of this folder holds."""
    for name in ("CHANGELOG", "CONTRIBUTING"):
        text = (ROOT / f"{name}.md").read_text().replace("](docs/", "](")
        files.append(File.generated(config, f"{name.lower()}.md", content=text))
    for path in sorted((ROOT / "docs" / "openapi").glob("*.json")):
        text = "\n".join(_api(json.loads(path.read_text()), path.name))
        files.append(File.generated(config, f"openapi/{path.stem}.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - mkdocs names them
    """Links to OpenAPI documents lead to their pages; documents, errors and tables stand at their marks."""
    if "<!-- documents -->" in markdown:
        markdown = markdown.replace("<!-- documents -->", "\n".join(_documents()))
    markdown = re.sub(r"<!-- codes ?([a-z ]*?) ?-->", lambda mark: _codes(mark[1]), markdown)
    if "<!-- errors -->" in markdown:
        markdown = markdown.replace("<!-- errors -->", _error_tree())
    if "<!-- tables -->" in markdown:
        markdown = markdown.replace("<!-- tables -->", _tables())
        markdown = markdown.replace("](../benchmarks/tables.csv)", "](#sources-licences-and-checksums)")
    return re.sub(r"(\]\(openapi/[\w-]+)\.json\)", r"\1.md)", markdown)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:  # noqa: ARG001 - mkdocs names them
    """Refuse a page that would ask another host for a part of itself."""
    if found := re.search(r'<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)="(?:https?:)?//[^"]*"', output):
        raise PluginError(f"{page.file.src_uri} asks another host: {found[0]}")
    return output


def _api(document: Node, name: str) -> Iterator[str]:
    """One page: operations by path, then every named body."""
    schemas = dict(document["components"].get("schemas", {}))
    yield f"# {document['info']['title']}\n\n{document['info'].get('description', '')}\n"
    yield f"The service serves this as `/openapi.json`; [{name}]({name}) is the same file. What the answers mean is in"
    yield "[the protocol](../protocol.md), and every problem document in [errors](../errors.md).\n"
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            yield from _operation(f"{method.upper()} {path}", operation, schemas)
    yield from ["## Bodies\n"] * bool(schemas)
    for title, schema in sorted(schemas.items()):
        yield f"### {title}\n\n{_listed(schema.get('description', ''))}\n"
        yield from _fields(schema)


def _listed(docstring: str) -> str:
    """The attributes that a docstring describes as a list."""
    text, _, attributes = docstring.partition("\nAttributes:\n")
    return text + re.sub(r"^ {4}(\w[\w, ]*):", r"\n* `\1`:", attributes, flags=re.MULTILINE)


def _operation(title: str, operation: Node, schemas: dict[str, Node]) -> Iterator[str]:
    """Parameters, body and answers of one operation; bodies that it defines for itself are added to the schemas."""
    yield f"## `{title}`\n\n{operation.get('description', '')}\n"
    if parameters := operation.get("parameters"):
        yield "| parameter | in | |\n|---|---|---|"
        for given in parameters:
            optional = _optional(given["schema"], required=given.get("required", False))
            yield f"| `{given['name']}`{optional} | {given['in']} | {_kind(given['schema'])} |"
        yield ""
    for kind, schema in _contents(operation.get("requestBody", {}), schemas):
        yield f"**Body** `{kind}`: {_kind(schema)}\n"
        yield from _fields(schema)
    for status, answer in operation["responses"].items():
        bodies = [f"`{kind}` {_kind(schema)}" for kind, schema in _contents(answer, schemas)]
        if status != "default":  # a problem document, everywhere
            yield f"**{status}** {', '.join(bodies) or answer['description']}\n"


def _contents(body: Node, schemas: dict[str, Node]) -> list[tuple[str, Node]]:
    contents = [(kind, content.get("schema", {})) for kind, content in body.get("content", {}).items()]
    for _, schema in contents:
        schemas.update(schema.get("$defs", {}))
    return contents


def _fields(schema: Node) -> Iterator[str]:
    """The properties as a table; what is a word or a list is one line."""
    if "properties" in schema:
        yield "| field | |\n|---|---|"
        for name, field in schema["properties"].items():
            optional = _optional(field, required=name in schema.get("required", []))
            about = f": {field['description']}" if "description" in field else ""
            yield f"| `{name}`{optional} | {_kind(field)}{about} |"
        yield ""
    elif schema.get("type", "object") != "object":
        yield f"{_kind(schema)}\n"


def _optional(schema: Node, *, required: bool) -> str:
    if required:
        return ""
    default = schema.get("default")
    return ", optional" if default is None else f", default `{json.dumps(default)}`"


def _kind(schema: Node) -> str:
    """A schema in words, with its limits."""
    limits = "".join(f", {words.format(schema[key])}" for key, words in LIMITS.items() if key in schema)
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        words = f"[{name}](#{name.lower()})"
    elif choices := schema.get("anyOf", schema.get("oneOf", schema.get("allOf"))):
        words = " or ".join(dict.fromkeys(_kind(choice) for choice in choices))
    elif "const" in schema or "enum" in schema:
        words = ", ".join(f"`{json.dumps(value)}`" for value in schema.get("enum", [schema.get("const")]))
    elif schema.get("type") == "array":
        items = schema.get("prefixItems", [schema.get("items", {})])
        words = "array of " + " and ".join(dict.fromkeys(_kind(item) for item in items))
    elif isinstance(schema.get("additionalProperties"), dict):
        words = f"object of {_kind(schema['additionalProperties'])}"
    else:
        words = str(schema.get("format", schema.get("type", "anything")))
        limits += f", matching `{schema['pattern']}`" if "pattern" in schema else ""
    return words + limits


def _documents() -> Iterator[str]:
    """Every model that has a type of its own, and the models within: description and fields."""
    for package in (documents, release, mechanisms):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    schemas: dict[str, Node] = {}
    for model in _models(WireModel):
        if str(getattr(model.model_fields.get("type"), "default", "")).startswith("commingle/"):
            schema = model.model_json_schema()
            schemas |= {model.__name__: schema} | schema.get("$defs", {})
    for title, schema in sorted(schemas.items()):
        yield f"## {title}\n\n{_listed(schema.get('description', ''))}\n"
        yield from _fields(schema)


def _models(base: type[WireModel]) -> Iterator[type[WireModel]]:
    for derived in base.__subclasses__():
        yield derived
        yield from _models(derived)


def _tables() -> str:
    """The lines of benchmarks/tables.csv, each with the repositories of its sources."""
    columns = ["name", "rows", "features", "target", "transform", "licence", "sha256"]
    lines = [f"| {' | '.join(columns)} | sources, on GitHub |", "|---" * (len(columns) + 1) + "|"]
    with (ROOT / "benchmarks" / "tables.csv").open(newline="") as file:
        for table in csv.DictReader(file):
            names = dict.fromkeys("/".join(source.split("/")[3:5]) for source in table["sources"].split())
            links = ", ".join(f"[{name}](https://github.com/{name})" for name in names)
            cells = [table[column][:12] if column == "sha256" else table[column] for column in columns]
            lines.append(f"| {' | '.join(cells)} | {links} |")
    return "\n".join(lines)


def _codes(service: str) -> str:
    """Codes that a service answers with, their statuses and meanings; without a service those of commands alone."""
    table = json.loads((ROOT / "docs" / "errors.json").read_text())
    rows = [
        f"| `{code}` | {f'{row[service]} | ' if service else ''}{row['meaning']} |"
        for code, row in table.items()
        if (service in row if service else row.keys() == {"meaning"})
    ]
    heads = ["code", *["HTTP"] * bool(service), "meaning"]
    return "\n".join([f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *rows])


def _error_tree() -> str:
    """Every class under CommingleError with its code, read from the sources."""
    below = defaultdict[str, list[ast.ClassDef]](list)
    for path in sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and node.bases and node.name.endswith("Error"):
                below[ast.unparse(node.bases[0])].append(node)
    return "\n".join(["| class | code |", "|---|---|", *_branch(below, "CommingleError", depth=0)])


def _branch(below: dict[str, list[ast.ClassDef]], base: str, *, depth: int) -> Iterator[str]:
    for node in sorted(below.get(base, []), key=lambda found: found.name):
        public = not node.name.startswith("_")
        if public:
            code = re.search(r"^    code(?:: \S+)? = '(.*)'$", ast.unparse(node), re.MULTILINE)
            yield f"| {'&emsp;' * depth}`{node.name}` | {f'`{code[1]}`' if code else ''} |"
        yield from _branch(below, node.name, depth=depth + public)
