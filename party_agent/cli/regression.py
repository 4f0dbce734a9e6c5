"""`commingle party regress` and `regressions`."""

import json
import os
import secrets
import sys
from collections.abc import Collection, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import click
from rich.console import Console
from rich.table import Column, Table

from commingle.party_agent.edge.client import PartyClient
from commingle.party_agent.errors import ConflictError, NotFoundError
from commingle.party_agent.home.home import Home
from commingle.party_agent.operate.compose import agent_client, home_option
from commingle.party_agent.private.derived import numbers_among
from commingle.party_agent.private.public_rows import public_moments
from commingle.party_agent.private.regression.sums import STABLE
from commingle.party_agent.private.sources import FileSource, open_source
from commingle.party_agent.regression.forecasts import describe
from commingle.party_agent.regression.plan import RegressionPlan, attributes_of, plan_regression, require_unit, rows_of
from commingle.party_agent.wire.answers import RegressionLine, RegressionView
from commingle.shared.documents.model import decode, encode
from commingle.shared.documents.presets import PRESETS, regression_preset
from commingle.shared.documents.regression import (
    AdjacencyName,
    CalibrationName,
    RegressionMethod,
    RegressionRequest,
    RowMapping,
)
from commingle.shared.documents.schema import Attribute, parse_attributes, words_for_missing
from commingle.shared.runtime.cli import A_FILE, NEW_FILE, at_home, changes, emit, names_in, reads, refuse_beside, say
from commingle.shared.runtime.console import coefficients
from commingle.shared.runtime.csv_format import USUAL, CsvFormat, csv_options
from commingle.shared.runtime.errors import SettingsError, UnreachableError
from commingle.shared.runtime.files import write_durably

_METHODS = ["auto", *get_args(RegressionMethod)]
_FOR_EVERYONE = 0o644
_out = click.option("--out", type=NEW_FILE, help="Write the signed document to this file.")


@click.command(
    epilog="\b\nExamples:\n"
    "  commingle party regress --home ./ward --dataset main --n 2000 --target charges --epsilon 1 --out charges.json\n"
    "  commingle party regress --home ./ward --dataset main --n 2000 --target charges --features age,bmi \\\n"
    "    --method adassp --epsilon 0.5\n"
    "  commingle party regress --home ./ward --dataset main --n 2000 --target charges --bounds charges=0:20000 \\\n"
    "    --mapping per_row_with_label --no-intercept --epsilon 1\n"
    "  commingle party regress --home ./ward --dataset panel --target charges --epsilon 1"
)
@home_option
@click.option("--dataset", required=True, help="A registered data set.")
@click.option("--target", required=True, help="The attribute to explain: numeric or binary.")
@click.option(
    "--features", multiple=True, metavar="A,B", help="The attributes that explain the target. Repeatable.  [all others]"
)
@click.option("--preset", type=click.Choice(list(PRESETS)), help="Method, noise and scaling of a paper.")
@click.option("--method", type=click.Choice(_METHODS), default="auto", show_default=True, help="The estimator.")
@click.option(
    "--calibration",
    type=click.Choice(get_args(CalibrationName)),
    help="How noise follows from the budget.  [the method's own]",
)
@click.option("--epsilon", type=float, required=True, help="The epsilon to spend, for the data set's unit.")
@click.option("--delta", type=float, default=1e-6, show_default=True, help="The delta to spend.")
@click.option(
    "--n",
    type=click.IntRange(min=1),
    help="For a keyed data set: a round public figure of how many people it holds.",
)
@click.option(
    "--bounds",
    multiple=True,
    metavar="NAME=LOWER:UPPER",
    help="Clip a numeric attribute to bounds within its registered ones. Repeatable.",
)
@click.option(
    "--mapping",
    type=click.Choice(get_args(RowMapping)),
    default="maximum",
    show_default=True,
    help="Divide no row, each row, or each row and its target by the row's norm.",
)
@click.option("--intercept/--no-intercept", default=True, show_default=True, help="Fit an intercept.")
@click.option("--row-norm", type=float, help="Scale encoded features down to this Euclidean norm.")
@click.option(
    "--label-bound", type=float, default=1.0, show_default=True, help="Clip the encoded target to this bound."
)
@click.option(
    "--public",
    type=A_FILE,
    help="PUBLIC rows with the same columns, CSV or Parquet. Their second moments are published as they are.",
)
@csv_options
@click.option("--yes", is_flag=True, help="Do not ask, even if the forecast is poor or you asked for the same before.")
@_out
@click.option("--replace", "anew", is_flag=True, help="Overwrite an existing file.")
@changes(RegressionView)
def regress(
    *,
    home: Home,
    dataset: str,
    target: str,
    features: tuple[str, ...],
    preset: str | None,
    n: int | None,
    bounds: tuple[str, ...],
    public: Path | None,
    csv_format: CsvFormat | None,
    yes: bool,
    out: Path | None,
    anew: bool,
    **asked: Any,  # noqa: ANN401 - click
) -> None:
    """Publish a private linear regression on this member's own rows.

    Says what it will be worth, spends the budget, and prints coefficients. The signed document in --out can be checked
    by anybody: commingle verify FILE.
    """
    _require_room_for(out, anew=anew)
    with agent_client(home) as agent:  # not held while a person thinks
        found = next((one for one in agent.datasets() if one.name == dataset), None)
    if found is None:
        raise NotFoundError(f"there is no data set {dataset}", remedy="Register it: commingle party datasets add")
    fields = {
        "dataset": dataset,
        "target": target,
        "features": _features(features, target, found.attributes),
        **({} if n is None else {"n": n}),
        "bounds": dict(map(_bounds, bounds)),
        "nonce": secrets.token_hex(32),
        **asked,
    }
    if preset is not None:
        known = regression_preset(preset)
        fields |= (preset_fields := known.fields(n))
        refuse_beside("--preset", *preset_fields)
        if known.public and public is None:
            raise click.UsageError(f"{known.paper} needs public rows: give --public.")
    _require_sensible(target, fields["features"], fields["bounds"])
    request = decode(RegressionRequest, json.dumps(fields).encode())
    require_unit(request, dataset, found.subjects)
    if public is not None:  # after the bounds that they are computed with have been checked
        source = open_source(
            FileSource(path=str(public), **asdict(csv_format or USUAL)), numbers_among(found.attributes, ())
        )
        moments = public_moments(source, *attributes_of(request, found.attributes), rows=rows_of(request))
        request = request.model_copy(update={"public": moments})
    allowed = home.policy().regressions.methods
    with agent_client(home) as agent:
        paid = _asked_before(agent, request)
    plan = plan_regression(request, found.attributes, found.n or 0, among=allowed)
    _tell(plan, again=None if paid is None else _shown_by(paid, home), yes=yes)
    try:
        with agent_client(home) as agent:
            value = agent.regress(request)
    except UnreachableError as error:
        look = f"When the agent runs, look whether it charged this, before you ask again: {_shown_by(request.id, home)}"
        raise UnreachableError(str(error), remedy=look) from None
    _hand_over(value, out, home)


@click.command(
    epilog="\b\nExamples:\n  commingle party regressions --home ./ward\n"
    "  commingle party regressions --home ./ward 4c1f… --out charges.json"
)
@home_option
@click.argument("regression", required=False)
@click.option("--finish", is_flag=True, help="Finish an interrupted regression. It costs nothing more.")
@_out
@reads(RegressionView, unless=("--finish", "--out"), items=tuple[RegressionLine, ...])
def regressions(*, home: Home, regression: str | None, finish: bool, out: Path | None) -> None:
    """List regressions that were paid for, or show one. REGRESSION may be the beginning of its id."""
    with agent_client(home) as agent:
        items = agent.regressions()
        if regression is None:
            emit({"items": items}, text=lambda console: _list(console, items))
            return
        matching = [item.id for item in items if item.id.startswith(regression.rstrip("…."))]
        if len(matching) != 1:
            raise NotFoundError(
                f"{len(matching)} regressions have an id that begins so",
                remedy="List them: commingle party regressions",
            )
        value = agent.regression(matching[0])
        if finish:
            value = agent.regress(decode(RegressionRequest, json.dumps(value.request).encode()))
    _hand_over(value, out, home)


def _features(given: tuple[str, ...], target: str, attributes: tuple[Attribute, ...]) -> tuple[str, ...]:
    known = [attribute.name for attribute in attributes]
    return names_in(given, known) or tuple(name for name in known if name != target)


def _require_sensible(target: str, features: Sequence[str], bounds: Collection[str]) -> None:
    if target in features:
        raise click.UsageError(f"{target} is both target and feature: leave it out of --features.")
    if twice := next((name for name in features if features.count(name) > 1), None):
        raise click.UsageError(f"{twice} is named twice in --features: name it once.")
    if other := next((name for name in bounds if name not in {target, *features}), None):
        raise click.UsageError(f"{other} is neither target nor feature: leave out --bounds {other}=….")


def _bounds(text: str) -> tuple[str, tuple[float, float]]:
    """NAME=LOWER:UPPER; a name may itself contain the signs."""
    name, _, numbers = text.rpartition("=")
    lower, _, upper = numbers.partition(":")
    try:
        return name, (float(lower), float(upper))
    except ValueError:
        raise click.BadParameter(f"{text!r} is not NAME=LOWER:UPPER", param_hint="--bounds") from None


def _require_room_for(out: Path | None, *, anew: bool) -> None:
    if out is not None and out.exists() and not anew:
        raise SettingsError(f"{out} exists", remedy="Give another --out, or --replace.")
    if out is not None and not os.access(out.absolute().parent, os.W_OK):
        raise SettingsError(f"{out} cannot be written", remedy="Nothing was spent. Give an --out that you may write.")


def _asked_before(agent: PartyClient, request: RegressionRequest) -> str | None:
    """The id of a regression that was asked for in the same words and paid for."""
    asked = json.loads(encode(request)) | {"nonce": ""}
    lines = (line for line in agent.regressions() if (line.dataset, line.target) == (request.dataset, request.target))
    return next((line.id for line in lines if agent.regression(line.id).request | {"nonce": ""} == asked), None)


def _shown_by(regression: str, home: Home) -> str:
    return f"commingle party regressions {regression[:12]} {at_home(home.root)}"


def _tell(plan: RegressionPlan, *, again: str | None, yes: bool) -> None:
    task, promise, outlook = plan.task, plan.promise, describe(plan.outlook)
    say(f"{task.method.name}: {plan.reason}.")
    unit = promise.adjacency + ("" if task.privacy.replaces else f"; {plan.replacement_epsilon:.4g} under replace_one")
    on = f"{_about(promise.adjacency)}{task.n} people"
    say(f"Costs epsilon {promise.epsilon:.4g} at delta {promise.delta:g} ({unit}) on {on}. {outlook}")
    if again is not None:
        say(f"You asked for the same before, and paid for it. See it without new costs: {again}")
    is_doubtful = again is not None or (plan.outlook is not None and plan.outlook.poor)
    if is_doubtful and not yes and sys.stdin.isatty() and not click.confirm("Spend it all the same?", err=True):
        raise ConflictError("nothing was spent", remedy="More rows, a larger epsilon, or fewer features.")


def _about(adjacency: AdjacencyName) -> str:
    return "" if adjacency == "replace_one" else "about "


def _hand_over(value: RegressionView, out: Path | None, home: Home) -> None:
    if out is not None and value.document is not None:
        try:
            write_durably(out, encode(value.document), mode=_FOR_EVERYONE)
        except OSError as error:
            elsewhere = f"It is paid for. Write it to another file: {_shown_by(value.id, home)} --out FILE"
            raise SettingsError(f"cannot write {out} ({error.strerror})", remedy=elsewhere) from None
    emit(value, text=lambda console: show_regression(console, value, out))


def _list(console: Console, items: Sequence[RegressionLine]) -> None:
    whole = Column("regression", min_width=12)
    table = Table(whole, "data set", "target", "method", "epsilon", "unit", "state")
    for item in items:
        about = item.id[:12], item.dataset, item.target, item.method, f"{item.epsilon:g}"
        table.add_row(*about, item.charge.unit, item.state)
    console.print(table)


def show_regression(console: Console, value: RegressionView, out: Path | None) -> None:
    result = value.result
    if result is None:
        console.print(f"{value.id[:16]}: {value.state}")
        return
    privacy = result["privacy"]
    n = f"{_about(privacy['adjacency'])}{result['n']}"
    title = f"{result['target']['name']}, n = {n}, {result['method']}"
    found = ((term["label"], term["encoded"], term["original"]) for term in result["coefficients"])
    console.print(coefficients(found, title=title))
    for attribute in parse_attributes(json.dumps([result["target"], *result["features"]]).encode()):
        if words := words_for_missing(attribute):
            console.print(words)
    console.print(
        f"epsilon {privacy['epsilon']:.4g} at delta {privacy['delta']:g} ({privacy['adjacency']}). "
        f"{privacy['guarantee']}"
    )
    console.print("There are no intervals: no method of one member publishes how far off each coefficient may be.")
    for stability in result["published"].get("stability", ()):
        if stability < STABLE:
            console.print(
                f"Not stable: the noise may take up all but little of the least moment (stability {stability:.2g}, "
                f"{STABLE:g} or more are wanted). Single coefficients may be far off."
            )
    if not privacy["exact_noise"]:
        console.print("Noise was drawn in floating point, which the proof does not cover.")
    console.print(f"Regression {value.id}" + (f", signed document in {out}" if out else ""))
