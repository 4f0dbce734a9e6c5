"""Queries of which a parser sees, or does not see, that each row of the result is of one subject's records alone."""

import subprocess
import sys
from collections.abc import Sequence

import pytest

from commingle.party_agent.errors import SourceRefusedError
from commingle.party_agent.private.queries import require_each_row_by_itself

ALLOWED = [
    "SELECT * FROM t;",
    "SELECT 1 AS id, 'x' AS level",
    "SELECT id, x * 2 AS x FROM s.t WHERE x > 1 AND y IN ('a', 'b') OR z BETWEEN 1 AND 2",
    "SELECT id, CASE WHEN x > 1 THEN 'a' ELSE 'b' END AS c, coalesce(x, 0) AS z, CAST(d AS text) AS d FROM t",
    "SELECT DISTINCT id, x FROM t",
    "SELECT ID FROM t",
    "SELECT id, count(*) AS n, max(x) AS m FROM t GROUP BY id HAVING count(*) > 2",
    "SELECT id, avg(CAST(x AS numeric(9, 2))) AS a FROM t GROUP BY 1",
    "SELECT lower(id) AS id, max(x) AS m FROM t GROUP BY lower(id)",
    "SELECT id, sum(CAST(x AS integer)) FILTER (WHERE y) AS s, count(DISTINCT x) AS n FROM t GROUP BY t.id",
    "SELECT a.id, b.x FROM a JOIN b ON a.id = b.id AND b.y = 1",
    "SELECT a.id, b.x FROM a LEFT JOIN b USING (id) LEFT JOIN c ON (c.id = b.id)",
    "SELECT p.person_id AS id, v.x FROM person p JOIN v ON p.person_id = v.person_id",
    "WITH l AS (SELECT id, max(x) AS x FROM lab GROUP BY id) SELECT p.id, l.x FROM p LEFT JOIN l ON l.id = p.id",
    "SELECT id, x FROM (SELECT max(x) AS x, id FROM t GROUP BY id) AS s",
    "SELECT id, x FROM a UNION ALL (SELECT id, x FROM b)",
    "SELECT id, -- who\r\n\tx /* all * of it */ FROM t -------- the table\n /* end */ /**/",
    "WITH a AS (SELECT id FROM t), b AS (SELECT id FROM a) SELECT a.id FROM a JOIN b USING (id)",
]
REFUSED = {
    "SELECT id, row_number() OVER () AS r FROM t": "window",
    "SELECT id, x - avg(x) OVER (PARTITION BY ward) AS x FROM t": "window",
    "SELECT * FROM t LIMIT 5": "limit",
    "SELECT * FROM t OFFSET 5": "offset",
    "SELECT * FROM t FETCH FIRST 5 ROWS ONLY": "fetch",
    "SELECT * FROM t ORDER BY x": "order",
    "SELECT DISTINCT id COLLATE nocase AS id, x FROM t": "collate",
    "SELECT id COLLATE nocase AS id, max(x) AS m FROM t GROUP BY id COLLATE nocase": "collate",
    "SELECT id FROM (SELECT id FROM t LIMIT 3) AS s": "limit",
    "SELECT DISTINCT ON (id) * FROM t": "tuple|DISTINCT ON",
    "SELECT * FROM t TABLESAMPLE bernoulli(3)": "tablesample",
    "SELECT id, random() AS r FROM t": "rand",
    "SELECT id, now() AS r FROM t": "currenttimestamp",
    "SELECT id, ours(x) AS r FROM t": "ours",
    "SELECT id, unnest(x) AS x FROM t": "explode",
    "SELECT * FROM generate_series(1, 3)": "gives a table",
    "SELECT max(x) AS id FROM t": "not of one person",
    "SELECT id, max(x) AS m FROM t": "not of one person",
    "SELECT id, x FROM t HAVING x > 1": "not of one person",
    "SELECT max(other) AS id FROM t GROUP BY id": "without the subject id",
    "SELECT id, max(x) AS m FROM t GROUP BY ward": "without the subject id",
    "SELECT id, max(x) AS m FROM t GROUP BY ROLLUP (id)": "rollup",
    "SELECT id, x, max(y) AS y FROM t GROUP BY id": "neither grouped by nor aggregated",
    "SELECT id, avg(x) AS a FROM t GROUP BY id": r"avg\(CAST\(x AS decimal",
    "SELECT id, string_agg(x, ',') AS s FROM t GROUP BY id": "groupconcat",
    "SELECT id, array_agg(x) AS s FROM t GROUP BY id": "arrayagg",
    "SELECT upper(id) AS id, x FROM (SELECT max(x) AS x, id FROM t GROUP BY id) AS s": "without the subject id",
    "SELECT a.id FROM a JOIN w ON a.ward = w.ward": "a join that is not",
    "SELECT a.id FROM a JOIN w ON a.id = w.id OR w.x = 1": "a join that is not",
    "SELECT a.id FROM a JOIN b ON a.id < b.id": "a join that is not",
    "SELECT a.id FROM a, b": "a join that is not",
    "SELECT a.id FROM a CROSS JOIN b": "a join that is not",
    "SELECT a.id FROM a NATURAL JOIN b": "a join that is not",
    "SELECT id FROM (a CROSS JOIN b)": "subquery with joins|table with joins",
    "SELECT a.id, c.x FROM a JOIN b JOIN c ON b.ward = c.ward ON a.id = b.id": "table with joins",
    "SELECT a.id, c.x FROM a LEFT JOIN b LEFT JOIN c USING (ward) USING (id)": "table with joins",
    "SELECT a.id, c.x FROM a JOIN (SELECT id, ward FROM b) AS b JOIN c USING (ward) ON a.id = b.id": "with joins",
    "SELECT a.id, c.x FROM a JOIN b, c ON a.id = b.id": "table with joins|a join that is not",
    "SELECT s.t.id, r.t.x FROM s.t JOIN r.t ON r.t.id = r.t.id": "a join that is not",
    "SELECT id FROM a, LATERAL (SELECT max(x) FROM t) AS l": "lateral",
    "WITH l AS (SELECT ward, max(x) AS x FROM lab GROUP BY ward) SELECT id, x FROM p JOIN l USING (ward)": "a join",
    "WITH RECURSIVE r AS (SELECT 1 AS id UNION ALL SELECT id + 1 FROM r) SELECT id FROM r": "refers to itself",
    "WITH RECURSIVE r AS (SELECT id FROM t) SELECT id FROM r": "may refer to itself",
    "WITH r AS (SELECT id FROM t UNION ALL SELECT id FROM r) SELECT id FROM r": "refers to itself",
    "WITH p AS (SELECT id FROM q), q AS (SELECT a.id FROM a JOIN b USING (ward)) SELECT id FROM p": "to a later one",
    "WITH p AS (SELECT id FROM t) SELECT id FROM (WITH p AS (SELECT id FROM u) SELECT id FROM p) AS s": "of one name",
    'WITH "P" AS (SELECT id FROM a JOIN b USING (ward)), p AS (SELECT id FROM t) SELECT id FROM "P"': "in case only",
    'SELECT a."ID" AS id, b.x FROM a JOIN b ON a.id = b.id': "in case only",
    "SELECT id FROM t WHERE id NOT IN (SELECT id FROM optout)": "within an expression",
    "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM optout)": "exists",
    "SELECT id, (SELECT avg(x) FROM t) AS m FROM t": "within an expression",
    "SELECT id FROM t EXCEPT SELECT id FROM u": "except",
    "SELECT id, x FROM a UNION ALL SELECT x, id FROM b": "different names",
    "SELECT * FROM a UNION ALL SELECT * FROM b": "different orders",
    "SELECT id FROM t WHERE ward IN w": "in with field",
    "SELECT id, max(x, y) AS m FROM t GROUP BY id": "neither grouped by nor aggregated|max with expressions",
    "SELECT id, x FROM ONLY t": "table with only",
    "SELECT id FROM t /*! LIMIT 1 */": "read in different ways",
    "SELECT id FROM t /*M!100100 LIMIT 1 */": "read in different ways",
    "SELECT id FROM t /* /* */ LIMIT 1 -- */": "read in different ways",
    "SELECT id FROM t --LIMIT 1": "read in different ways",
    "SELECT id FROM t -- all\r LIMIT 1": "read in different ways",
    "SELECT id FROM t\0 LIMIT 1": "read in different ways",
    "SELECT *, x AS id FROM t": "does not return one column id",
    "SELECT x FROM t": "does not return one column id",
    "SELECT id, ctid FROM t": "place of a row",
    "SELECT id, oid FROM t": "place of a row",
    "SELECT id FROM t FOR UPDATE": "lock",
    "SELECT id, x INTO z FROM t": "into",
    "DELETE FROM t": "delete",
    "SELECT id FROM t; SELECT id FROM u": "one SELECT",
    "'": "one SELECT",
    "SELECT id FROM " + "(" * 3000 + "SELECT id FROM t" + ")" * 3000: "one SELECT|too deep",
}
IN_DUCKDB = {
    "SELECT * FROM read_csv('t.csv')": "gives a table",
    "SELECT * FROM read_csv_auto('t.csv')": "gives a table",
    "SELECT * FROM read_json_auto('t.json')": "gives a table",
    "SELECT * FROM sniff_csv('t.csv')": "gives a table",
    "SELECT * FROM read_xlsx('t.xlsx')": "gives a table",
    "SELECT * FROM 't.csv'": "a file as a table",
    'FROM "t.csv"': "a file as a table",
    "FROM 's3://bucket/t'": "a file as a table",
    "SELECT * FROM t USING SAMPLE 3": "tablesample",
    "SELECT id, max(x) AS x FROM t GROUP BY ALL": "not of one person",
    "SELECT id, first(x) AS x FROM t GROUP BY id": "first",
    "SELECT id, arg_max(x, y) AS x FROM t GROUP BY id": "argmax",
    "SELECT * FROM t QUALIFY row_number() OVER () = 1": "qualify|window",
    "SELECT * REPLACE (x AS id) FROM t": "leaves columns out or replaces",
    "SELECT a.id FROM a ASOF JOIN b ON a.id = b.id AND a.t >= b.t": "a join that is not",
    "PIVOT t ON x USING sum(y)": "pivot",
}


@pytest.mark.parametrize("database", ["postgresql", "postgresql+psycopg", "duckdb"])
@pytest.mark.parametrize("query", ALLOWED)
def test_query_over_the_records_of_one_subject_is_asked(query: str, database: str) -> None:
    require_each_row_by_itself([query], database, ["id"])


@pytest.mark.parametrize(("query", "said"), REFUSED.items(), ids=[query[:60] for query in REFUSED])
def test_query_that_may_look_at_others_is_refused_with_what_it_does(query: str, said: str) -> None:
    with pytest.raises(SourceRefusedError, match=said) as refused:
        require_each_row_by_itself(["SELECT * FROM t", query], "postgresql", ["id"])
    assert "--each-row-by-itself" in refused.value.remedy


@pytest.mark.parametrize(("query", "said"), IN_DUCKDB.items(), ids=list(IN_DUCKDB))
def test_query_that_guesses_types_or_takes_what_comes_first_is_refused(query: str, said: str) -> None:
    with pytest.raises(SourceRefusedError, match=said):
        require_each_row_by_itself([query], "duckdb", ["id"])


@pytest.mark.parametrize(
    ("database", "query", "columns", "is_allowed"),
    [
        ("mssql+pymssql", "SELECT TOP 3 id FROM t", ["id"], False),
        ("mssql", "SELECT [id], ISNULL(x, 0) AS x FROM dbo.t", ["id"], True),
        ("oracle", "SELECT id, NVL(x, 0) AS x FROM t WHERE ROWNUM < 3", ["id"], False),
        ("oracle", "SELECT id, NVL(x, 0) AS x FROM t", ["id"], True),
        ("mariadb+pymysql", "SELECT `id`, IFNULL(x, 0) AS x FROM t", ["id"], True),
        ("sqlite", "SELECT id, julianday(a) - julianday(b) AS days FROM t", ["id"], True),
        ("sqlite", "SELECT id, rowid FROM t", ["id"], False),
        ("sqlite", "SELECT id, sum(CAST(x AS decimal(9, 2))) AS s FROM t GROUP BY id", ["id"], False),
        ("sqlite", "SELECT name, born, max(x) AS m FROM t GROUP BY name", ["name", "born"], False),
        ("sqlite", "SELECT name, born, max(x) AS m FROM t GROUP BY name, born", ["name", "born"], True),
        ("sqlite", "SELECT a.name, a.born FROM a JOIN b ON a.name = b.name", ["name", "born"], False),
        ("unheard-of", "SELECT id FROM t", ["id"], True),
    ],
)
def test_every_database_is_read_in_its_own_words(
    database: str, query: str, columns: Sequence[str], is_allowed: bool
) -> None:
    if is_allowed:
        require_each_row_by_itself([query], database, columns)
        return
    with pytest.raises(SourceRefusedError):
        require_each_row_by_itself([query], database, columns)


@pytest.mark.slow
def test_parser_is_loaded_for_queries_only() -> None:
    known = (
        "import sys, commingle.party_agent.cli, commingle.party_agent.home.datasets\nprint('sqlglot' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", known], capture_output=True, check=True).stdout == b"False\n"
