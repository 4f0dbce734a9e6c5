"""From the options of `commingle simulate` to the dataset and the terms of its releases."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from commingle.services.simulation.dataset import StudyTable, cohort
from commingle.services.simulation.preparing import Wanted, prepare
from commingle.services.simulation.releases import Releases
from commingle.shared.documents.presets import release_preset
from commingle.shared.documents.study import RECOMMENDED_MECHANISM
from commingle.shared.documents.terms import AUTO, MechanismName, Projection
from commingle.shared.mechanisms.registry import keyed_by_default, sketched_names

_DEMO_MECHANISMS: tuple[MechanismName, ...] = (RECOMMENDED_MECHANISM, "rmgm")
_EPSILONS = (1.0,)
_DEMO_OVERLAP = 0.8
_DEFAULT_PARTIES = 3


def dataset_from(options: dict[str, Any], *, listed: tuple[str, ...], seed: int) -> StudyTable:
    """The built-in cohort, or the table that is named; `listed` are mechanisms whose subjects are.

    Raises UsageError, TableError, SpecError.
    """
    parties = _parties(options["parties"])
    if options["table"] is None and not isinstance(parties, Path):
        if options["csv_format"] is not None:
            raise click.UsageError(f"{options['csv_format'].options} is about a table: give --table too.")
        for name in ("target", "parties", "features", "subject_id", "id_rule", "common_subjects", "missing", "schema"):
            if options[name] not in (None, (), False):
                raise click.UsageError(f"--{name.replace('_', '-')} needs a table: give --table too.")
        return cohort(seed=seed)
    if options["target"] is None:
        raise click.UsageError("Say with --target which column is to be predicted.")
    if options["missing"] is not None and options["schema"] is not None:
        raise click.UsageError("--missing is for tables without a schema, which says it of each attribute.")
    features = options["features"]
    return prepare(
        Wanted(
            table=options["table"],
            target=options["target"],
            parties=parties,
            features=None if features is None else tuple(name for name in features.split(",") if name.strip()),
            schema=options["schema"],
            subject_id=options["subject_id"] or None,
            id_rules=options["id_rule"] or None,
            common_subjects=options["common_subjects"],
            listed=listed,
            missing=options["missing"] or "midpoint",
            csv_format=options["csv_format"],
        )
    )


def _parties(text: str | None) -> int | Path:
    if text is None:
        return _DEFAULT_PARTIES
    try:
        number = int(text)
    except ValueError:
        return Path(text)
    if number < 1:
        raise click.BadParameter("there must be at least one party", param_hint="--parties")
    return number


def terms_from(options: dict[str, Any]) -> Releases:
    """Mechanisms, budgets and row norm of the releases. Raises UsageError."""
    demo, subjects = options["table"] is None and options["target"] is None, options["subjects"]
    if options["common_subjects"]:
        if subjects == "keyed":
            raise click.UsageError(
                "--common-subjects is for listed subjects: leave it out, as lists of keyed ones may differ."
            )
        subjects = "listed"
    preset = None if options["preset"] is None else release_preset(options["preset"])
    usual = _DEMO_MECHANISMS if demo else (RECOMMENDED_MECHANISM,)
    mechanisms = options["mechanisms"] or (usual if preset is None else preset.mechanisms[:1])
    subjects = subjects if preset is None else preset.subjects
    projection: Projection | None = "sparse" if options["projection"] == "sparse" else None
    if subjects is None and not all(keyed_by_default(mechanism, projection) for mechanism in mechanisms):
        subjects = "listed"  # all releases are of one data set of each party, which is keyed or listed
    with_k = sketched_names()
    if options["k"] is not None and not set(with_k) & set(mechanisms):
        raise click.UsageError(f"--k is the sketch of {', '.join(with_k)}; the others have none.")
    terms = Releases(
        mechanisms=mechanisms,
        epsilons=options["epsilons"] or _EPSILONS,
        delta=options["delta"],
        k=options["k"],
        projection=projection,
        row_norm=options["row_norm"],
        subjects=subjects,
        first_stage_share=None if options["one_stage"] else AUTO,
        preset=preset,
    )
    if options["overlap"] is not None and terms.listed:
        raise click.UsageError(
            f"--overlap is of keyed subjects; those of {' and '.join(terms.listed)} are listed here."
        )
    return replace(terms, overlap=options["overlap"] or (1.0 if terms.listed or not demo else _DEMO_OVERLAP))
