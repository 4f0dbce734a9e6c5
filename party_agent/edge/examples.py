"""Examples of the OpenAPI document. A test sends every one of them, in this order, to an agent of a made-up clinic."""

from typing import Any

SCHEMA: list[dict[str, Any]] = [
    {"kind": "numeric", "name": "age", "lower": 18, "upper": 100, "unit": "years"},
    {"kind": "numeric", "name": "glucose", "lower": 2, "upper": 30, "unit": "mmol/l", "missing": "indicator"},
    {"kind": "binary", "name": "emergency", "levels": ["no", "yes"]},
]
CSV_ROWS = "patient,age,glucose,emergency\np1,54,5.8,no\np2,71,,yes\n"
JSON_ROWS = (
    '{"patient": "p1", "age": 54, "glucose": 5.8, "emergency": "no"}\n'
    '{"patient": "p2", "age": 71, "glucose": null, "emergency": "yes"}\n'
)
CLOSE = {"One piece, in place of yesterday's rows": {"pieces": 1}}
DATASET = {
    "Rows that are pushed": {
        "name": "stays",
        "source": {"kind": "pushed"},
        "subject_id": "patient",
        "attributes": SCHEMA,
    },
    "A file": {
        "name": "stays",
        "source": {"kind": "file", "path": "/srv/etl/stays.csv"},
        "subject_id": "patient",
        "attributes": SCHEMA,
    },
    "A query": {
        "name": "stays",
        "source": {
            "kind": "sql",
            "url": "postgresql+psycopg://commingle@db/stays",
            "query": "SELECT patient, age, glucose, emergency FROM stays",
        },
        "subject_id": "patient",
        "attributes": SCHEMA,
    },
}
STUDY = {
    "A linear model over two parties": {
        "study": "Length of stay",
        "purpose": "Which admissions stay long, to plan beds.",
        "requester": "Dr. Adams, Ward 3",
        "ethics_reference": "vote 12/26",
        "target": "length_of_stay",
        "mechanism": "rmgm",
        "epsilon": 1,
        "delta": 1e-5,
        "n": 5000,
        "parties": [
            {"name": "clinic", "dataset": "stays", "attributes": SCHEMA},
            {
                "name": "insurer",
                "dataset": "main",
                "attributes": [{"kind": "numeric", "name": "length_of_stay", "lower": 0, "upper": 30, "unit": "days"}],
            },
        ],
    }
}
NOTE = {"A decision, and whose": {"by": "Dr. Adams", "why": "vote 12/26"}}
REGRESSION = {
    "Glucose by age": {
        "dataset": "stays",
        "target": "age",
        "features": ["emergency"],
        "epsilon": 1,
        "delta": 1e-6,
        "n": 2000,
        "nonce": "5d0f0e2c9be34f7d8a2b7c6e1f4a3b5c6d7e8f90a1b2c3d4e5f60718293a4b5c",
    }
}
