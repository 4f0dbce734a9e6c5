"""What the pages of papers state: wu2022, wang2018, kalaja2020, public_moment."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import log
from typing import Any

import numpy as np

from tests.docs.figures.data import RHO, Figures, Tables, default_method, filled, mean, percent, read, rows, share

PUBLISHED = ("BGM-OLS", "DGM-OLS", "RMGM-OLS best k")
PRIVATE = ("ObjPert", "OPS", "SSP", "AdaOPS", "AdaSSP")
OURS = "Commingle's AdaSSP"
SHOWN = ("airfoil", "wine", "pol", "elevators", "bike", "kin40k", "keggundirected")


def wu2022() -> tuple[Figures, Tables]:
    found = read("wu2022")
    cells = {(c["n"], c["epsilon"]): c for c in found["synthetic"]}
    means = {key: {name: m["mean"] for name, m in cell["methods"].items()} for key, cell in cells.items()}
    real = {
        (t["table"], c["epsilon"]): {name: m["mean"] for name, m in c["methods"].items()}
        for t in found["real"]
        for c in t["cells"]
    }
    steps = {r["n"]: _steps(before, r) for before, r in pairwise(found["rates"])}
    large = means[1_000_000, 1.0]
    ours, moments, best = "Commingle shrunken", "Commingle moments", "RMGM-OLS best k"
    over = [m[ours] / m[best] for m in means.values()]
    fits = ("OLS", "constant", *PUBLISHED, ours, moments)
    by_default = ("rmgm", "moments")
    proposed = {
        table: [f"{1000 * made[name]['mean']:.3g}" if made[name] else "refused" for name in by_default]
        for table, made in found["as_proposed"].items()
    }
    figures = {
        "times_best": f"{large[best] / large[moments]:.0f}",
        "no_worse": share(value <= 1 for value in over),
        "best_over": f"{1 / min(over):.2f}",
        "measured_over": f"{max(m['Commingle measurement_error'] / m[best] for m in means.values()):.2f}",
        "rmgm_lowest": share(min(PUBLISHED, key=m.__getitem__) == best for m in real.values()),
        "constant_lower": share(m["constant"] < min(map(m.__getitem__, PUBLISHED)) for m in real.values()),
        "shrunken_lower": share(m[ours] < min(map(m.__getitem__, PUBLISHED)) for m in real.values()),
        "shrunken_learns": share(m[ours] < m["constant"] for m in real.values()),
        "moments_lower": share(m[moments] < min(map(m.__getitem__, PUBLISHED)) for m in real.values()),
        "dgm_exponents": f"{steps[1e8][0]:.2f} to {steps[1e12][0]:.2f}",
        "rule_exponent": f"{steps[1e12][1]:.2f}",
        "moments_learns": share(m[moments] < m["constant"] for m in real.values()),
    }
    tables = {
        "synthetic": filled(
            "n | ‖w‖ | BGM | DGM | RMGM, n^(2/3) | RMGM, best k | `measurement_error` | `shrunken` | `moments`",
            "{n:,} | {w:.3f} | {BGM-OLS:.3g} | {DGM-OLS:.3g} | {RMGM-OLS k=n^(2/3):.3g} | {RMGM-OLS best k:.3g}"
            " | {Commingle measurement_error:.3g} | {Commingle shrunken:.3g} | {Commingle moments:.3g}",
            (
                m | {"n": n, "w": cells[n, e]["norm_of_w"]}
                for (n, e), m in means.items()
                if e == 1 and n in {1000, 10_000, 100_000, 1_000_000}
            ),
        ),
        "real": rows(
            [
                "table",
                *fits[:2],
                "BGM",
                "DGM",
                "RMGM, best k",
                "`rmgm`",
                "`moments`",
                *(f"`{m}`, by default" for m in by_default),
            ],
            (
                [table, *(f"{1000 * m[name]:.3g}" for name in fits), *proposed[table]]
                for (table, e), m in real.items()
                if e == 1
            ),
        ),
    }
    return figures, tables


def classification() -> tuple[Figures, Tables]:
    cells = {(c["table"], c["epsilon"]): c["auc"] for c in read("classification")["cells"]}
    mean = {at: {way: found["mean"] for way, found in auc.items()} for at, auc in cells.items()}
    plain, tables, best = "levels: not private, logistic", "levels: moments, logistic", "paper: RMGM-OLS best k"
    rmgm, moments = "numbers: rmgm, linear", "numbers: moments, linear"
    at_one = {table: m for (table, e), m in mean.items() if e == 1}
    kinds = [f"{form}: not private, " for form in ("numbers", "levels")]
    large = [m for table, m in at_one.items() if table != "superconductor_500"]
    figures = {
        "linear_loses": f"{max(m[f'{kind}logistic'] - m[f'{kind}linear'] for m in large for kind in kinds):.3f}",
        "logistic_loses": f"{max(m[plain] - m[tables] for m in large):.3f}",
        "rmgm_few": f"{at_one['superconductor_500'][rmgm]:.2f}",
        "rmgm_scores": f"{min(m[rmgm] for m in large):.2f} to {max(m[rmgm] for m in large):.2f}",
        "over_paper": share(m[rmgm] > m[best] for m in mean.values()),
        "moments_over": share(m[moments] > m[rmgm] for m in mean.values()),
    }
    return figures, {}


RATED = ("DGM-OLS", "RMGM-OLS k=n^(2/3)", "RMGM-OLS best k", "Commingle moments")


def _steps(before: Mapping[str, Any], r: Mapping[str, Any]) -> list[float]:
    return [log(r["median"][m] / before["median"][m]) / log(r["n"] / before["n"]) for m in RATED]


def wang2018() -> tuple[Figures, Tables]:
    found, his = read("wang2018"), read("wang2018_his_code")["table3"]
    table3 = [{**t, "methods": t["methods"] | h["methods"]} for t, h in zip(found["table3"], his, strict=True)]
    tables = [(t["table"], t["methods"]) for t in table3]
    mse = [{name: m["mse"] for name, m in methods.items()} for _, methods in tables]

    def published(methods: Mapping[str, Any], name: str) -> float:
        return float(methods[name.partition(",")[0]]["published"]["mse"])

    def inside(name: str) -> str:
        return share(m[name]["inside"] for _, m in tables)

    def between(name: str) -> str:
        return share(m[name]["least"] <= published(m, name) <= m[name]["most"] for _, m in tables)

    over = {
        name: [(r["mean_squared_error"][name] / r["mean_squared_error"]["OLS"], r["n"]) for r in found["efficiency"]]
        for name in found["efficiency"][0]["mean_squared_error"]
    }
    rates = _rates_of([r for r in found["bounds"] if r["d"] == 10])
    figures = {
        "inside": share(m[name]["inside"] for _, m in tables for name in ("trivial", "non_private", *PRIVATE)),
        "adassp_inside": inside("AdaSSP"),
        "adassp_text": between("AdaSSP"),
        "adassp_code": between("AdaSSP, his code"),
        "adaops_inside": inside("AdaOPS"),
        "objpert_inside": inside("ObjPert"),
        "objpert_code": inside("ObjPert, his code"),
        "ssp_inside": inside("SSP"),
        "below_adassp": share(m["Commingle"] < m["AdaSSP"] for m in mse),
        "less_than_adassp": percent(1 - mean(m["Commingle"] / m["AdaSSP"] for m in mse)),
        "below_published": share(
            m["Commingle"]["mse"] < min(published(m, name) for name in PRIVATE) for _, m in tables
        ),
        "below_trivial": share(m["Commingle"] < m["trivial"] for m in mse),
        "adassp_below_trivial": share(m["AdaSSP"] < m["trivial"] for m in mse),
        "two_adassp": _over_older(found["over_epsilon"], "AdaSSP"),
        "two_adaops": _over_older(found["over_epsilon"], "AdaOPS"),
        "two_ours": share(
            c["mse"]["Commingle"] < 1.005 * min(c["mse"][name] for name in PRIVATE)
            for t in found["over_epsilon"]
            for c in t["cells"]
        ),
        "rates_d": _columns_exponents(found["bounds"]),
        "ends_one": ", ".join(f"{over[f'{name}, ε = 1'][-1][0]:.2f}" for name in ("AdaSSP", "AdaOPS", "SSP")),
        "ends_tenth": ", ".join(f"{over[f'{name}, ε = 0.1'][-1][0]:.0f}" for name in ("AdaSSP", "AdaOPS", "SSP")),
        "rates_n": _exponents(rates, 0),
        "rates_epsilon": _exponents(rates, 1),
        "ops_epsilon": f"{rates['OPS'][1]:.2f}",
        **{f"ours_{what}": f"{rates[OURS][i]:.2f}" for i, what in enumerate(("n", "epsilon"))},
        "ours_one": f"{over[f'{OURS}, ε = 1'][-1][0]:.2f}",
        "ours_tenth": f"{over[f'{OURS}, ε = 0.1'][-1][0]:.1f}",
        "rows_last": f"{found['efficiency'][-1]['n'] / 1e6:.0f} million rows",
        "twice_adassp": _twice(over["AdaSSP, ε = 1"]),
        "twice_ours": _twice(over[f"{OURS}, ε = 1"]),
        "default": default_method(*SHOWN),
    }
    return figures, {
        "table3": filled(
            "table | n | trivial | least squares | AdaSSP, ours | published | AdaSSP, his code | Commingle",
            "{table} | {n:,} | {trivial[mse]:.3g} | {non_private[mse]:.3g} | {AdaSSP[mse]:.3g}"
            " | {AdaSSP[published][mse]:.3g} | {AdaSSP, his code[mse]:.3g} | {Commingle[mse]:.3g}",
            (t | t["methods"] for t in table3 if t["table"] in SHOWN),
        ),
    }


def _over_older(over_epsilon: Sequence[Mapping[str, Any]], name: str) -> str:
    """How much more error than the best of the older methods, at most."""
    cells = [c["mse"] for t in over_epsilon for c in t["cells"]]
    return percent(max(m[name] / min(m[older] for older in ("ObjPert", "OPS", "SSP")) for m in cells) - 1)


def _columns_exponents(bounds: Sequence[Mapping[str, Any]]) -> str:
    """Of d, beside the scale that each bound has: those of all methods but OPS, and OPS's."""
    most = max(c["n"] for c in bounds)
    cells = [c for c in bounds if c["n"] == most and c["epsilon"] == 1]
    at, found = np.log([[np.e, c["d"]] for c in cells]), {}
    for name in PRIVATE:
        units = [c["size"] / (1 if name == "OPS" else c["alpha"]) for c in cells]
        errors = np.log([c["excess"][name] / unit for c, unit in zip(cells, units, strict=True)])
        found[name] = float(np.linalg.lstsq(at, errors, rcond=None)[0][1])
    ops = found.pop("OPS")
    return f"{min(found.values()):.1f} to {max(found.values()):.1f}, OPS {ops:.1f}"


def _left(table: str) -> str:
    """Test MSE over the trivial one of what `auto` takes, keyed, on whole rows."""
    [found] = [r for r in read("users")["tables"] if r["table"] == table]
    return f"{1 - found['keyed']:.3g}"


def _twice(over: Sequence[tuple[float, int]]) -> str:
    """Rows at which an error is twice that of least squares, on straight lines between logarithms."""
    (high, few), (low, many) = next((a, b) for a, b in pairwise(over) if a[0] > 2 >= b[0])
    return f"{few * (many / few) ** (log(high / 2) / log(high / low)) / 1e6:.1f} million"


def _rates_of(found: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    at = np.log([[np.e, r["n"], r["epsilon"]] for r in found])
    errors = {name: np.log([r["excess"][name] for r in found]) for name in found[0]["excess"]}
    return {name: np.linalg.lstsq(at, error, rcond=None)[0][1:].tolist() for name, error in errors.items()}


def _exponents(rates: Mapping[str, Sequence[float]], place: int) -> str:
    found = sorted(rates[name][place] for name in PRIVATE if name != "OPS")
    return f"{found[-1]:.2f} to {found[0]:.2f}"


def kalaja2020() -> tuple[Figures, Tables]:
    found = read("kalaja2020")["tables"]

    def of(number: str) -> Iterator[tuple[str, dict[str, dict[float, float]]]]:
        for t in found:
            title = next(title for title in t["figures"] if title.startswith(number))
            yield t["table"], {name: dict(values) for name, values in t["figures"][title].items()}

    def moved(number: str, name: str, base: str) -> list[float]:
        """How much more error than with the base, in every cell that has both."""
        return [f[name][e] / f[base][e] - 1 for _, f in of(number) for e in f[base] if e in f[name]]

    rows_ada, rows_ssp = (moved("4.3", f"{m}, row", f"{m}, largest") for m in ("AdaSSP", "SSP"))
    ssp = [(e, f["SSP, classical"][e]) for _, f in of("4.1") for e in f["SSP, classical"]]
    pairs = (("4.3", "row"), ("4.3", "largest"), ("4.4", "label too"))
    ahead = [value for number, what in pairs for value in moved(number, f"SSP, {what}", f"AdaSSP, {what}")]
    clipped = {c: moved("4.7", f"c = {c}", "none") for c in ("1", "1.3", "1.6", "2")}
    unclipped = dict(of("4.7"))
    twice = [
        f[f"c = {c}"][e] / unclipped[t][f"c = {c}"][e] - 1 for t, f in of("4.8") for c in clipped for e in f["none"]
    ]
    plain = {t: f["not private"] for t, f in of("4.1")}
    ours = dict(of("At our"))
    tenth = [
        1 - (f["Commingle, row"][0.1] - plain[t][0.1]) / (f["AdaSSP, row"][0.1] - plain[t][0.1])
        for t, f in ours.items()
    ]
    label = moved("4.4", "AdaSSP, label too", "AdaSSP, rows alone")
    bare = [f["not private, label too"][0.1] / f["not private, rows alone"][0.1] - 1 for _, f in of("4.4")]
    figures = {
        "ssp_tenth": share(value > 1 for e, value in ssp if e == 0.1),
        "ssp_one": share(value > 1 for e, value in ssp if e >= 1),
        "classical_most": percent(max(moved("4.2", "classical", "published"))),
        "analytic_less": percent(-min(moved("4.2", "analytic", "published"))),
        "rows_adassp": share(value < 0 for value in rows_ada),
        "rows_ssp": share(value < 0 for value in rows_ssp),
        "rows_most": percent(-min(rows_ada)),
        "label_worst": percent(max(label)),
        "label_best": percent(-min(label)),
        "split_most": f"{100 * max(map(abs, moved('4.5', 'after', 'before'))):.1f} %",
        "intercept_most": percent(max(moved("4.6", "with", "without"))),
        "coefficients": share(
            f["per_row_with_label"][e] < min(f["maximum"][e], f["maximum, c = 1.6"][e])
            for _, f in of("Section 3.3.3")
            for e in f["maximum"]
            if e >= 0.3
        ),
        "label_bare": share(value > 0 for value in bare),
        "clip_helps": share(
            min(v / f["none"][e] for c in clipped for e, v in f[f"c = {c}"].items()) < 0.95 for _, f in of("4.7")
        ),
        "twice_worst": percent(max(twice)),
        "twice_best": percent(-min(twice)),
        "ahead": share(value > 0 for value in ahead),
        "removed_least": percent(min(tenth)),
        "removed_most": percent(max(tenth)),
        "default": default_method(*(t["table"] for t in found)),
    }
    shown, methods = (0.1, 1.0), ("AdaSSP", "Commingle")
    return figures, {
        "side": rows(
            ["table", *(f"{m}, ε = {e:g}" for e in shown for m in methods), "`auto`, keyed, ε = 1"],
            ([t, *(f"{f[f'{m}, row'][e]:.3g}" for e in shown for m in methods), _left(t)] for t, f in ours.items()),
        ),
    }


def public_moment() -> tuple[Figures, Tables]:
    found = read("public_moment")
    cells: dict[str, dict[tuple[float, int], dict[str, float]]] = {}
    for number in ("1", "4", "4, without row norm"):
        for r in found["figures"][number]:
            cells.setdefault(number, {}).setdefault((r["rho"], r["n"]), {})[r["method"]] = r["median"]
    private, paper, tight, ours = (
        "DP-OLSE, private radii",
        "DP-PMTOLSE, published",
        "DP-PMTOLSE, tight",
        "DP-PMTOLSE, Commingle",
    )
    one, wine, plain = (cells[number] for number in ("1", "4", "4, without row norm"))

    def span(over: str, under: str, *, of: Iterable[Mapping[str, float]]) -> list[float]:
        return sorted(m[over] / m[under] for m in of)

    gain, closer, both = (span(a, b, of=one.values()) for a, b in ((private, paper), (paper, tight), (ours, tight)))
    order = [n for rho, n in one if rho == 2 and one[10, n][private] > one[2, n][paper]]
    stable: dict[tuple[int, float], dict[str, Any]] = {}
    for r in found["stability"]:
        stable.setdefault((r["n"], r["rho"]), {})[r["method"]] = r
    figures = {
        "transform": f"{gain[0]:.1f} to {gain[-1]:.1f}",
        "tight": f"{closer[0]:.1f} to {closer[-1]:.1f}",
        "both": f"{100 * (1 - both[-1]):.0f} to {percent(1 - both[0])}",
        "order_from": f"{min(order):,}",
        "wine_paper": f"{wine[5, 4649][paper]:.3f}",
        "wine_base": f"{wine[500, 4649][private]:.2f}",
        "wine_ours": f"{wine[5, 4649][ours]:.3f}",
        "scores_paper": f"{plain[5, 4649][paper]:.2f}",
        "scores_base": f"{plain[500, 4649][private]:.2f}",
        "scores_ours": f"{plain[5, 4649][ours]:.2f}",
        "stable_two": f"{min(n for (n, rho), m in stable.items() if rho == 2 and m[paper]['met'] == 1):,}",
        "stable_ten": f"{min(n for (n, rho), m in stable.items() if rho == 10 and m[paper]['met'] == 1):,}",
        "conditions": ", ".join(f"{c['condition_after']:.3g}" for c in found["conditions"]),
        "least_eigenvalues": ", ".join(f"{c['least_after']:.3g}" for c in found["conditions"]),
        "default": default_method("winequality_white"),
    }
    shown = (private, paper, tight, ours)
    return figures, {
        "one": filled(
            f"{RHO} | n | {' | '.join(shown)}",
            "{rho:g} | {n:,} | " + " | ".join(f"{{{name}:.3g}}" for name in shown),
            (
                m | {"rho": rho, "n": n}
                for (rho, n), m in sorted(one.items(), key=lambda cell: cell[0][::-1])
                if n in {3000, 3500, 10_000}
            ),
        ),
    }
