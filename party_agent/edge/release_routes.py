"""Endpoints for releases: proposing them, deciding on them, following them, and fetching what was published."""

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Path, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse
from pydantic import Field

from commingle.party_agent.edge.api import NOTE, STUDY, LocalApi, document, ruling_of
from commingle.party_agent.edge.views import MOST_AT_ONCE, job_view, proposal_view, proposal_views, unsent_view
from commingle.party_agent.errors import NotFoundError
from commingle.party_agent.rounds.forecasts import Forecasts
from commingle.party_agent.rounds.proposals import DecisionNote, Proposal
from commingle.party_agent.wire.answers import JobList, JobView, ProposalList, ProposalView, ProposedView
from commingle.shared.documents.model import Digest
from commingle.shared.documents.study import Study
from commingle.shared.release.ledger_fold import Ruling
from commingle.shared.runtime.errors import ScopeError
from commingle.shared.runtime.problem import QueryParameters, takes

Consortium = Annotated[str | None, Query(description="Which consortium, if this member belongs to several.")]
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


class ProposalsQuery(QueryParameters):
    """Which proposals."""

    waiting: bool | None = Field(None, description="Those that wait for a decision, or the others; without it all.")
    after: Digest | None = Field(None, description="`next` of the page before.")
    limit: int = Field(MOST_AT_ONCE, ge=1, le=MOST_AT_ONCE, description="How many at most.")


def release_routes(api: LocalApi) -> APIRouter:
    """`/proposals` and `/jobs`."""
    router, agents = APIRouter(), api.agents

    def forecasts() -> Forecasts:
        return Forecasts(agents.store, asked_here=api.loops is None)

    @router.get("/proposals")
    def proposals(request: Request, query: Annotated[ProposalsQuery, Query()]) -> ProposalList:
        """What this member has been asked, a page at a time; how many cells are missing the operator alone is shown."""
        found = agents.proposals.page(waiting=query.waiting, after=query.after, limit=query.limit + 1)
        items = proposal_views(agents, found[: query.limit], forecasts(), request.state.viewer)
        return ProposalList(items=items, next=items[-1].id if len(found) > query.limit else None)

    @router.get("/proposals/{release}")
    def proposal(release: ReleaseId, request: Request) -> ProposalView:
        """One proposal."""
        return proposal_view(agents, agents.proposals.get(release), forecasts(), request.state.viewer)

    @router.put("/proposals/{release}/approval", openapi_extra=takes(DecisionNote, NOTE, required=False))
    async def approve(request: Request, release: ReleaseId) -> ProposalView:
        """Approve: reserves the budget and signs. Who decided, and why, stays in this member's chain.

        Where the policy asks for two people, the first approval is noted and reserves nothing; the second, of another
        person, does.
        """
        return await decide(request, agents.approve, release)

    @router.put("/proposals/{release}/rejection", openapi_extra=takes(DecisionNote, NOTE, required=False))
    async def reject(request: Request, release: ReleaseId) -> ProposalView:
        """Reject, or withdraw after an approval. The reason goes to the members; who decided stays in this chain."""
        return await decide(request, agents.reject, release)

    async def decide(request: Request, decision: Callable[[str, Ruling], Proposal], release: str) -> ProposalView:
        decided = await run_in_threadpool(decision, release, await ruling_of(request))
        return await run_in_threadpool(proposal_view, agents, decided, forecasts(), request.state.viewer)

    @router.get("/jobs")
    def jobs(request: Request) -> JobList:
        """What has been done since the agent started; how far it is, in rows, is shown to the operator only."""
        return JobList(items=tuple(job_view(job, request.state.viewer) for job in agents.jobs.all()))

    @router.get("/jobs/{release}")
    def job(release: ReleaseId, request: Request) -> JobView:
        """Progress on one release."""
        found = agents.jobs.get(release)
        if found is None:
            raise NotFoundError("nothing has been done for this release", remedy="List the jobs: GET /v1/jobs")
        return job_view(found, request.state.viewer)

    return router


def propose_routes(api: LocalApi) -> APIRouter:
    """`POST /proposals`, and `/studies/answer` before it."""
    router, agents = APIRouter(tags=["releases"]), api.agents

    @router.post("/proposals", status_code=201, openapi_extra=takes(Study, STUDY))
    async def propose(
        request: Request,
        consortium: Consortium = None,
        idempotency_key: Annotated[
            str | None,
            Header(
                max_length=200,
                description="The same for the same proposal: repeated, the call proposes nothing new. Kept for 30 "
                "days.",
            ),
        ] = None,
    ) -> ProposedView:
        """Propose a release in this member's name: signed with its key, for all to decide, this one included."""
        from commingle.party_agent.rounds.proposing import Proposing  # noqa: PLC0415 - loads scipy: only who proposes waits

        owner = "" if request.state.operator else request.state.token
        study = await document(request, Study)
        proposing = Proposing(agents, owner)
        return await run_in_threadpool(proposing.propose, study, key=idempotency_key, consortium=consortium)

    @router.post("/studies/answer", openapi_extra=takes(Study, STUDY))
    async def answer(
        request: Request,
        consortium: Consortium = None,
    ) -> ProposalView:
        """Say what this member would answer to a study: as a proposal that nobody is sent. For the operator alone."""
        if not request.state.operator:
            raise ScopeError(
                "only the operator asks what this member would answer",
                remedy="On the agent's machine: commingle study check --home. A token can propose the study.",
            )
        from commingle.party_agent.rounds.proposing import Proposing  # noqa: PLC0415 - as above

        study = await document(request, Study)
        asked = await run_in_threadpool(Proposing(agents, "").tried, study, consortium=consortium)
        return await run_in_threadpool(unsent_view, agents, asked)

    return router


def file_routes(api: LocalApi) -> APIRouter:
    """`GET /releases/{release}/{file}`."""
    router, agents = APIRouter(tags=["releases"]), api.agents

    @router.get("/releases/{release}/{file}", response_class=StreamingResponse, responses=_FILES)
    def download(
        release: ReleaseId,
        file: Annotated[
            Literal["manifest", "matrix", "moments"],
            Path(description="Which of the three files of a published release."),
        ],
    ) -> StreamingResponse:
        """A file of a release this member was asked for, from its coordinator. `commingle verify` checks all three."""
        spec = agents.proposals.get(release).spec
        largest = _OVERHEAD_BYTES + _CELL_BYTES * _MOST_COLUMNS * max(spec.k or 0, spec.n)
        pieces = agents.of(release).client.published(release, file, largest_bytes=largest)
        return StreamingResponse(_begun(pieces), media_type=_MEDIA_TYPES.get(file, _PARQUET))

    return router


def _begun(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """What can be refused is refused before the answer's head is sent."""
    return chain([next(pieces, b"")], pieces)
