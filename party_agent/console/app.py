"""The console's pages and the two decisions, over HTTP.

Every page and every decision is a request to the local API, with all its checks. Tokens alone are not asked of it: a
token that made others would outlive its own revocation.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, get_args

from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse, Response

from commingle.party_agent.console.pages import (
    DAYS,
    MAX_FIELDS,
    WIDTH,
    Line,
    Maker,
    budget_of,
    in_words,
    lines_of,
    maker_of,
    may_approve,
    may_reject,
    propose,
    schema_of,
    who_asks,
    worth_of,
)
from commingle.party_agent.edge.api import UnauthorisedError
from commingle.party_agent.edge.client import PartyClient
from commingle.party_agent.home.home import Home
from commingle.party_agent.home.tokens import SCOPE_WORDS
from commingle.party_agent.operate.doctor import examine_home
from commingle.party_agent.private.derived import parse_derived
from commingle.party_agent.private.sources import FileSource
from commingle.party_agent.rounds.proposals import DecisionNote
from commingle.party_agent.wire.answers import CHARGE_STATES, risk_in_words, words_for_decision
from commingle.party_agent.wire.owner_words import Viewer
from commingle.shared.documents.schema import Missing, asked_as, parse_attributes
from commingle.shared.documents.spec import headline_of
from commingle.shared.documents.subject_ids import EXACT, RULE_NAMES
from commingle.shared.errors import CommingleError
from commingle.shared.runtime.csv_format import USUAL, Decimal, Encoding, Separator
from commingle.shared.runtime.errors import RemoteProblemError, SettingsError
from commingle.shared.runtime.pages.doors import ConsolePages, Door, Session
from commingle.shared.runtime.pages.site import Site, read_form
from commingle.shared.runtime.settings import system_clock

_TEMPLATES = Path(__file__).parent / "templates"
_PAGES = (
    ("/", "Proposals"),
    ("/ledger", "Ledger"),
    ("/datasets", "Data sets"),
    ("/members", "Members"),
    ("/tokens", "Tokens"),
    ("/doctor", "Doctor"),
)
_TAB = "tab"  # which no page shows
_FORMATS: dict[str, tuple[str, ...]] = {
    "encoding": get_args(Encoding),
    "separator": tuple(_TAB if separator == "\t" else separator for separator in get_args(Separator)),
    "decimal": get_args(Decimal),
}
_RULES: dict[Missing, str] = {"error": "are refused", "midpoint": "count as the middle", "indicator": "are marked"}
_NEW_DATASET = dict.fromkeys(("name", "path", "subject_id", "id_prefix", "derived", "schema", "replace"), "") | {
    "subjects": "keyed",
    "id_rule": EXACT[0],
    **{name: str(value) for name, value in asdict(USUAL).items() if name in _FORMATS},
}
_NEW_TOKEN = {"name": "", "days": "30"}


Reach: TypeAlias = Callable[[str | None], AbstractContextManager[PartyClient]]
"""Opens the local API with a session's token for what one page asks of it, all at once."""


def create_console(home: Home, door: Door, reach: Reach) -> FastAPI:
    """The console behind a door; a session is one person's, or the operator's, who says who decides."""
    shown = {
        "asked_as": asked_as,
        "in_words": in_words,
        "charge_states": CHARGE_STATES,
        "width": WIDTH,
        "formats": _FORMATS,
        "rules": _RULES,
        "id_rules": RULE_NAMES[:-1],
        "risk_in_words": risk_in_words,
        "words_for_decision": words_for_decision,
        "days": DAYS,
        "scope_words": SCOPE_WORDS,
    }
    site = Site(_TEMPLATES, name=home.settings().name, pages=_PAGES, shown=shown)
    console = ConsolePages(site, door)

    def pages_of(request: Request) -> _Pages:
        return _Pages(home, console.session(request), reach, site, console)

    def add_page(path: str, template: str, told: "Callable[[_Pages, Request], Mapping[str, Any]]") -> None:
        def answer(request: Request) -> Response:
            pages = pages_of(request)
            return pages.show(template, partial(told, pages, request))

        app.add_api_route(path, answer)

    def add_form(path: str, act: "Callable[[_Pages, Mapping[str, str], Request], Response]", most: int) -> None:
        async def answer(request: Request) -> Response:
            form = await read_form(request, most=most)
            if (refusal := await console.refusal(request, form)) is not None:
                return refusal
            return await run_in_threadpool(act, pages_of(request), form, request)

        app.add_api_route(path, answer, methods=["POST"])

    app = console.application()
    for path, template, told in (
        ("/", "proposals.html", _Pages.proposals),
        ("/proposals/{release}", "proposal.html", _Pages.proposal),
        ("/ledger", "ledger.html", _Pages.ledger),
        ("/datasets", "datasets.html", _Pages.datasets),
        ("/members", "members.html", _Pages.members),
        ("/tokens", "tokens.html", _Pages.tokens),
        ("/doctor", "doctor.html", _Pages.doctor),
    ):
        add_page(path, template, told)
    add_form("/proposals/{release}", _Pages.decide, 0)
    add_form("/datasets", _Pages.register, MAX_FIELDS)
    add_form("/tokens", _Pages.change_tokens, 0)
    return app


class _Pages:
    def __init__(self, home: Home, session: Session, reach: Reach, site: Site, console: ConsolePages) -> None:
        self._home, self._session, self._reach, self._site, self._console = home, session, reach, site, console

    def show(self, page: str, context: Callable[[], Mapping[str, Any]], *, error: str = "") -> Response:
        try:
            told = context()
        except CommingleError as fault:
            if UnauthorisedError.code in {fault.code, getattr(fault, "problem", "")}:
                return self._console.ended(self._session)
            if isinstance(fault, RemoteProblemError) and fault.says_unknown:
                return self._console.unknown(fault.diagnostics())
            return self._console.unanswered(fault.diagnostics())
        shown = {"csrf": self._session.csrf, "person": self._session.person, **told, "error": error}
        return self._site.page(page, shown, status=409 if error else 200)

    def proposals(self, request: Request) -> Mapping[str, Any]:
        asked = request.query_params
        with self._reach(self._session.token) as agent:
            waiting = agent.proposal_page(waiting=True, after=asked.get("waiting"))
            past = agent.proposal_page(waiting=False, after=asked.get("past"))
        older = not asked.keys().isdisjoint({"waiting", "past"})
        return {"waiting": waiting, "past": past, "older": older}

    def proposal(self, request: Request, *, name: str | None = None, why: str = "") -> Mapping[str, Any]:
        with self._reach(self._session.token) as agent:
            item, status = agent.proposal(_id(request)), agent.status()
            ledger = agent.ledger(item.id)
        return {
            "item": item,
            "headline": headline_of(item.study, item.stated),
            "worth": worth_of(item),
            "own": status.name,
            "asks": who_asks(item, self._home, status),
            "budget": budget_of(ledger, None if ledger.charges else item.cost),
            "ledger": ledger,
            "may_approve": may_approve(item),
            "may_reject": may_reject(item),
            "name": self._session.name if name is None else name,
            "why": why,
        }

    def ledger(self, request: Request) -> Mapping[str, Any]:
        with self._reach(self._session.token) as agent:
            ledger = agent.ledger_page(request.query_params.get("before"))
        return {"ledger": ledger, "budget": budget_of(ledger)}

    def members(self, _: Request) -> Mapping[str, Any]:
        with self._reach(self._session.token) as agent:
            status = agent.status()
        pins = {one.name: self._home.consortium(one.name).pins() for one in status.consortia}
        return {"status": status, "pins": pins}

    def datasets(
        self, _: Request, given: Mapping[str, str] = _NEW_DATASET, lines: Sequence[Line] = ()
    ) -> Mapping[str, Any]:
        with self._reach(self._session.token) as agent:
            return {"items": agent.datasets(), "given": given, "lines": lines}

    def tokens(self, _: Request) -> Mapping[str, Any]:
        maker = self._maker()
        return {"items": maker.tokens(), "scopes": sorted(maker.scopes), "given": _NEW_TOKEN, "made": ""}

    def change_tokens(self, form: Mapping[str, str], request: Request) -> Response:
        given = {name: form.get(name, usual).strip() for name, usual in _NEW_TOKEN.items()}
        if form.get("do") not in {"make", "revoke"}:
            return self._console.refused()
        scopes = frozenset(name.removeprefix("scope-") for name in form if name.startswith("scope-"))
        try:
            maker = self._maker()
            if form["do"] == "revoke":
                maker.revoke(form.get("name", ""))
                return RedirectResponse("/tokens", status_code=303)
            days = int(given["days"]) if given["days"] in map(str, DAYS) else 0
            made = maker.make(given["name"], scopes, days)
        except CommingleError as fault:
            return self.show("tokens.html", lambda: {**self.tokens(request), "given": given}, error=fault.diagnostics())
        return self.show("tokens.html", lambda: {**self.tokens(request), "made": made})

    def _maker(self) -> Maker:
        return maker_of(self._home, self._session.token, system_clock())

    def doctor(self, _: Request) -> Mapping[str, Any]:
        viewer = Viewer.PERSON if self._session.person else Viewer.OPERATOR
        if self._session.token is not None:  # which may be revoked; an operator sees why an agent does not start
            with self._reach(self._session.token) as agent:
                agent.status()
        return {"checks": tuple(examine_home(self._home, now=system_clock(), viewer=viewer))}

    def register(self, form: Mapping[str, str], request: Request) -> Response:
        given = {name: form.get(name, usual).strip(" ") for name, usual in _NEW_DATASET.items()}
        if self._session.person or not all(given[name] in known for name, known in _FORMATS.items()):
            return self._console.refused()
        lines = lines_of(form)
        try:
            if not given["path"]:
                raise SettingsError("no file is named", remedy="Say where it is.")
            said = {name: given[name] for name in ("path", *_FORMATS)}
            source = FileSource.model_validate({**said, "separator": said["separator"].replace(_TAB, "\t")})
            derived = [parse_derived(line) for line in given["derived"].splitlines() if line.strip()]
            if form.get("do") == "draft":
                lines = propose(source, given["subject_id"], lines, made=[one.name for one in derived])
                return self.show("datasets.html", lambda: self.datasets(request, given, lines))
            if form.get("knowledge") != "yes":
                raise SettingsError("bounds and levels are public", remedy="Confirm that none was read off the rows.")
            attributes = parse_attributes((given["schema"].strip() or json.dumps(schema_of(lines))).encode())
            rule = f"digits-after:{given['id_prefix']}/1" if given["id_prefix"] else given["id_rule"]
            body = {
                "name": given["name"],
                "source": source.model_dump(mode="json"),
                "subject_id": given["subject_id"],
                "id_rules": None if rule == EXACT[0] else [rule],
                "derived": [one.model_dump(mode="json") for one in derived],
                "subjects": "listed" if given["subjects"] == "listed" else "keyed",
                "attributes": [attribute.model_dump(mode="json") for attribute in attributes],
            }
            with self._reach(self._session.token) as agent:
                agent.register(body, replace=given["replace"] == "yes")
        except CommingleError as fault:
            return self.show("datasets.html", lambda: self.datasets(request, given, lines), error=fault.diagnostics())
        return RedirectResponse("/datasets", status_code=303)

    def decide(self, form: Mapping[str, str], request: Request) -> Response:
        decision = form.get("decision", "")
        name, why = self._session.person or form.get("by", "").strip(), " ".join(form.get("why", "").split())
        error = ""
        if decision not in {"approve", "reject"}:
            return self._console.refused()
        if not name:
            error = "Say who decides: the name is kept in this member's ledger."
        elif decision == "reject" and not why:
            error = "Say why: the members read your reason, and the one who asked among them."
        elif decision == "approve" and form.get("read") != "yes":
            error = "Confirm that you have read the proposal."
        if not error:
            try:
                note = DecisionNote(by="" if self._session.person else name, why=why)
                with self._reach(self._session.token) as agent:
                    take = agent.approve if decision == "approve" else agent.reject
                    take(_id(request), by=note.by, why=note.why)
                self._session.name = self._session.name if self._session.person else name
                return RedirectResponse(f"/proposals/{_id(request)}", status_code=303)
            except ValueError:
                error = "Use visible characters only, at most 200 in the name and 2000 in the reason."
            except CommingleError as fault:
                error = fault.diagnostics()
        typed = partial(self.proposal, request, name=self._session.name if self._session.person else name, why=why)
        return self.show("proposal.html", typed, error=error)


def _id(request: Request) -> str:
    """An id is letters and digits: nothing in it leads to another path."""
    release: str = request.path_params["release"]
    return release if release.isalnum() and release.isascii() else "none"
