"""Endpoints by which a party's own system proposes a release and fetches what was published."""

from collections.abc import Iterator
from itertools import chain
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Path, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from commingle.party_agent.edge import examples
from commingle.party_agent.edge.bodies import document
from commingle.party_agent.edge.views import unsent_view
from commingle.party_agent.rounds.agents import Agents
from commingle.party_agent.wire.answers import ProposalView, ProposedView
from commingle.shared.documents.study import Study
from commingle.shared.runtime.errors import ScopeError
from commingle.shared.runtime.problem import takes

ReleaseId = Annotated[str, Path(description="Id of the release, 64 hex digits.")]
_MEDIA_TYPES = {"manifest": "application/json", "moments": "application/json"}
_PARQUET = "application/vnd.apache.parquet"
_CELL_BYTES, _OVERHEAD_BYTES, _MOST_COLUMNS = 16, 64 << 20, 257
_FILES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The file, byte for byte as it was signed",
        "content": {"application/json": {"schema": {}}, _PARQUET: {"schema": {"type": "string", "format": "binary"}}},
    }
}


def propose_router(agents: Agents) -> APIRouter:
    """`POST /proposals`, and `/studies/answer` before it."""
    router = APIRouter(tags=["releases"])

    @router.post("/proposals", status_code=201, openapi_extra=takes(Study, examples.STUDY))
    async def propose(
        request: Request,
        consortium: Annotated[
            str | None, Query(description="Which consortium, if this party belongs to several.")
        ] = None,
        idempotency_key: Annotated[
            str | None,
            Header(
                max_length=200,
                description="The same for the same proposal: repeated, the call proposes nothing new. Kept for 30 "
                "days.",
            ),
        ] = None,
    ) -> ProposedView:
        """Propose a release in this party's name: signed with its key, for every party to decide, this one included."""
        from commingle.party_agent.rounds.proposing import Proposing  # noqa: PLC0415 - loads scipy: only who proposes waits

        owner = "" if request.state.operator else request.state.token
        study = await document(request, Study)
        proposing = Proposing(agents, owner)
        return await run_in_threadpool(proposing.propose, study, key=idempotency_key, consortium=consortium)

    @router.post("/studies/answer", openapi_extra=takes(Study, examples.STUDY))
    async def answer(
        request: Request,
        consortium: Annotated[
            str | None, Query(description="Which consortium, if this party belongs to several.")
        ] = None,
    ) -> ProposalView:
        """Say what this party would answer to a study: as a proposal that nobody is sent. For the operator alone."""
        if not request.state.operator:
            raise ScopeError(
                "only the operator asks what this party would answer",
                remedy="On the agent's machine: commingle study check --home. A token can propose the study.",
            )
        from commingle.party_agent.rounds.proposing import Proposing  # noqa: PLC0415 - as above

        study = await document(request, Study)
        asked = await run_in_threadpool(Proposing(agents, "").tried, study, consortium=consortium)
        return await run_in_threadpool(unsent_view, agents, asked)

    return router


def files_router(agents: Agents) -> APIRouter:
    """`GET /releases/{release}/{file}`."""
    router = APIRouter(tags=["releases"])

    @router.get("/releases/{release}/{file}", response_class=StreamingResponse, responses=_FILES)
    def download(
        release: ReleaseId,
        file: Annotated[
            Literal["manifest", "matrix", "moments"],
            Path(description="Which of the three files of a published release."),
        ],
    ) -> StreamingResponse:
        """A file of a release this party was asked for, from its coordinator. `commingle verify` checks all three."""
        spec = agents.proposals.get(release).spec
        largest = _OVERHEAD_BYTES + _CELL_BYTES * _MOST_COLUMNS * max(spec.k or 0, spec.n)
        pieces = agents.of(release).client.published(release, file, largest_bytes=largest)
        return StreamingResponse(_begun(pieces), media_type=_MEDIA_TYPES.get(file, _PARQUET))

    return router


def _begun(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """What can be refused is refused before the answer's head is sent."""
    return chain([next(pieces, b"")], pieces)
