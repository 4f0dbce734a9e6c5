"""What the guides and the pages beside them state of measurements: regression, planning."""

from collections.abc import Iterator
from statistics import median
from typing import Any

from tests.docs.figures.data import Figures, Tables, percent, read, rows, share


def regression() -> tuple[Figures, Tables]:
    _, settings, *_, near_best, regret = read("regression_choice")["tables"]["choice"]["rows"][-1]
    figures = {
        "settings": settings,
        "near_best": near_best,
        "regret": regret,
        "per_row": share(_lower("per_row")),
        "with_label": share(_lower("per_row_with_label")),
    }
    return figures, {}


def users() -> tuple[Figures, Tables]:
    """Two stages and `auto` beside BoostedAdaSSP, as docs/central.md has them."""
    found = read("users")["tables"]
    gains = {
        (part, name): [r[method] - r["boosted_adassp"] for r in found if r["part"] == part]
        for part in ("tuning", "reporting")
        for name, method in (("two_stage", "two_stage"), ("auto", "listed"))
    }
    behind = [r for r in found if r["two_stage"] < r["boosted_adassp"]]
    chosen = [r for r in behind if r["taken"]["listed"] == "two_stage"]
    lost = sorted((r["listed"] - r["keyed"], f"{r['table']} ({r['n']:,})") for r in found)
    figures = {
        "keyed_more": share(less < 0 for less, _ in lost),
        "keyed_lost": ", ".join(name for less, name in reversed(lost) if less > 0.01),
        "boosted_ahead": ", ".join(f"{r['table']} ({r['n']:,})" for r in behind if r not in chosen),
        "two_stage_behind": ", ".join(f"{r['table']} ({r['n']:,})" for r in chosen),
        "behind_most": f"{max(r['boosted_adassp'] - r['two_stage'] for r in chosen):.3f}",
    }
    return figures, {
        "goal": rows(
            ["tables", "method", "at least `boosted_adassp` on", "mean gain", "median", "worst"],
            (
                [
                    part,
                    f"`{method}`",
                    share(gain >= 0 for gain in of),
                    *(f"{value:+.3f}" for value in (sum(of) / len(of), median(of), min(of))),
                ]
                for (part, method), of in gains.items()
            ),
        )
    }


def _lower(mapping: str) -> Iterator[bool]:
    """Whether AdaSSP errs less so than with rows as they are, over noise, intercept, clipping, table and epsilon."""
    for table in read("kalaja2020_combinations")["tables"]:
        found = {
            tuple(c[key] for key in ("mapping", "calibration", "intercept", "c")): dict(c["errors"])
            for c in table["combinations"]
            if c["method"] == "adassp"
        }
        for (name, *rest), errors in found.items():
            if name == mapping:
                plain = found["maximum", *rest]
                yield from (error < plain[epsilon] for epsilon, error in errors.items())


def planning() -> tuple[Figures, Tables]:
    forecast = read("planning")["tables"]
    within: dict[tuple[str, float], dict[int, list[float]]] = {}
    for r in read("planning_samples")["results"]:
        within.setdefault((r["mechanism"], r["epsilon"]), {}).setdefault(r["public_rows"], []).append(r["within"])
    held = {key: [100 * sum(of) / len(of) for of in by.values()] for key, by in within.items()}
    figures = {
        "moments_near": forecast["moments"]["rows"][1][1],
        "rows_near": forecast["rmgm and dgm"]["rows"][1][1],
        "designs": str(sum(int(forecast[name]["rows"][1][1].split(" of ")[1]) for name in ("moments", "rmgm and dgm"))),
        "useful_wrongly": str(sum(int(forecast[name]["rows"][2][1]) for name in ("moments", "rmgm and dgm"))),
        "moments_held": f"{min(held['moments', 1]):.0f} to {percent(max(held['moments', 1]) / 100)}",
        "rmgm_held": "{:.0f}, {:.0f} and {:.0f} %".format(*held["rmgm", 3]),
    }
    encodings = _encodings()
    return figures | encodings[0], encodings[1]


def _encodings() -> tuple[Figures, Tables]:
    cells = read("encodings")["cells"]
    ways = list(dict.fromkeys(way for c in cells for way in c["r_squared"]))
    gains = [c["r_squared"][c["taken"]]["mean"] - c["r_squared"]["as asked"]["mean"] for c in cells]

    def shown(cell: Any, way: str) -> str:
        text = f"{cell['r_squared'][way]['mean']:.3f}" if way in cell["r_squared"] else "-"
        return f"**{text}**" if way == cell["taken"] else text

    figures = {
        "encodings_gain": f"{sum(gains) / len(gains):.3f}",
        "encodings_lost": share(gain < 0 for gain in gains),
        "encodings_worst": f"{-min(gains):.3f}",
    }
    body = ([c["table"], f"{c['n']:,}", *(shown(c, way) for way in ways)] for c in cells if c["epsilon"] == 1)
    return figures, {"encodings": rows(["table", "n", *ways], body)}
