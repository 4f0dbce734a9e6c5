"""Whether each row of a query's result is of one subject's records alone, as far as a parser can see.

Privacy: what a query makes of one subject may depend on nobody else's records (docs/proofs/records.md). We let through
only what is known to keep to that: expressions over one row, joins by the subject id, and aggregates grouped by it that
do not depend on the order of rows. For anything else the owner has to promise it. A parser cannot see what a view does
inside, or how a table came to be: that is the owner's promise too (docs/threat-model.md).
"""

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from commingle.party_agent.errors import SourceRefusedError

_REMEDY = (
    "Leave it out, or make a table in the database and query that. Where you know that each row of the result is of "
    "one person's records alone, whatever the others hold, promise it: --each-row-by-itself."
)
_DIALECTS = {"postgresql": "postgres", "mssql": "tsql", "mariadb": "mysql"}
"""sqlglot's names of databases that SQLAlchemy names otherwise."""
_STRUCTURE = """
    Select From Join Where Group Having Table TableAlias Alias Column Identifier Star Subquery With CTE Union Distinct
    Paren Literal Null Boolean National Interval Var DataType DataTypeParam
"""
_OPERATORS = """
    And Or Xor Not EQ NEQ GT GTE LT LTE NullSafeEQ NullSafeNEQ Is In Between Like ILike Glob RegexpLike RegexpILike
    SimilarTo Escape Add Sub Mul Div IntDiv Mod Neg BitwiseAnd BitwiseOr BitwiseXor BitwiseNot DPipe
    AtTimeZone
"""
_FUNCTIONS = """
    Abs Acos AddMonths Ascii Asin Atan Atan2 Case Cast Cbrt Ceil Chr Coalesce Concat ConcatWs Contains Convert Cos
    Date DateAdd DateDiff DateFromParts DateSub DateTrunc Datetime DatetimeAdd DatetimeDiff DatetimeSub DatetimeTrunc
    Day DayOfMonth DayOfWeek DayOfWeekIso DayOfYear DecodeCase Degrees EndsWith Exp Extract Floor Greatest Hex Hour If
    Initcap IsInf IsNan JSONExtract JSONExtractScalar JSONBExtract JSONBExtractScalar JSONPath JSONPathKey
    JSONPathRoot JSONPathSubscript LastDay Least Left Length Ln Log Lower MD5 Minute Month MonthsBetween Normalize
    Nullif Nvl2 Pad Pi Pow Quarter Radians RegexpExtract RegexpReplace Replace Reverse Right Round SHA SHA2 Second
    Sign Sin SplitPart Sqrt StartsWith StrPosition StrToDate StrToTime StrToUnix Substring SubstringIndex Tan
    TimeStrToDate TimeStrToTime TimeToStr TimeToUnix Timestamp TimestampAdd TimestampDiff TimestampSub TimestampTrunc
    ToChar ToDouble ToNumber Translate Trim Trunc TryCast TsOrDsAdd TsOrDsDiff TsOrDsToDate TsOrDsToTime
    TsOrDsToTimestamp Unicode UnixToTime Upper Week WeekOfYear Year
"""
_AGGREGATES = frozenset({"Avg", "Count", "CountIf", "LogicalAnd", "LogicalOr", "Max", "Min", "Sum"})
_BY_ORDER = frozenset({"Avg", "Sum"})
"""Aggregates whose last digits, for floats, depend on the order of rows."""
_KNOWN = frozenset(f"{_STRUCTURE} {_OPERATORS} {_FUNCTIONS} Filter".split()) | _AGGREGATES
_ARGUMENTS = {
    "Select": frozenset({"expressions", "distinct", "from_", "joins", "where", "group", "having", "with_"}),
    "From": frozenset({"this"}),
    "Join": frozenset({"this", "on", "using", "method", "side", "kind"}),
    "Table": frozenset({"this", "alias", "db", "catalog"}),
    "TableAlias": frozenset({"this", "columns"}),
    "Subquery": frozenset({"this", "alias"}),
    "With": frozenset({"expressions", "recursive"}),
    "CTE": frozenset({"this", "alias"}),
    "Union": frozenset({"this", "expression", "distinct", "with_"}),
    "In": frozenset({"this", "expressions"}),
    **dict.fromkeys(_AGGREGATES, frozenset({"this", "big_int"})),
}
"""What a node may have where more would reach other rows: a table's own joins, a table in place of IN's list."""
_KNOWN_BY_NAME = frozenset({"julianday"})
"""Functions that sqlglot does not know."""
_KINDS_OF_JOIN = frozenset({"", "INNER", "OUTER", "SEMI", "ANTI"})
_OF_PLACE = frozenset({"rowid", "_rowid_", "oid", "rownum", "ora_rowscn", "nextval", "currval"}) | frozenset(
    {"ctid", "xmin", "xmax", "cmin", "cmax", "tableoid"}
)
"""Columns that say where or when a row was stored."""
_READ_IN_TWO_WAYS = re.compile(r"/\*(?:M?!|\+|(?:[^*]|\*(?!/))*?/\*)|--(?![\s-])|[^\S \t\n]|[\0-\x08\x0e-\x1f\x7f]")
"""Comments and white space that one database ends or obeys where another, or the parser, reads on."""
_NO_TABLE = re.compile(r"[./\\:*?]")

Keys = tuple[str, ...] | None
"""Columns that say who a row is about, in lower case; None where none does and each row has to come from one row."""


@dataclass(frozen=True, slots=True)
class _Refusal(Exception):  # noqa: N818 - never leaves this module
    what: str


def require_each_row_by_itself(queries: Iterable[str], database: str, columns: Sequence[str]) -> None:
    """Check queries before a database is asked; `database` is the part of its URL before ://.

    `columns` identify subjects.
    """
    keys, name = tuple(column.lower() for column in columns), database.partition("+")[0]
    for query in queries:
        try:
            statement = _parsed(query, name)
            _require_known(statement, is_duckdb=name == "duckdb")
            _require_names_apart(statement, name)
            _judge(statement, keys, {}, sums_exactly=name != "sqlite")  # whose decimals are floats
        except (_Refusal, RecursionError) as refusal:
            what = refusal.what if isinstance(refusal, _Refusal) else "it is too deep to be followed"
            raise SourceRefusedError(
                f"a row of the query's result may depend on other people's rows: {what}", remedy=_REMEDY
            ) from None


def _dialect(database: str) -> sqlglot.Dialect:
    dialect = _DIALECTS.get(database, database)
    return sqlglot.Dialect.get_or_raise(dialect if sqlglot.Dialect.get(dialect) else None)


def _parsed(query: str, database: str) -> exp.Expr:
    logging.getLogger("sqlglot").setLevel(logging.CRITICAL)  # it would repeat the query
    if _READ_IN_TWO_WAYS.search(query.replace("\r\n", "\n")):
        raise _Refusal("a comment or a character that databases read in different ways")
    try:
        statements = sqlglot.parse(query, read=_dialect(database))
    except (SqlglotError, RecursionError):
        statements = []
    found = [statement for statement in statements if statement is not None]
    if len(found) != 1:
        raise _Refusal("it cannot be read as one SELECT")
    return found[0]


def _require_known(statement: exp.Expr, *, is_duckdb: bool) -> None:
    """Raise unless each part of a query is known to look at one row, but for the parts that `_judge` checks."""
    for node in statement.walk():
        kind, within = type(node).__name__, node.parent
        if isinstance(node, exp.Anonymous) and node.name.lower() in _KNOWN_BY_NAME:
            continue
        if kind not in _KNOWN:
            raise _Refusal(f"it uses {node.name if isinstance(node, exp.Anonymous) else node.key}")
        if isinstance(node, exp.Subquery) and not isinstance(within, exp.From | exp.Join | exp.Union):
            raise _Refusal("a query within an expression")
        if isinstance(node, exp.Select) and not isinstance(within, exp.Subquery | exp.CTE | exp.Union | None):
            raise _Refusal("a query within an expression")
        if isinstance(node, exp.Column) and node.name.lower() in _OF_PLACE:
            raise _Refusal(f"the column {node.name.lower()}, which tells the place of a row")
        if isinstance(node, exp.Star) and any(node.args.values()):
            raise _Refusal("a * that leaves columns out or replaces them")
        _require_plain_table(node, is_duckdb=is_duckdb)
    for node in statement.walk():
        given = {name for name, value in node.args.items() if value}
        for name in sorted(given - _ARGUMENTS.get(type(node).__name__, given)):
            raise _Refusal(f"it uses {node.key} with {name}")


def _require_plain_table(node: Any, *, is_duckdb: bool) -> None:  # noqa: ANN401 - exp.Expr
    if isinstance(node, exp.Table) and not isinstance(node.this, exp.Identifier):
        raise _Refusal("a function that gives a table, such as one that guesses the types of a file")
    if isinstance(node, exp.Table) and is_duckdb and _NO_TABLE.search(node.name):
        raise _Refusal("a file as a table, whose types may be guessed from its cells")
    if isinstance(node, exp.TableAlias) and node.args.get("columns"):
        raise _Refusal("other names for the columns of a table")


def _require_names_apart(statement: exp.Expr, database: str) -> None:
    """Raise unless each name means one thing: we compare them in lower case, a database perhaps otherwise."""
    dialect, spelled = _dialect(database), dict[str, str]()
    for identifier in statement.find_all(exp.Identifier):
        meant = dialect.normalize_identifier(identifier.copy()).name
        if spelled.setdefault(identifier.name.lower(), meant) != meant:
            raise _Refusal("two names that differ in case only: write each in one way")
    queries = [cte.alias.lower() for cte in statement.find_all(exp.CTE)]
    if len(set(queries)) < len(queries):
        raise _Refusal("two queries of one name")
    for with_ in statement.find_all(exp.With):
        names = [cte.alias.lower() for cte in with_.expressions]
        for place, cte in enumerate(with_.expressions):
            if not {table.name.lower() for table in cte.find_all(exp.Table)}.isdisjoint(names[place:]):
                raise _Refusal("a query that refers to itself or to a later one")


def _judge(query: Any, keys: Keys, named: Mapping[str, Any], *, sums_exactly: bool) -> None:  # noqa: ANN401 - exp.Query
    """Raise unless rows of equal keys come from rows of equal keys alone, or each row from one row."""
    if not isinstance(query, exp.Select | exp.Union):
        raise _Refusal("it is no SELECT")
    if any(with_.args.get("recursive") for with_ in query.find_all(exp.With)):
        raise _Refusal("a query that may refer to itself")
    for cte in query.ctes:
        named = {**named, cte.alias.lower(): (cte.this, named)}
    if isinstance(query, exp.Select):
        parts = _parts(query, keys, named, sums_exactly=sums_exactly)
    else:
        left, right = query.this.unnest(), query.expression.unnest()
        if [name.lower() for name in left.named_selects] != [name.lower() for name in right.named_selects]:
            raise _Refusal("a UNION of columns of different names")
        if left.is_star or right.is_star:
            raise _Refusal("a UNION of *, whose columns may stand in different orders")
        parts = [(left, keys, named), (right, keys, named)]
    for part, its_keys, its_names in parts:
        _judge(part, its_keys, its_names, sums_exactly=sums_exactly)


def _parts(query: exp.Select, keys: Keys, named: Mapping[str, Any], *, sums_exactly: bool) -> list[Any]:
    distinct = query.args.get("distinct")
    if distinct is not None and distinct.args.get("on"):
        raise _Refusal("DISTINCT ON, which takes whatever row comes first")
    found = [_expression(query, key) for key in keys or ()]
    _require_groups(query, found, sums_exactly=sums_exactly)
    inner = tuple(one.name.lower() for one in found if isinstance(one, exp.Column))
    whose = inner if found and len(inner) == len(found) else None
    parts = list[Any]()
    for table in _joined(query, whose):
        if isinstance(table, exp.Subquery):
            parts.append((table.this, whose, named))
        elif not table.db and table.name.lower() in named:
            inside, known = named[table.name.lower()]
            parts.append((inside, whose, known))
    return parts


def _expression(query: exp.Select, key: str) -> exp.Expr:
    found = [one.unalias() for one in query.selects if one.alias_or_name.lower() == key]
    found += [exp.column(key) for one in query.selects if one.is_star][:1]
    if len(found) != 1:
        raise _Refusal(f"it does not return one column {key} by that name")
    return found[0]


def _joined(query: exp.Select, keys: Keys) -> list[Any]:
    """The tables of a query. Raises unless each is joined to those before it by what says who a row is about."""
    start = query.find(exp.From)
    tables = [start.this] if start is not None and start.parent is query else []
    for join in query.args.get("joins") or ():
        before = {table.alias_or_name.lower() for table in tables}
        using = {name.name.lower() for name in join.args.get("using") or ()}
        equal = set(_equated(join.args.get("on"), join.this.alias_or_name.lower(), before))
        if join.method or join.kind not in _KINDS_OF_JOIN or keys is None or not set(keys) <= using | equal:
            raise _Refusal("a join that is not one by the subject id's column, of one name on both sides")
        tables.append(join.this)
    return tables


def _equated(condition: Any, table: str, before: set[str]) -> Iterator[str]:  # noqa: ANN401 - exp.Expr or None
    if isinstance(condition, exp.Paren):
        yield from _equated(condition.this, table, before)
    if isinstance(condition, exp.And):
        yield from _equated(condition.left, table, before)
        yield from _equated(condition.right, table, before)
    if isinstance(condition, exp.EQ) and isinstance(condition.left, exp.Column):
        one, other = condition.left, condition.right
        tables = {one.table.lower(), other.table.lower()} if isinstance(other, exp.Column) else set()
        if one.name.lower() == other.name.lower() and table in tables and (tables - {table}) & before:
            yield one.name.lower()


def _require_groups(query: exp.Select, keys: Sequence[exp.Expr], *, sums_exactly: bool) -> None:
    """Raise if a query aggregates, unless a group is of one subject and no row of it counts for its place."""
    group = query.args.get("group")
    outside = [*query.selects, *filter(None, [query.args.get("having")])]
    aggregates = [node for one in outside for node in one.find_all(exp.AggFunc)]
    if group is None and not aggregates and query.args.get("having") is None:
        return
    grouped = [] if group is None else [_resolved(one, query) for one in group.expressions]
    if group is None or any(value for name, value in group.args.items() if name != "expressions"):
        raise _Refusal("an aggregate that is not of one person: group it by the subject id")
    if not keys or not all(any(_same(key, one) for one in grouped) for key in keys):
        raise _Refusal("a GROUP BY without the subject id")
    for one in outside:
        _require_grouped(one.unalias(), grouped)
    for aggregate in aggregates:
        if type(aggregate).__name__ in _BY_ORDER and not _is_exact(aggregate, sums_exactly=sums_exactly):
            kind = "decimal(18,6)" if sums_exactly else "integer"
            raise _Refusal(
                f"{aggregate.key} of what may be floats, whose last digits depend on the order of rows: "
                f"{aggregate.key}(CAST(x AS {kind}))"
            )


def _resolved(one: Any, query: exp.Select) -> Any:  # noqa: ANN401 - exp.Expr
    if isinstance(one, exp.Literal) and one.is_int and 0 < int(one.name) <= len(query.selects):
        return query.selects[int(one.name) - 1].unalias()
    return one


def _require_grouped(node: Any, grouped: Sequence[Any]) -> None:  # noqa: ANN401 - exp.Expr
    """Raise for a column neither in an aggregate nor in the list of groups: some databases take any row's."""
    if isinstance(node, exp.AggFunc | exp.Filter) or any(_same(node, one) for one in grouped):
        return
    if isinstance(node, exp.Column | exp.Star):
        raise _Refusal("a column that is neither grouped by nor aggregated")
    for child in node.iter_expressions():
        _require_grouped(child, grouped)


def _same(one: Any, other: Any) -> bool:  # noqa: ANN401 - exp.Expr
    """Whether two expressions are one; a column is known by its name if one of the two names no table."""
    if isinstance(one, exp.Column) and isinstance(other, exp.Column) and not (one.table and other.table):
        return one.name.lower() == other.name.lower()
    return bool(one.sql().lower() == other.sql().lower())


def _is_exact(aggregate: exp.Expr, *, sums_exactly: bool) -> bool:
    summed = aggregate.this
    if isinstance(summed, exp.Distinct) and len(summed.expressions) == 1:
        summed = summed.expressions[0]
    kinds = exp.DataType.INTEGER_TYPES | ({exp.DataType.Type.DECIMAL} if sums_exactly else set())
    return isinstance(summed, exp.Cast) and summed.to.this in kinds
