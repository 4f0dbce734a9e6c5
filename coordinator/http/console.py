"""The operator's console: members, rounds and their progress, on this machine. It reads, and changes nothing."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response

from commingle.coordinator.coordinator import Coordinator, require_release
from commingle.coordinator.errors import UnknownError
from commingle.coordinator.http.views import decode_cursor, encode_cursor, release_details
from commingle.shared.documents.spec import headline_of
from commingle.shared.errors import CommingleError
from commingle.shared.release.checks import read_spec
from commingle.shared.runtime.pages.doors import ConsolePages, Door
from commingle.shared.runtime.pages.site import Site

_TEMPLATES = Path(__file__).parent / "templates"
_PAGES = (("/", "Rounds"), ("/members", "Members"))
_PAGE, _MOST_EVENTS = 50, 500
_LOOK_MILLISECONDS = 2000


def create_console(coordinator: Coordinator, door: Door) -> FastAPI:
    site = Site(_TEMPLATES, name=coordinator.name, pages=_PAGES, shown={"look": _LOOK_MILLISECONDS})
    console = ConsolePages(site, door)
    app = console.application()

    def show(request: Request, page: str, context: Callable[[], Mapping[str, Any]]) -> Response:
        try:
            return site.page(page, {"csrf": console.session(request).csrf, **context()})
        except UnknownError as error:
            return console.unknown(error.diagnostics())
        except CommingleError as error:
            return console.unanswered(error.diagnostics())

    @app.get("/")
    def rounds(request: Request) -> Response:
        def told() -> Mapping[str, Any]:
            with coordinator.store.read() as tx:
                found = tx.releases.page(before=decode_cursor(request.query_params.get("cursor")), limit=_PAGE)
                counts = tx.releases.counts()
            return {"items": found.items, "counts": counts, "next": encode_cursor(found.next)}

        return show(request, "rounds.html", told)

    @app.get("/rounds/{release}")
    def one_round(request: Request, release: str) -> Response:
        def told() -> Mapping[str, Any]:
            with coordinator.store.read() as tx:
                it = release_details(require_release(tx, release))
                events = tx.events.after(0, limit=_MOST_EVENTS, release=release)
            spec = None if it.spec is None else read_spec(it.spec.payload_bytes)
            return {
                "it": it,
                "headline": it.study if spec is None else headline_of(it.study, spec.stated),
                "stated": () if spec is None else spec.stated_sentences,
                "waits": it.waits_for,
                "events": events[::-1],
            }

        return show(request, "round.html", told)

    @app.get("/members")
    def members(request: Request) -> Response:
        def told() -> Mapping[str, Any]:
            with coordinator.store.read() as tx:
                found = tx.members.page(after=decode_cursor(request.query_params.get("cursor")), limit=_PAGE)
            fingerprint = coordinator.key.fingerprint
            return {"items": found.items, "fingerprint": fingerprint, "next": encode_cursor(found.next)}

        return show(request, "members.html", told)

    return app
