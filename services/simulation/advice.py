"""Why releases of a simulation did not beat the mean, and what would: rows that may be looked at, so it can be told."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from commingle.services.planning.public_table import assumed_of_table
from commingle.services.simulation.dataset import StudyTable
from commingle.services.simulation.releases import Planned
from commingle.services.simulation.wide import wide_attributes
from commingle.services.tables.reading import Table
from commingle.shared.forecast.curves import plan
from commingle.shared.forecast.errors import PlanningError
from commingle.shared.forecast.result import Point
from commingle.shared.release.resolve import terms_of


def suggestions(dataset: StudyTable, table: Table, planned: Sequence[Planned]) -> list[str]:
    """What to try where no release beat the mean: by the forecast for these very rows."""
    wide = wide_attributes(dataset, table)
    said = []
    if wide:
        said.append(
            f"98 % of the values of {', '.join(wide)} lie within less than half of the bounds, which a few others set, "
            "and noise is as large as the bounds. Narrow them in schema.json, from what is publicly known, and give "
            "it with --schema: what lies beyond is clipped."
        )
    asked = planned[0]
    try:
        design = terms_of(asked.study)
        assumed = assumed_of_table(table, design, where="the table", target=dataset.target)
        made = plan(design, replace(assumed, public_rows=None))  # these are the rows, not some like them
    except PlanningError:
        return said
    here = f"epsilon {asked.study.epsilon:g}"
    if best := _best(made.mechanisms):
        said.append(
            f"At {here} {best.mechanism} is forecast to explain {best.r_squared:.0%} of {dataset.target} here. "
            f"Try: --mechanism {best.mechanism}"
        )
    elif useful := [point for point in made.over_epsilon if point.useful]:
        said.append(
            f"No mechanism is forecast to be of use here at {here}; {useful[0].mechanism} is from about epsilon "
            f"{useful[0].at:.2g} on. Try: --epsilon {useful[0].at:.2g}"
        )
    else:
        said.append(f"No mechanism is forecast to be of use here near {here}: it needs more people, or other features.")
    return said


def _best(points: Iterable[Point]) -> Point | None:
    return max((point for point in points if point.useful), key=lambda point: point.r_squared, default=None)
