"""`commingle simulate`: a whole consortium on this machine."""

from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from commingle.shared.documents.presets import PRESETS
from commingle.shared.documents.subject_ids import RULE_NAMES, is_id_rule
from commingle.shared.mechanisms import MECHANISMS
from commingle.shared.runtime.cli import A_FOLDER, A_PATH, OpenChoice, changes, emit, refuse_beside, wants_json
from commingle.shared.runtime.csv_format import csv_options


@click.command(
    epilog="""\b
Examples:
  commingle simulate --out demo
  commingle simulate --epsilon 1 --epsilon 10 --out demo
  commingle simulate --table patients.csv --target charges --parties 3 --epsilon 1 --epsilon 10 --out charges
  commingle simulate --preset wu2022 --out plain
  commingle simulate --target charges --parties clinics.json --mechanism moments --mechanism rmgm --out clinics
"""
)
@click.option("--table", type=A_PATH, help="A CSV or Parquet file.  [a built-in cohort]")
@click.option("--target", metavar="COLUMN", help="The column to predict: numeric or with two values.")
@click.option(
    "--parties",
    metavar="N|FILE.json",
    help="The number of members, or a file that says which member holds which column.  [3]",
)
@click.option(
    "--mechanism",
    "mechanisms",
    type=click.Choice(list(MECHANISMS)),
    multiple=True,
    help="The mechanism. Repeatable: one release each.  [moments; for the built-in cohort rmgm beside it]",
)
@click.option(
    "--preset", type=click.Choice(list(PRESETS)), help="Mechanism, noise, kind of data set and scaling of a paper."
)
@click.option(
    "--epsilon",
    "epsilons",
    type=float,
    multiple=True,
    help="Epsilon per member. Repeatable: one release each.  [1]",
)
@click.option("--delta", type=float, default=1e-5, show_default=True, help="Delta per member.")
@click.option("--k", type=int, help="Rows of the rmgm sketch.  [chosen from public figures]")
@click.option(
    "--projection",
    type=click.Choice(["dense", "sparse"]),
    default="dense",
    show_default=True,
    help="How rmgm mixes rows: each row into all k rows of the sketch, or into one.",
)
@click.option("--one-stage", is_flag=True, help="Spend no budget on column sums that scale the rows.")
@click.option("--row-norm", type=float, metavar="C", help="Clip encoded rows to this norm at every member.")
@click.option(
    "--subjects",
    type=click.Choice(["listed", "keyed"]),
    help="listed: all members hold the same people. keyed: each holds its own, and who they are is protected.   "
    "[keyed where the mechanism can, as in a study]",
)
@click.option(
    "--overlap",
    type=click.FloatRange(0, 1, min_open=True),
    metavar="SHARE",
    help="With keyed data sets: each member holds this share of the people, drawn at random.   "
    "[1; for the built-in cohort 0.8]",
)
@click.option("--features", metavar="A,B,C", help="The features.  [all other columns]")
@click.option(
    "--subject-id",
    metavar="COLUMN",
    multiple=True,
    help="The column that identifies people. Repeatable, if several columns together do.  [the row's number]",
)
@click.option(
    "--id-rule",
    type=OpenChoice(RULE_NAMES, is_id_rule),
    multiple=True,
    help="How all members write ids, one rule for each --subject-id.  [exact/1]",
)
@click.option(
    "--common-subjects",
    is_flag=True,
    help="With listed data sets: leave out people whom not all members hold. Without it, agents refuse.",
)
@click.option("--schema", type=A_PATH, help="Public bounds and levels, as JSON.")
@click.option(
    "--missing",
    type=click.Choice(["midpoint", "indicator"]),
    help="Without a schema: missing cells count as the midpoint, or get a column that marks them.  [midpoint]",
)
@csv_options
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the train/test split, never of noise.")
@click.option("--out", type=A_FOLDER, required=True, help="The folder to write the results to.")
@click.option("--keep", is_flag=True, help="Keep the members' and the coordinator's files and logs.")
@changes(dict[str, Any])
def simulate(*, out: Path, seed: int, keep: bool, **options: Any) -> None:  # noqa: ANN401 - click
    """Run a whole consortium on this machine.

    A coordinator and an agent for every member run as processes of their own and talk HTTP. A fifth of the rows is held
    out, and every private fit is judged on it beside the fit without privacy and the mean. The first release is shown
    as soon as it is fitted, before the others are proposed.
    """
    # help needs none of these, and they take seconds to load
    from commingle.services.testing.processes import start_loading  # noqa: PLC0415

    if options["preset"] is not None:
        refuse_beside("--preset", "projection", "one_stage", "row_norm", "subjects", "overlap")
    start_loading()  # and meanwhile load what this process needs
    from commingle.services.simulation.preparing import dataset_from, terms_from  # noqa: PLC0415
    from commingle.services.simulation.progress import open_stages  # noqa: PLC0415
    from commingle.services.simulation.releases import plan_releases  # noqa: PLC0415
    from commingle.services.simulation.report import show  # noqa: PLC0415
    from commingle.services.simulation.run import simulate as run  # noqa: PLC0415

    with suppress(ImportError):  # an extra; its first picture is to be there at once
        import_module("commingle.services.simulation.picture")
    terms = terms_from(options)
    dataset = dataset_from(options, listed=terms.listed, seed=seed)
    planned = plan_releases(dataset, terms)
    with open_stages(as_json=wants_json()) as stages:
        report = run(dataset, planned, out=out, seed=seed, keep=keep, stages=stages, overlap=terms.overlap)
    emit(report, text=lambda console: show(report, console, out=out))
