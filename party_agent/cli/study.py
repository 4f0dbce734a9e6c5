"""`commingle study`: write a study with sensible defaults, and see what every member's agent would answer to it."""

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import click
from pydantic import TypeAdapter, ValidationError
from rich.console import Console

from commingle.party_agent.cli.decide import show_proposal
from commingle.party_agent.home.home import Home
from commingle.party_agent.home.policy import Finding, Policy, examine_terms, final_reason
from commingle.party_agent.operate.compose import agent_client, consortium_option
from commingle.party_agent.wire.answers import ProposalView
from commingle.shared.documents.model import explain
from commingle.shared.documents.presets import PRESETS, release_preset
from commingle.shared.documents.schema import (
    Attribute,
    CategoricalAttribute,
    Levelled,
    NumericAttribute,
    parse_attributes,
)
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.study import RECOMMENDED_MECHANISM, AskedAttribute, AskedPart, Study
from commingle.shared.documents.subject_ids import RULE_NAMES, is_id_rule
from commingle.shared.documents.subsets import Subset, subset_words
from commingle.shared.forecast.forecast import outlook_of, with_sketch
from commingle.shared.forecast.result import bent_words
from commingle.shared.forecast.task import assumptions_of, square_words
from commingle.shared.mechanisms import MECHANISMS
from commingle.shared.release.checks import EPSILON, Share, draft, terms_of, tried
from commingle.shared.release.plan import plan_block
from commingle.shared.runtime.cli import (
    A_FOLDER,
    NEW_FILE,
    LazyGroup,
    OpenChoice,
    changes,
    emit,
    reads,
    refuse_beside,
    wants_json,
)
from commingle.shared.runtime.errors import SettingsError
from commingle.shared.runtime.files import read_given, write_durably
from commingle.shared.runtime.settings import load_settings, system_clock

_EXAMPLE = "--member ward=ward.json --member laboratory=lab.json"
_NAMED_FILE = "a member's name, = and the path of a file, such as ward=ward.json"
_ASKED: TypeAdapter[Attribute] = TypeAdapter(AskedAttribute)
_PART: TypeAdapter[Levelled] = TypeAdapter(AskedPart)
Given = TypeVar("Given")


@click.group(cls=LazyGroup)
def study() -> None:
    """Write a study, and see what every member would answer to it."""


@study.command(
    epilog=f"\b\nExamples:\n  commingle study new {_EXAMPLE}\n"
    f"  commingle study new {_EXAMPLE} --title 'Length of stay' \\\n      --n 2000 --target stay --out study.json\n"
    f"  commingle study new {_EXAMPLE} --title Survival --n 2000 \\\n"
    "      --cut months=12,24,36 --cross outcome=months,died --cut 'age=every 20'"
)
@click.option(
    "--member",
    "members",
    metavar="NAME[/DATASET]=SCHEMA",
    multiple=True,
    help="A member and its public schema: the file that it registered its data set with. Repeatable.  [DATASET: main]",
)
@click.option("--title", help="The title of the study.")
@click.option("--n", type=click.IntRange(2, 10**12), help="About how many people each member holds.")
@click.option("--target", metavar="COLUMN", help="The column to explain.")
@click.option("--features", metavar="COLUMN,…", help="The columns that explain the target.  [all others]")
@click.option("--columns", metavar="COLUMN,…", help="Release only these columns: fewer columns have less noise.  [all]")
@click.option(
    "--cut",
    "cuts",
    metavar="COLUMN=CUTS",
    multiple=True,
    help="Release a number as the interval it is in: age=40,60 or 'age=every 10'. Tables need it. Repeatable.",
)
@click.option(
    "--cross",
    "crossed",
    metavar="NAME=COLUMN,COLUMN",
    multiple=True,
    help="Release two columns of one member as pairs, such as time (cut) and event for survival. If follow-up of many "
    "ends at one time, give it a short interval of its own: --cut months=12,12.01,24. Repeatable.",
)
@click.option(
    "--product",
    "products",
    metavar="NAME=COLUMN,…",
    multiple=True,
    help="Release the product of two or three columns of one member; of one with itself, its square. Repeatable.",
)
@click.option(
    "--where",
    "chosen",
    metavar="COLUMN=LEVELS",
    multiple=True,
    help="Count only people who have one of these levels, sex=female, or a number from one value to below another, "
    "age=18..65, at each member that has the column. Repeatable; a person is in all of them.",
)
@click.option("--epsilon", type=float, default=EPSILON, show_default=True, help="The epsilon that each member spends.")
@click.option(
    "--one-stage",
    is_flag=True,
    help="Clip no rows. Counts, means, tables and odds ratios stay unbiased, even if numbers have no cuts.",
)
@click.option(
    "--mechanism",
    type=click.Choice(list(MECHANISMS)),
    help=f"How people are protected. `commingle plan` compares the mechanisms.  [{RECOMMENDED_MECHANISM}]",
)
@click.option(
    "--preset",
    type=click.Choice(list(PRESETS)),
    help="Mechanism, noise, kind of data set and scaling of a paper.",
)
@click.option(
    "--purpose", metavar="TEXT", help="The question, and what the answer is for. Members read it before they decide."
)
@click.option("--requester", metavar="TEXT", help="The name and institution of the person who asks.")
@click.option("--listed", is_flag=True, help="All members hold the same people, and who they are is not protected.")
@click.option(
    "--id-rule",
    "id_rules",
    type=OpenChoice(RULE_NAMES, is_id_rule),
    multiple=True,
    help="How all members write ids, as registered.  [exact/1]",
)
@click.option("--out", type=NEW_FILE, default=Path("study.json"), show_default=True, help="The file to write.")
@click.option("--replace", "anew", is_flag=True, help="Overwrite an existing file.")
@changes(out=str, study=Study, outlook=list[str])
def new(*, members: tuple[str, ...], preset: str | None, out: Path, anew: bool, **options: Any) -> None:  # noqa: ANN401 - click
    """Write a study with sensible defaults; in a terminal, ask for what is not given.

    Schemas are public: each member sends the one it registered. A number of people is rounded to two digits.
    """
    if out.exists() and not anew:
        raise SettingsError(f"{out} exists", remedy="Give another --out, or --replace.")
    asks = sys.stdin.isatty() and not wants_json()
    shares = _shares(members or tuple(_ask_members() if asks else ()))
    try:
        shares = _chosen(shares, options["chosen"])
        shares = _multiplied(_cut(shares, options["cuts"]), options["products"])
        shares = _varying(_crossed(shares, options["crossed"]), options)
        asked = _asked(options, shares, asks=asks)
        if preset is None:
            made = _whole(draft(shares, **asked)) if options["one_stage"] else draft(shares, **asked)
        else:
            refuse_beside("--preset", "listed", "id_rules", "one_stage")
            paper = release_preset(preset)
            made = paper.study(draft(shares, **asked | {"subjects": paper.subjects}), options["mechanism"])
    except ValidationError as error:
        raise SettingsError(f"these options do not make a study: {explain(error)}", remedy="See --help.") from None
    spec = tried(with_sketch(made), now=system_clock())
    write_durably(out, made.model_dump_json(indent=1).encode() + b"\n", mode=0o644)
    value = {"out": str(out), "study": made.model_dump(mode="json"), "outlook": list(outlook_of(spec))}
    square = square_words(terms_of(made), assumptions_of(made))
    said = (*_refused_by_default(spec), *outlook_of(spec)[:3], *bent_words(spec.terms), *filter(None, [square]))
    said = (*said, *_end_words(made))
    emit(value, text=lambda console: _show_new(console, out, made, said))


@study.command(
    epilog="\b\nExamples:\n  commingle study check study.json\n  commingle study check study.json --home ./ward\n"
    "  commingle study check study.json --policy laboratory=policy.json"
)
@click.argument("file", metavar="STUDY", type=NEW_FILE)
@click.option(
    "--policy",
    "policies",
    metavar="NAME=FILE",
    multiple=True,
    help="A member's policy.json, if the member has shown it to you. Repeatable.  [the default policy]",
)
@click.option(
    "--home",
    type=A_FOLDER,
    help="Ask the agent of this home, which knows its policy, pins, data and budget.",
)
@consortium_option
@reads(answers=list[dict[str, Any]], outlook=list[str], own=ProposalView | None)
def check(*, file: Path, policies: tuple[str, ...], home: Path | None, consortium: str | None) -> None:
    """Say what each member's policy would answer to STUDY, a JSON file, before anybody is asked.

    Nothing is sent to anybody, and nothing is charged. Of other members only the policy is known, the default one where
    none is given; what they hold and have spent is theirs to know.
    """
    asked = load_settings(Study, file)
    spec = tried(with_sketch(asked), now=system_clock())
    known = {name: load_settings(Policy, Path(path)) for name, path in map(_pair, policies)}
    names = [party.name for party in spec.parties]
    if strangers := sorted(known.keys() - set(names)):
        raise click.UsageError(f"{', '.join(strangers)} is not in the study: {', '.join(names)} are.")
    answers = [_answer(spec, name, known.get(name)) for name in names]
    own = None
    if home is not None:
        with agent_client(Home(home)) as agent:
            own = agent.answer(asked, consortium=consortium)
    value = {"answers": [each.said for each in answers], "outlook": list(outlook_of(spec)), "own": own}
    emit(value, text=lambda console: _show_check(console, spec, answers, own))
    if any(each.findings for each in answers) or (own is not None and own.findings):
        sys.exit(1)


@dataclass(frozen=True, slots=True)
class _Answer:
    party: str
    shown: bool
    policy: Policy
    findings: tuple[Finding, ...]

    @property
    def said(self) -> dict[str, Any]:
        findings = [{"rule": one.rule, "message": one.message, "type": self.mend(one)} for one in self.findings]
        policy = "given" if self.shown else "default"
        return {"party": self.party, "policy": policy, "allowed": not self.findings, "findings": findings}

    def mend(self, finding: Finding) -> str:
        policy = self.policy
        return {
            "mechanisms": f'"mechanism": one of {", ".join(sorted(policy.mechanisms))}',
            "trusted_bounds": '"bounds": "proved"',
            "max_epsilon": f'"epsilon": {policy.max_epsilon:g} or less',
            "max_delta": f'"delta": {policy.max_delta:g} or less',
            "max_cells": "fewer columns, or a smaller n",
            "max_lifetime_hours": f'"lifetime_hours": {policy.max_lifetime_hours:g} or less',
            "min_n": f'"n": {policy.min_n} or more',
        }.get(finding.rule, "visible characters")


def _answer(spec: ReleaseSpec, name: str, policy: Policy | None) -> _Answer:
    party, rules = spec.party(name), policy or Policy()
    return _Answer(name, policy is not None, rules, examine_terms(spec, party, plan_block(spec, party), rules))


def _refused_by_default(spec: ReleaseSpec) -> list[str]:
    answers = [_answer(spec, party.name, None) for party in spec.parties]
    said = (f"{one.message}. Type {each.mend(one)}." for each in answers for one in each.findings)
    return [f"The default policy would refuse it: {one}" for one in dict.fromkeys(said)]


def _shares(members: Sequence[str]) -> Mapping[str, Share]:
    if not members:
        raise click.UsageError(f"name the members and their schemas: {_EXAMPLE}")
    shares = dict[str, Share]()
    for who, path in map(_pair, members):
        name, _, dataset = who.partition("/")
        if name in shares:
            raise click.UsageError(f"{name} is named twice")
        shares[name] = Share(dataset or "main", parse_attributes(read_given(path)))
    return shares


def _pair(given: str, said: str = _NAMED_FILE) -> tuple[str, str]:
    name, _, value = given.partition("=")
    if not name or not value:
        raise click.UsageError(f"{given!r}: write {said}")
    return name, value


def _cut(shares: Mapping[str, Share], given: Sequence[str]) -> Mapping[str, Share]:
    cuts = {name: _places(text) for name, text in (_pair(each, "a column, = and cuts: age=40,60") for each in given)}
    numbers = [a.name for s in shares.values() for a in s.attributes if isinstance(a, NumericAttribute)]
    for name in cuts:
        if name not in numbers:
            raise click.UsageError(f"no member has a number called {name}: {', '.join(numbers)}")

    def each(attribute: Attribute) -> Attribute:
        if attribute.name not in cuts:
            return attribute
        try:
            return _ASKED.validate_python(attribute.model_dump(exclude_none=True) | {"cuts": cuts[attribute.name]})
        except ValidationError as error:
            raise click.UsageError(f"--cut {attribute.name}: {explain(error)}") from None

    return {name: replace(s, attributes=tuple(map(each, s.attributes))) for name, s in shares.items()}


def _places(text: str) -> str | tuple[float, ...]:
    if text.startswith("every "):
        return text
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise click.UsageError(f"{text!r} is not a list of cuts: write 40,60 or 'every 10'") from None


def _known(shares: Mapping[str, Share], wanted: tuple[str, ...]) -> tuple[str, ...]:
    columns = [a.name for s in shares.values() for a in s.attributes]
    for name in wanted:
        if name not in columns:
            raise click.UsageError(f"no member has a column called {name}: {', '.join(columns)}")
    return wanted


def _crossed(shares: Mapping[str, Share], given: Sequence[str]) -> Mapping[str, Share]:
    found = dict(shares)
    for name, text in (_pair(each, "a name, = and two columns: outcome=months,died") for each in given):
        wanted = _known(found, _list(text) or ())
        owner = next((k for k, s in found.items() if set(wanted) <= {a.name for a in s.attributes}), None)
        if owner is None or len(wanted) != 2:  # noqa: PLR2004 - a pair
            raise click.UsageError(f"{text!r}: name two columns that one member has")
        parts = {a.name: a for a in found[owner].attributes if a.name in wanted}
        for number in (a.name for a in parts.values() if isinstance(a, NumericAttribute)):
            raise click.UsageError(f"{number} is a number: cut it too, --cut {number}=…")
        pairs = _ASKED.validate_python({"name": name, "cross": tuple(parts[each] for each in wanted)})
        others = (a for a in found[owner].attributes if a.name not in wanted)
        found[owner] = replace(found[owner], attributes=(*others, pairs))
    return found


_SHORT = 0.002  # of the largest time: a first interval no longer than this is one for an end


def _end_words(made: Study) -> Iterator[str]:
    for pairs in (a for party in made.parties for a in party.attributes):
        cross: tuple[Levelled, Levelled] | None = getattr(pairs, "cross", None)
        if cross is None or (of := cross[0].intervals) is None or of.lower != 0 or cross[1].intervals is not None:
            continue  # a time begins at 0
        cut, end = (*of.cuts, of.upper)[:2]
        if end - cut > _SHORT * of.upper:
            after = cut + max((end - cut) / 1000, of.upper / 2**15)  # two of the least steps by which cuts are apart
            yield (
                f"If {cross[0].name} of {pairs.name} ends for many people at one time, such as {cut:g}, give this time "
                f"a short interval of its own: --cut {cross[0].name}={cut:.9g},{after:.9g},…"
            )


def _multiplied(shares: Mapping[str, Share], given: Sequence[str]) -> Mapping[str, Share]:
    found = dict(shares)
    for name, text in (_pair(each, "a name, = and columns: 'stay squared=stay,stay'") for each in given):
        wanted = _known(found, _list(text) or ())
        owner = next((k for k, s in found.items() if {*wanted} <= {a.name for a in s.attributes}), None)
        if owner is None or len(wanted) not in {2, 3}:
            raise click.UsageError(f"{text!r}: name columns that one member has, two or three; for a square, one twice")
        own = {a.name: a for a in found[owner].attributes}
        for each in (own[one] for one in wanted):
            if isinstance(each, CategoricalAttribute) or getattr(each, "intervals", None) is not None:
                raise click.UsageError(f"{each.name} has levels: multiply numbers without --cut and binary columns")
        made = _ASKED.validate_python({"name": name, "product": tuple(own[each] for each in wanted)})
        found[owner] = replace(found[owner], attributes=(*found[owner].attributes, made))
    return found


def _chosen(shares: Mapping[str, Share], given: Sequence[str]) -> Mapping[str, Share]:
    found = dict(shares)
    for name, text in (_pair(each, "a column, = and its levels: sex=female, or age=18..65") for each in given):
        _known(shares, (name,))
        owners = [(k, a) for k, s in found.items() for a in s.attributes if a.name == name]
        for owner, attribute in owners:
            whom = _range(attribute, text) if isinstance(attribute, NumericAttribute) else _levels(attribute, text)
            found[owner] = replace(found[owner], where=(*found[owner].where, whom))
    return found


def _varying(shares: Mapping[str, Share], options: Mapping[str, Any]) -> Mapping[str, Share]:
    """Without columns that --where leaves one level of, which cost noise and tell nothing; unless they are named.

    Raises UsageError: pairs are asked for, and such a column is one part of them.
    """
    named = {options["target"], *(_list(options["features"]) or ()), *(_list(options["columns"]) or ())}
    found = dict(shares)
    for name, share in shares.items():
        crossed = ((a.name, part) for a in share.attributes for part in getattr(a, "cross", None) or ())
        for pairs, part in crossed:
            if not all(_varies(part, w) for w in share.where):
                raise click.UsageError(
                    f"--cross {pairs}: --where leaves one level of {part.name}: leave it out of one of them"
                )
        kept = tuple(a for a in share.attributes if a.name in named or all(_varies(a, w) for w in share.where))
        found[name] = replace(share, attributes=kept or share.attributes)
    return found


def _varies(attribute: Attribute, whom: Subset) -> bool:
    if attribute.name != whom.attribute.name or isinstance(attribute, NumericAttribute):
        return True
    if attribute.intervals is None or whom.attribute.intervals is None:
        return attribute != whom.attribute or len(whom.levels) > 1
    low, high = (whom.attribute.levels.index(whom.levels[place]) for place in (0, -1))
    limits = (-math.inf, *whom.attribute.intervals.cuts, math.inf)
    return any(limits[low] < cut < limits[high + 1] for cut in attribute.intervals.cuts)


def _whole(made: Study) -> Study:
    parties = tuple(party.model_copy(update={"first_stage_share": None}) for party in made.parties)
    return made.model_copy(update={"parties": parties})


def _levels(attribute: Levelled, text: str) -> Subset:
    return Subset(attribute=attribute, levels=(text,) if text in attribute.levels else _list(text) or ())


def _range(number: NumericAttribute, text: str) -> Subset:
    begin, dots, end = text.partition("..")
    try:
        low, high = float(begin or number.lower), float(end or number.upper)
    except ValueError:
        low = high = float("nan")
    cuts = tuple(cut for cut in (low, high) if number.lower < cut < number.upper)
    if not (dots and cuts and low < high):
        middle, end = (f"{number.lower + part * (number.upper - number.lower):g}" for part in (0.5, 0.75))
        raise click.UsageError(
            f"{number.name}={text}: write values of {number.lower:g} to {number.upper:g} that leave somebody out, "
            f"as {number.name}={middle}..{end}, {middle}.. or ..{middle}"
        )
    cut = _PART.validate_python(number.model_dump(exclude_none=True) | {"cuts": cuts})
    return Subset(attribute=cut, levels=(cut.levels[int(low > number.lower)],))


def _asked(options: Mapping[str, Any], shares: Mapping[str, Share], *, asks: bool) -> dict[str, Any]:
    columns = _list(options["columns"]) or ()
    labels = [a.name for s in shares.values() for a in s.attributes if not isinstance(a, CategoricalAttribute)]
    labels = [name for name in labels if not columns or name in columns]

    def needed(name: str, question: str, option: str, kind: Any = str) -> Any:  # noqa: ANN401 - as click converts
        if options[name] is not None:
            return options[name]
        if not asks:
            raise click.UsageError(f"give {option}")
        return click.prompt(question, type=kind, err=True)

    def optional(name: str, question: str) -> str | None:
        given: str | None = options[name]
        if given is not None or not asks:
            return given
        typed: str = click.prompt(question, default="", show_default=False, err=True)
        return typed or None

    return {
        "study": needed("title", "A title", "--title"),
        "purpose": optional("purpose", "What is the question, and what is the answer for (members decide by it)"),
        "requester": optional("requester", "Who asks, by name and institution"),
        "target": optional("target", f"What is to be explained, if anything ({', '.join(labels)})"),
        "n": needed("n", "About how many people does each member hold", "--n", click.IntRange(2, 10**12)),
        "features": _list(options["features"]),
        "columns": columns and (*columns, *(_pair(made)[0] for made in (*options["crossed"], *options["products"]))),
        "epsilon": options["epsilon"],
        "mechanism": options["mechanism"] or RECOMMENDED_MECHANISM,
        "subjects": "listed" if options["listed"] else None,
        "id_rules": options["id_rules"] or None,
    }


def _ask_members() -> Iterator[str]:
    while True:
        name: str = click.prompt("A member's name (Enter: no more)", default="", show_default=False, err=True)
        if not name:
            return
        path = click.prompt(
            f"The file with the schema of {name}", type=click.Path(exists=True, dir_okay=False), err=True
        )
        yield "=".join((name, str(path)))


def _list(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(part.strip() for part in text.split(",") if part.strip())


def _show_new(console: Console, out: Path, made: Study, said: Sequence[str]) -> None:
    console.print(f"{out}: {made.mechanism}, epsilon {made.epsilon:g}, delta {made.delta:g}, n = {made.n:,}")
    for party in made.parties:
        console.print(f"  asks {party.name} for {', '.join(a.name for a in party.attributes)} of {party.dataset}")
        if (whom := subset_words(party.name, party.where)) is not None:
            console.print(f"  {whom}")
    if made.target is None:
        console.print("  names no target: forecasts are about the middle one of all columns")
    for sentence in said:
        console.print(f"  {sentence}")
    console.print(f"Check it: commingle study check {out}")
    console.print(
        f"Propose it: commingle coordinator propose {out} --home …, or: commingle party propose {out} --home …"
    )


def _show_check(console: Console, spec: ReleaseSpec, answers: Sequence[_Answer], own: ProposalView | None) -> None:
    for each in answers:
        policy = "its policy" if each.shown else "the default policy"
        verdict = (
            f"{policy} would reject it"
            if final_reason(each.findings) is not None
            else f"{policy} lets a person approve it"
        )
        console.print(f"{each.party}: {verdict}.")
        for finding in each.findings:
            console.print(f"  {finding.message}. Type {each.mend(finding)}.")
    if own is None:
        for sentence in (*outlook_of(spec)[:3], *bent_words(spec.terms)):
            console.print(sentence)
        console.print(
            "Not compared with what members registered: bounds, levels, id rules and n. Their agents compare them when "
            "the study is proposed; --home asks yours now."
        )
    else:
        console.print("\nWhat the agent of this home would say, by its own policy, pins, data and budget:")
        show_proposal(console, own)
        if not own.findings:
            console.print("  Nothing in policy, pins, schema and budget speaks against it.")
