"""What the pages of our own measurements state."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import log, sqrt
from statistics import fmean
from typing import Any

from benchmarks.release_law import study_of
from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.mechanisms.moments.exchange.sizes import exchange_cost
from commingle.shared.release.checks import closed
from tests.docs.figures.data import (
    Figures,
    Tables,
    default_method,
    filled,
    mean,
    percent,
    read,
    rows,
    share,
    transcribed,
)


def central() -> tuple[Figures, Tables]:
    found, peers = read("central"), read("central_peers")

    def cells(kind: str) -> Iterator[tuple[str, float, dict[str, float]]]:
        for t, of_peers in zip(found[kind], peers[kind], strict=True):
            for c, other in zip(t["cells"], of_peers["cells"], strict=True):
                methods = c["methods"] | other["methods"]
                yield t["table"], c["epsilon"], {name: m["median"] for name, m in methods.items()}

    open_fits = ("not private", "public rows only")
    many, single = list(cells("tables")), list(cells("one_column"))

    def lowest(of: Sequence[tuple[str, float, dict[str, float]]], *names: str) -> str:
        best = [min((name for name in m if name not in open_fits), key=m.__getitem__) for _, _, m in of]
        return f"{sum(name in names for name in best)} of {len(best)}"

    adassp, boosted = ("AdaSSP, analytic", "AdaSSP, zCDP"), "BoostedAdaSSP, zCDP"
    thirds, peer = "AdaSSP in thirds, classical", "diffprivlib, row norm"
    cut = [m for t, _, m in many if t == "keggundirected"]
    figures = {
        "boosted_lowest": lowest(many, boosted),
        "adassp_lowest": lowest(many, *adassp),
        "public_lower": share(
            m["public rows only"] < min(v for name, v in m.items() if name not in open_fits) for _, _, m in many
        ),
        "peer_useful": share(min(m[peer], m["diffprivlib, largest sizes"]) < 1 for _, _, m in many),
        "single_near": f"{100 * max(abs(m[peer] / m[adassp[0]] - 1) for _, _, m in single):.1f} %",
        "single_below": share(m["diffprivlib, largest sizes"] < m[adassp[0]] for _, _, m in single),
        "single_under": percent(1 - min(m["diffprivlib, largest sizes"] / m[adassp[0]] for _, _, m in single)),
        "opendp_above": share(min(m["OpenDP, pure"], m["OpenDP, zCDP"]) > m[adassp[0]] for _, _, m in single),
        "default": default_method(*(t["table"] for t in found["tables"])),
        "cut_least": f"{min(v for m in cut for name, v in m.items() if name not in open_fits):.3f}",
        "cut_plain": f"{cut[0]['not private']:.3f}",
    }
    shown = (*open_fits, adassp[0], boosted, thirds, "ObjPert", peer)
    many_rows = ([t, *(f"{m[n]:.3g}" for n in shown)] for t, e, m in many if e == 1)
    return figures, {"many": rows(["table", *shown], many_rows)}


def both_sums() -> tuple[Figures, Tables]:
    sums, later = read("both_sums"), read("later")["cells"]
    product, five = "AdaSSP of the product", "BoostedAdaSSP, T = 5"

    def over(name: str, key: str = "over_base") -> list[float]:
        return [c["methods"][name][key] for c in later]

    means = {c: mean(over(name)) for c, name in (("five", five), ("tukey", "TukeyEM"), ("dd_ssp", "DD-SSP"))}
    figures = {
        **{c: f"{value:.2f}" for c, value in means.items()},
        "product_tuning": percent(1 - sums["tuning"][product]["all"]),
        "product_reporting": percent(1 - sums["reporting"][product]["all"]),
        "boosted_worse": ", ".join(
            f"{c['table']} (ε = {c['epsilon']:g})"
            for c, value, error in zip(later, over(five), over(five, "log_se"), strict=True)
            if log(value) > 2 * error
        ),
    }
    return figures, {
        "sums": rows(
            ["", "tuning tables", "reporting tables"],
            (
                [name, f"{sums['tuning'][name]['all']:.3f}", f"{sums['reporting'][name]['all']:.3f}"]
                for name in ("8/52/40, half beside the diagonal", product, "BoostedAdaSSP of the product")
            ),
        ),
    }


def prediction() -> tuple[Figures, Tables]:
    found, floor = read("stages"), -0.3
    groups: dict[tuple[str, bool], dict[float, list[Any]]] = {}
    for r in found:
        groups.setdefault((r["mechanism"], r["tuning"]), {}).setdefault(r["epsilon"], []).append(r)

    def average(part: Sequence[Mapping[str, float]], stage: str) -> float:
        """Of R², a value below the floor counted as the floor."""
        return sum(max(r[stage], floor) for r in part) / len(part)

    means = {
        key: {e: (average(part, "one"), average(part, "two")) for e, part in by.items()} for key, by in groups.items()
    }
    below = [r for r in found if r["one"] - r["two"] > 0.03]
    printed = {name: table["rows"] for name, table in read("prediction")["tables"].items()}
    figures = {
        "unrelated_lost": printed["rows"][2][3],
        "moments_lost": printed["moments"][1][2],
        "tuning_less": printed["rows"][0][5],
        "reporting_less": printed["rows"][1][5],
        "two_better": share(two > one for by in means.values() for one, two in by.values()),
        "below": f"{len(below)} of {len(found)}",
    }
    epsilons = list(next(iter(groups.values())))
    stages = rows(
        ["mechanism", "half (tables)", *(f"ε = {e:g}" for e in epsilons)],
        (
            [m, f"{'tuning' if tuning else 'reporting'} ({len(groups[m, tuning][epsilons[0]])})"]
            + [f"{one:.3f}, {two:.3f}" for one, two in by.values()]
            for (m, tuning), by in means.items()
        ),
    )
    before = read("prediction")["tables"]["moments"]
    moments = rows(
        [*before["columns"][:5], "mean R², ε = 1", "ε = 0.1"],
        ([*r[:5], *(both.split(", ")[1] for both in r[5:])] for r in before["rows"]),
    )
    return figures, transcribed("prediction") | {"stages": stages, "moments": moments}


CHOSEN_ON = {"airfoil", "bike_hour", "concrete", "elevators", "skillcraft", "winequality_white", "support2"}


def coverage() -> tuple[Figures, Tables]:
    found = read("coverage")["results"]
    warned = {r["table"]: r["least"] for r in found if (r["k"], r.get("epsilon")) in {(338, 3), (91, 3)}}
    silent = [r["silent_mean"] for r in found if r["silent_mean"] is not None]
    cut = [r for r in read("stage_intervals")["covered"] if r["two"] == r["two"]]
    mixed: dict[tuple[Any, ...], dict[str, Any]] = {}
    for r in read("sparse")["results"]:
        mixed.setdefault((r["table"], r["n"], r["k"], r["epsilon"]), {})[r["projection"]] = r
    apart = [m["sparse"]["coverage"] - m["dense"]["coverage"] for m in mixed.values()]
    figures = {
        "silent_least": f"{min(silent):.3f}",
        "silent_most": f"{max(silent):.3f}",
        "nhanes_least": f"{warned['nhanes_bp']:.2f}",
        "diabetes_least": f"{warned['diabetes130']:.2f}",
        "cut_least": f"{min(r['two'] for r in cut):.2f}",
        "cut_below": share(r["two"] < 0.93 for r in cut),
        "bare_least": f"{min(r['uncounted'] for r in cut):.2f}",
        "bare_below": share(r["uncounted"] < 0.93 for r in cut),
        "one_stage": share(r["one"] == r["one"] for r in cut),
        "sparse_mean": f"{sum(apart) / len(apart):.3f}",
        "sparse_least": f"{min(apart):.3f}",
        "sparse_most": f"{max(apart):.3f}",
        "sparse_lines": f"{len(apart)}",
    }
    groups: dict[tuple[bool, str], list[Any]] = {}
    for r in sorted(cut, key=lambda r: (r["table"] not in CHOSEN_ON, r["mechanism"])):
        groups.setdefault((r["table"] in CHOSEN_ON, r["mechanism"]), []).append(r)
    return figures, {
        "cut": rows(
            ["tables", "mechanism", "settings", "coverage", "least", "least without the allowance"],
            (
                [
                    "chosen on" if chosen else "others",
                    mechanism,
                    f"{len(part)}",
                    f"{sum(r['two'] for r in part) / len(part):.3f}",
                    f"{min(r['two'] for r in part):.3f}",
                    f"{min(r['uncounted'] for r in part):.3f}",
                ]
                for (chosen, mechanism), part in groups.items()
            ),
        ),
    }


def spread() -> tuple[Figures, Tables]:
    found = read("spread")["results"]
    listed, keyed = ({r["table_name"]: r for r in found if r["overlap"] == overlap} for overlap in (None, 0.9))
    figures = {
        "spread_mean": f"{mean(r['mean'] for r in found):.3f}",
        "spread_least": f"{min(r['least'] for r in listed.values()):.2f}",
        "spread_alike": f"{min(r['alike_least'] for r in listed.values()):.2f}",
        "spread_seconds": f"{max(r['cpu_seconds'] for r in found):.1f}",
    }
    return figures, {
        "spread": rows(
            ["table", "R²", "held", "keyed, held", "least", "least as if alike", "alike, without noise"],
            (
                [
                    name.replace(": ", ", "),
                    f"{r['r_squared']:.2f}",
                    f"{r['mean']:.3f}",
                    f"{keyed[name]['mean']:.3f}",
                    f"{r['least']:.3f}",
                    f"{r['alike_least']:.3f}",
                    f"{r['rows_least']:.3f}",
                ]
                for name, r in listed.items()
            ),
        ),
    }


WAITED = {
    "`commingle --help`",
    "`commingle simulate --help`",
    "`commingle party serve`, until it listens",
    "`commingle fit`, a small release",
    "`rmgm`, 48 000 rows, 3 members, each release: last approval to publication",
    "`moments`, the same",
}


def results() -> tuple[Figures, Tables]:
    found = read("results")["tables"]
    work = {
        "sparse": "`rmgm`, sparse",
        "dense": "`rmgm`, dense",
        "moments": "`moments`, own block",
        "scikit-learn": "scikit-learn, streamed",
        "pandas": "pandas and scikit-learn",
        "exchange": "`exchange`, three members",
        "MPyC": "MPyC, three members",
    }
    last = {r["work"]: r for r in read("scale")["results"]}
    largest = [r for r in last.values() if r["work"] in work]
    attacks = [[float(cell) for cell in r[2:]] for r in found["attacks"]["rows"]]
    figures = {
        "within_claim": share(demonstrated <= claimed for claimed, _, demonstrated, _ in attacks),
        "broken_found": share(broken > claimed for claimed, _, _, broken in attacks),
        "sampled": _span(float(r[1].removesuffix(" million")) for r in found["noise"]["rows"]),
        "over_opendp": _span(float(r[3]) for r in found["noise"]["rows"]),
        "over_sklearn": _span(float(r[4]) for r in found["learner"]["rows"]),
        "mixing": _span(float(r[4]) for r in found["mixing"]["rows"]),
        "messages": _protected(found["messages"]["rows"]),
        "threads": _span(float(cell) for r in found["threads"]["rows"] for cell in r[1:]),
    }
    waited = (r for r in (found["latency"]["columns"], *found["latency"]["rows"]) if r[0] in WAITED | {""})
    return figures, {
        "latency": rows(*_columns(waited, (0, 2, 3))),
        "attacks": rows(*_columns((found["attacks"]["columns"], *found["attacks"]["rows"]), (0, 1, 2, 4, 5))),
        "scale": filled(
            "work | rows | CPU s | ns a row | peak memory",
            "{work} | {n:,} | {cpu_seconds:.3g} | {each:,.0f} | {peak_megabytes:.0f} MB",
            (r | {"work": work[r["work"]], "each": 1e9 * r["cpu_seconds"] / r["n"]} for r in largest),
        ),
    }


def year() -> tuple[Figures, Tables]:
    found = read("year")
    costs, least = found["costs"], found["results"][0]
    taken = [
        {
            "n": r["releases a year"],
            "days": r["days"],
            "busiest": r["busiest minute"],
            "wait": r["wait, ms"]["p99.9"] / 1e3,
            "longest": r["longest wait, s"],
            "hours": r["hours to publication"]["median"],
            "open": r["open"]["most"],
        }
        for r in found["results"]
    ]
    figures = {
        "year_costs": f"{costs['release'] * 1e3:.0f} ms and {costs['member'] * 1e3:.0f} ms",
        "year_follower": f"{costs['follower'] * 1e6:.0f} microseconds",
        "year_over": _span(round(over, 2) for over in found["measured over the line"].values()),
        "year_idle": f"{least['waiting agents take']:.0%}".replace("%", " %"),
        "year_requests": f"{100 * least['requests take']:.1f} %",
        "year_after": f"{least['seconds after approval']['median']:.0f} s",
        "year_hours": f"{least['hours to publication']['p99'] / 24:.0f} days",
    }
    heads = "releases a year | days | busiest minute | wait, p99.9 | longest wait | to publication, median | most open"
    each = "{n:,} | {days:g} | {busiest:.0%} | {wait:.1f} s | {longest:.1f} s | {hours:.0f} hours | {open:,}"
    return figures, {"year": filled(heads, each, taken)}


def _columns(table: Iterable[Sequence[str]], kept: Sequence[int]) -> tuple[list[str], list[list[str]]]:
    heading, *body = ([row[i] for i in kept] for row in table)
    return heading, body


def _protected(found: Iterable[Sequence[str]]) -> str:
    [(with_protection, without)] = {(f"{float(r[3]):g}", r[4]) for r in found}
    return f"{with_protection}, and {without} without their protection"


def _span(values: Iterable[float]) -> str:
    found = sorted(values)
    return f"{found[0]:g} to {found[-1]:g}"


def moments_cost() -> tuple[Figures, Tables]:
    found = read("moments-cost")["tables"]
    proved = {found["exchange"]["rows"][i - 1][0]: r for i, r in enumerate(found["exchange"]["rows"]) if i % 2}
    agents, coordinator, learner, *_, whole = (row[1].strip("*") for row in found["consortium"]["rows"])
    figures = {
        "consortium": f"{float(whole) - float(learner):.1f}",
        "agents": " and ".join(agents.rsplit(", ", 1)),
        "coordinator": coordinator,
        "agent_memory": found["consortium"]["rows"][0][2],
        "seconds": proved["100,000, 3 x 10"][5].strip("*"),
        "megabytes": proved["100,000, 3 x 10"][6],
        "within_noise": share(abs(float(r[3])) <= 2 * float(r[4]) for r in found["accuracy"]["rows"]),
        "variance": " ± ".join(found["variance"]["rows"][-1][2:]),
        "forward": f"{float(found['transforms']['rows'][0][2]) / float(found['transforms']['rows'][2][2]):.1f}",
        "backward": f"{float(found['transforms']['rows'][0][3]) / float(found['transforms']['rows'][2][3]):.1f}",
    }
    adult = read("adult")
    release, units, learner = adult["release"], adult["unit"], adult["learner"]
    fetched, drawn = learner["fetch, verify, table"], learner["synthetic rows"]
    figures |= {
        "adult_rows": f"{adult['rows']:,}",
        "adult_columns": f"{adult['columns']}",
        "adult_megabytes": f"{release['megabytes']:.0f} MiB",
        "adult_unit": f"{sum(units) / len(units):.2f}",
        "adult_release": f"{release['cpu_seconds']:.1f}",
        "adult_rows_drawn": f"{drawn['cpu_seconds']:.1f}",
        "adult_clock": f"{release['seconds'] + fetched['seconds'] + drawn['seconds']:.0f}",
    }
    exchange = (found["exchange"]["columns"], *found["exchange"]["rows"])
    return figures, {"exchange": rows(*_columns(exchange, (0, 1, 5, 6, 7)))}


def keyed() -> tuple[Figures, Tables]:
    """Buckets as the product chooses them."""

    def chosen(n: int, members: int, columns: int) -> list[str]:
        names = [NumericAttribute(name=f"x{i}", lower=-1, upper=1) for i in range(members * columns)]
        sizes = [columns] * members
        low, one, high = (
            closed(study_of(names, sizes, n, epsilon, mechanism="moments", subjects="keyed"))
            for epsilon in (0.3, 1, 10)
        )
        for_each = ", ".join(f"{(terms.buckets or 0) / n:g}" for terms in (low, one, high))
        seconds = exchange_cost(one.table_rows, one.widths, proved=True).seconds
        return [f"{n:,}", f"{members} x {columns}", for_each, f"{seconds:.0f}"]

    sizes = ((1_500, 3, 4), (38_000, 3, 4), (100_000, 3, 10), (1_000_000, 3, 10))
    head = ["people", "members x columns", "buckets for each", "seconds of the exchange at epsilon 1"]
    return {}, transcribed("keyed") | {"buckets": rows(head, (chosen(*size) for size in sizes))}


def whitening() -> tuple[Figures, Tables]:
    found = read("whitening")["tables"]["whitening"]["rows"]
    cells = [(r[:4], [[float(v) for v in cell.split(", ")] for cell in r[4:]]) for r in found]
    shrunken = [(key, values) for key, values in cells if key[3] == "shrunken"]
    figures = {
        "beats_plain": share(white[1] > plain[1] for _, (plain, _, white) in shrunken),
        "beats_norm": share(white[1] > norm[1] for _, (_, norm, white) in shrunken),
        "norm_most": f"{max(white[1] - norm[1] for _, (_, norm, white) in shrunken):.2f}",
        "norm_least": f"{min(white[1] - norm[1] for _, (_, norm, white) in shrunken):.2f}",
    }
    return figures, {}


def odds_ratios() -> tuple[Figures, Tables]:
    found = read("odds_ratios")["results"]
    binary = [r for r in found if r["family"] == "binomial"]
    listed, keyed = ([r for r in binary if (r["overlap"] is None) is so] for so in (True, False))
    others, bike = [r for r in found if r["family"] != "binomial"], [r for r in keyed if r["table_name"] == "bike"]
    of_rows = "on the rows"
    held = {name: [r["population"] for r in others if r["family"] == name] for name in ("poisson", "ordinal")}
    figures = {
        **{name: f"{min(values):.3f} to {max(values):.3f}" for name, values in held.items()},
        "equations": f"{min(r['equations'] for r in others if r['family'] == 'ordinal'):.3f}",
        "keyed_mean": f"{fmean(r['population'] for r in keyed):.3f}",
        "keyed_least": f"{min(r['population'] for r in keyed):.2f}",
        "keyed_most": f"{max(r['population'] for r in keyed):.2f}",
        "bike": f"{fmean(r['population'] for r in bike):.2f}",
        "bike_warned": f"{100 * fmean(r['warned'] for r in bike):.0f} %",
        "odds_least": f"{min(r['releases'] for r in keyed)}",
        "auc_one": f"{max(r['rows_auc'] - r['auc'] for r in keyed if r['overlap'] == 1 and r['epsilon'] == 1):.3f}",
        "auc_three": f"{max(r['rows_auc'] - r['auc'] for r in keyed if r['overlap'] == 1 and r['epsilon'] == 3):.3f}",
    }
    errors, areas = "{standard_error:.3f} | {rows_standard_error:.3f}", "{auc:.3f} | {rows_auc:.3f}"
    return figures, {
        "odds": filled(
            f"ε | n | weight | table | population | standard error | {of_rows} | AUC | {of_rows} | said",
            "{epsilon:g} | {n:,} | {weight} | {table:.3f} | {population:.3f} | "
            f"{errors} | {areas} | {{said_auc:.3f}}",
            ({"weight": 1, **r} for r in listed),
        ),
        "keyed": filled(
            f"table | coefficients | population | standard error | {of_rows} | AUC | {of_rows}",
            f"{{table_name}} | {{coefficients}} | {{population:.3f}} | {errors} | {areas}",
            (r for r in keyed if r["overlap"] == 0.9 and r["epsilon"] == 1),
        ),
    }


def rates() -> tuple[Figures, Tables]:
    found, moved = read("rates")["results"], [each["together"] for each in read("rates")["together"]]

    def shown(r: dict[str, Any], kind: str) -> list[str]:
        return ["" if r.get(f"{kind}_{of}") is None else f"{r[f'{kind}_{of}']:.3f}" for of in ("table", "population")]

    def line(r: dict[str, Any]) -> list[str]:
        kinds = ([*shown(r, kind), f"{r[kind]:.0f}"] for kind in ("unmarked", "marked"))
        return [r["people"], f"{r['epsilon']:g}", *(each for kind in kinds for each in kind), *shown(r, "intercept")]

    strong, usual = ([r for r in found if ("strongly" in r["people"]) is so] for so in (True, False))

    def held(kind: str, lines: Sequence[dict[str, Any]] = usual) -> str:
        return f"{sum((r[f'{kind}_population'] or 0) * r[kind] for r in lines) / sum(r[kind] for r in lines):.3f}"

    lines = [r["unmarked_population"] for r in usual if r["unmarked"] >= 50]
    named, others = ([r for r in usual if (r["intercept_marked"] == 1) is so] for so in (True, False))
    figures = {
        "rates_unmarked": held("unmarked"),
        "rates_marked": held("marked"),
        "rates_lines": f"{min(lines):.3f} to {max(lines):.3f}",
        "rates_intercept": held("intercept", others),
        "rates_intercept_named": held("intercept", named),
        "rates_strong": held("unmarked", strong),
        "rates_strong_table": f"{min(r['unmarked_table'] for r in strong if 'unmarked_table' in r):.3f}",
        "rates_strong_named": held("marked", strong),
        "rates_releases": f"{found[0]['releases']}",
        "together": f"{min(moved):.2f} to {max(moved):.2f}",
    }
    heads = ("table", "population", "of")
    listed = (line(r) for r in found if r["overlap"] is None)
    return figures, {
        "rates": rows(
            ["people", "ε", *heads, *(f"named: {each}" for each in heads), "intercept: table", "population"], listed
        )
    }


def questions() -> tuple[Figures, Tables]:
    found = read("questions")
    made = ("counts", "joint", "rows", "opendp")
    counted = ([e, *(f"{c[name]:.4f}" for name in made)] for e, c in found["counted"].items())
    shown = ("shares", "risk differences", "risk ratios", "odds ratios", "means", "test of means", "test of a table")
    covered = (
        [
            *(f"{r['n']:,}", f"{r['overlap']:g}", f"{r['epsilon']:g}", f"{r['events']:.1%}"),
            *(f"{r[name]:.3f}" for name in (*shown, "unbounded")),
        ]
        for r in found["covered"]
    )
    return {"counted_releases": f"{found['releases']}"}, {
        "counted": rows(["ε", "counts", "joint shares", "weighted rows", "OpenDP"], counted),
        "covered": rows(["people", "held", "ε", "events", *shown, "no upper end"], covered),
    }


def synthetic() -> tuple[Figures, Tables]:
    found = read("synthetic")
    cells, beside = found["cells"], found["beside"]

    def at_one(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [c for c in cells if c["epsilon"] == 1]

    def shown(found: dict[str, Any] | None) -> str:
        return "" if found is None else found.get("failed") or f"{found['variation']:.4f}, {found['auc']:.3f}"

    def body(cells: list[dict[str, Any]]) -> list[str]:
        about = ([f"{c['table']} ({c['n']:,})"] for c in cells)
        names = list(dict.fromkeys(name for c in cells for name in c["programs"]))
        lines = ([*one, *(shown(c["programs"].get(n)) for n in names)] for one, c in zip(about, cells, strict=True))
        return rows(["table (n)", *names], lines)

    ran = [
        (c["programs"]["release"], its, sqrt(its["variation"] ** 2 - c["programs"]["drawn"]["variation"] ** 2))
        for c in beside
        for name, its in c["programs"].items()
        if "-" in name
    ]
    figures = {
        "synthetic_nearer": share(
            c["programs"]["release"]["variation"] < c["programs"]["people"]["variation"] for c in cells
        ),
        "synthetic_auc": f"{max(c['programs']['people']['auc'] - c['programs']['release']['auc'] for c in cells):.3f}",
        "beside_nearer": share(ours["variation"] <= undrawn for ours, _, undrawn in ran),
        "beside_auc": share(ours["auc"] >= its["auc"] for ours, its, _ in ran),
        "aim_rounds": f"{found['rounds']}",
        "aim_megabytes": f"{found['max_size']:g} MB",
        "beside_least": f"{min(undrawn / ours['variation'] for ours, _, undrawn in ran):.1f}",
        "beside_behind": f"{max(its['auc'] - ours['auc'] for ours, its, _ in ran):.3f}",
    }
    return figures, {"synthetic": body(at_one(cells)), "beside": body(at_one(beside))}


def survival() -> tuple[Figures, Tables]:
    found = read("survival")
    names = (
        "bands",
        "ratios",
        "of intervals",
        "ratios of Cox",
        "change found",
    )
    held = (
        [r["table"], f"{r['epsilon']:g}", *("" if r[name] is None else f"{r[name]:.3f}" for name in names)]
        for r in found["results"]
    )
    figures = {
        f"survival_{name.replace(' ', '_')}": f"{min(r[name] for r in found['results']):.3f} to "
        f"{max(r[name] for r in found['results']):.3f}"
        for name in ("bands", "ratios", "of intervals")
    } | {
        "survival_rare": share(r["rare marked"] == 1 for r in found["results"]),
        "survival_releases": f"{found['results'][0]['releases']}",
        "survival_people": f"{found['results'][0]['n']:,}",
        "survival_cox": ", ".join(f"{d['rms']:.2f}" for d in found["differences"]),
    }
    heads = (
        "curves",
        "hazard ratios",
        "of intervals",
        "Cox's",
        "change found",
    )
    return figures, {
        "survival": rows(["table", "ε", *heads], held),
    }


def choice() -> tuple[Figures, Tables]:
    cells = read("choice")["cells"]
    found = [(c, {way: figures["mean"] for way, figures in c["r_squared"].items()}) for c in cells]
    open_fit, plain, boosted = "not private", "adassp", "boosted_adassp"
    at_one = [(c, m) for c, m in found if c["epsilon"] == 1]
    ways = ("moments", "rmgm", "dgm", "two_stage", plain, boosted, "diffprivlib", open_fit)
    behind = (c["table"] for c, m in found if c["epsilon"] == 0.3 and m["moments"] < m[plain])
    beyond = [(c, c["moments_over"][plain]["mean"] / c["moments_over"][plain]["standard_error"]) for c in cells]
    figures = {
        "together": f"{at_one[0][0]['together']:.2f}",
        "holder_best": share(m["two_stage"] == max(m[way] for way in ways[:-1]) for _, m in found),
        "over_adassp": share(m["moments"] > m[plain] for _, m in found),
        "over_adassp_1": share(value > 2 for c, value in beyond if c["epsilon"] == 1),
        "tied_adassp_1": " and ".join(c["table"] for c, value in beyond if c["epsilon"] == 1 and abs(value) <= 2),
        "rmgm_half": share(m["rmgm"] > m[open_fit] / 2 for _, m in found),
        "dgm_half": share(m["dgm"] > m[open_fit] / 2 for _, m in found),
        "behind_third": " and ".join(behind),
        "peer_learns": share(m["diffprivlib"] > 0 for _, m in found),
        "peer_over": share(m["diffprivlib"] > m["moments"] for _, m in found),
    }
    body = ([f"{c['table']} ({c['n']:,})", *(f"{m[way]:.3f}" for way in ways)] for c, m in at_one)
    heads = ("`moments`", "`rmgm`", "`dgm`", "`two_stage`", "AdaSSP", "BoostedAdaSSP", "diffprivlib", "least squares")
    return figures, {"choice": rows(["table (n)", *heads], body)}


def readme() -> tuple[Figures, Tables]:
    [bike] = (c for c in read("choice")["cells"] if (c["table"], c["epsilon"]) == ("bike_hour", 1))
    ways = {"plain": "not private", "moments": "moments", "rmgm": "rmgm"}
    figures = {f"bike_{name}": percent(bike["r_squared"][way]["mean"]) for name, way in ways.items()}
    return figures | {"bike_rows": f"{bike['n']:,}".replace(",", " ")}, {}


def goals() -> tuple[Figures, Tables]:
    found, bounds = read("goals")["goals"], ("best ridge", "best ridge, exact features", "oracle")
    reached = {g["table"]: {way: values["mean"] for way, values in g["r_squared"].items()} for g in found}
    return {f"goals_{t}": f"{max(r[way] for way in bounds) - r['shrunken']:.3f}" for t, r in reached.items()}, {}
