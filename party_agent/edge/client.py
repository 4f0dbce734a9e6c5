"""A party's agent, asked by the party's own programs: `commingle.PartyClient`; and how webhook messages are signed."""

import hmac
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from http import HTTPStatus
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

import httpx

from commingle.party_agent.wire.answers import (
    ARROW,
    DatasetList,
    DatasetView,
    JobList,
    JobView,
    LedgerView,
    PieceView,
    ProposalList,
    ProposalView,
    ProposedView,
    RegressionLine,
    RegressionList,
    RegressionView,
    Stage,
    StatusView,
    UploadView,
)
from commingle.party_agent.wire.local_socket import AGENT_URL, AgentTransport
from commingle.shared.documents.model import encode
from commingle.shared.documents.regression import RegressionRequest
from commingle.shared.documents.statements import SignedDocument
from commingle.shared.documents.study import Study
from commingle.shared.release.rounds import State
from commingle.shared.runtime.errors import RemoteProblemError, UnreachableError
from commingle.shared.runtime.files import write_durably
from commingle.shared.runtime.remote import Kind, call, connect, model_of, pages, reaching
from commingle.shared.text import ascii_json

HEADER = "Commingle-Signature"
_MOST_DIGITS = 15
_OLDEST_SECONDS = 300.0


def signature(secret: str, body: bytes, at: int) -> str:
    """`t=TIME,v1=HEX`: HMAC-SHA-256 under the secret of the time (seconds since 1970), a full stop and the body."""
    return f"t={at},v1={hmac.new(secret.encode(), f'{at}.'.encode() + body, sha256).hexdigest()}"


def is_signed(secret: str, body: bytes, given: str, *, now: float) -> bool:
    """Whether a message was signed with the secret, and lately: a message that is sent again has an old time in it."""
    at = given.removeprefix("t=").partition(",")[0]
    if not (at.isascii() and at.isdecimal()) or len(at) > _MOST_DIGITS:
        return False
    genuine = hmac.compare_digest(signature(secret, body, int(at)).encode(), given.encode())
    return genuine and abs(now - int(at)) <= _OLDEST_SECONDS


if TYPE_CHECKING:
    import pyarrow as pa

_TIMEOUT_SECONDS = 600.0  # the agent reads all rows before it answers that a data set is registered
_AS_LONG_AS_IT_TAKES = 7 * 86400.0
FOLLOW_SECONDS = 1.0
_LARGEST_FILE_BYTES = 8 << 30
_OVER = frozenset({None, Stage.PUBLISHED, Stage.ENDED})  # none is known where the agent was started since
_FILES = {"manifest": "manifest.json", "matrix": "matrix.parquet", "moments": "moments.json"}


class PartyClient:
    """The agent of one's own party: push rows, propose, decide, follow, read the ledger, download. Use it with `with`.

    Every call raises RemoteError where it fails, in the agent's own words, and can be repeated: rows with the same
    `upload` and `replace`, proposals with the same `key`.

    Args:
        base_url: where the agent serves its local API, https://.
        token: of `commingle party token create`, with the scopes for what is to be done.
        ca_file: PEM certificate to trust beside the system's: the agent's own.
        timeout_seconds: for each answer.
        transport: how requests travel instead, for tests and unusual networks.

    Raises:
        SettingsError: plain http to another machine, or certificates that cannot be read.
    """

    def __init__(
        self,
        base_url: str,
        *,
        token: str | None,
        ca_file: Path | None = None,
        timeout_seconds: float = _TIMEOUT_SECONDS,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        with reaching(base_url):
            self._http = connect(
                base_url,
                ca_file=ca_file,
                timeout_seconds=timeout_seconds,
                transport=transport,
                headers={} if token is None else {"Authorization": f"Bearer {token}"},
            )

    @classmethod
    def at_home(cls, home: Path | str) -> Self:
        """The agent of a home on this machine, by its socket, as its operator: without a token."""
        return cls(AGENT_URL, token=None, transport=AgentTransport(Path(home) / "agent.sock"))

    @classmethod
    def over(cls, way: httpx.BaseTransport, *, token: str | None = None) -> Self:
        """An agent on this machine, by a way to it; answers may take as long as a large table takes."""
        return cls(AGENT_URL, token=token, transport=way, timeout_seconds=_AS_LONG_AS_IT_TAKES)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def status(self) -> StatusView:
        """Who the agent is and how it is. Scope `read`."""
        return self._get(StatusView, "/v1/status")

    def datasets(self) -> tuple[DatasetView, ...]:
        """Registered data sets. Scope `read`."""
        return self._get(DatasetList, "/v1/datasets").items

    def register(self, dataset: Mapping[str, Any], *, replace: bool = False) -> DatasetView:
        """Declare and read a data set, as the body of `POST /v1/datasets`. For the operator: no token does."""
        params = {"replace": str(replace).lower()}
        return self._send(DatasetView, "POST", "/v1/datasets", ascii_json(dataset), params=params)

    def read_again(self, dataset: str) -> DatasetView:
        """Have a declared data set read again, behind the answer. Scope `register`."""
        return self._send(DatasetView, "POST", f"/v1/datasets/{quote(dataset, safe='')}/reading", b"")

    def push(
        self,
        dataset: str,
        rows: "pa.Table | Iterable[Mapping[str, Any]]",
        *,
        upload: str | None = None,
        rows_at_once: int = 20_000,
    ) -> DatasetView:
        """Send rows of a data set that its owner declared as pushed, in place of those it has. Scope `register`.

        Args:
            dataset: its name.
            rows: an Arrow table, or mappings of column names to values.
            upload: the same for the same rows, to go on with what was interrupted; None for a new one.
            rows_at_once: in a piece.

        Raises:
            RemoteError: also where a row is refused, by its number in its piece and its column.
        """
        place = f"/v1/datasets/{quote(dataset, safe='')}/uploads/{quote(upload or secrets.token_hex(8), safe='')}"
        present = set(self._send(UploadView, "PUT", place, b"").pieces)
        number = 0
        for number, piece in enumerate(_streams(rows, rows_at_once), start=1):
            if number not in present:
                self._send(PieceView, "PUT", f"{place}/pieces/{number}", piece, media_type=ARROW)
        return self._send(DatasetView, "POST", f"{place}/close", ascii_json({"pieces": number}))

    def propose(self, study: Study, *, key: str | None = None, consortium: str | None = None) -> ProposedView:
        """Propose a release in this member's name; every member that it names has to approve it. Scope `propose`.

        `key`: the same for the same proposal. `consortium`: which, where the member belongs to more than one.
        """
        headers = {"Idempotency-Key": key or secrets.token_hex(16)}
        params = {} if consortium is None else {"consortium": consortium}
        return self._send(ProposedView, "POST", "/v1/proposals", encode(study), headers=headers, params=params)

    def answer(self, study: Study, *, consortium: str | None = None) -> ProposalView:
        """What this member would answer to a study, as a proposal that nobody is sent. For the operator alone."""
        params = {} if consortium is None else {"consortium": consortium}
        return self._send(ProposalView, "POST", "/v1/studies/answer", encode(study), params=params)

    def proposals(self) -> tuple[ProposalView, ...]:
        """Everything this member has been asked, the newest first. Scope `read`."""
        return tuple(item for page in pages("the agent", self._proposals) for item in page.items)

    def proposal_page(self, *, waiting: bool, after: str | None = None, limit: int = 50) -> ProposalList:
        """Proposals that wait for a decision, or those that do not, the newest first. Scope `read`.

        `after`: `next` of the page before. `limit`: how many at most, up to 200.
        """
        return self._proposals(after, waiting="true" if waiting else "false", limit=str(limit))

    def _proposals(self, after: str | None, **params: str) -> ProposalList:
        return self._get(ProposalList, "/v1/proposals", params if after is None else {**params, "after": after})

    def proposal(self, release: str) -> ProposalView:
        """One proposal. Scope `read`."""
        return self._get(ProposalView, f"/v1/proposals/{release}")

    def approve(self, release: str, *, by: str = "", why: str = "") -> ProposalView:
        """Approve: reserves the budget and signs. Who decides, and why, stays in its ledger. Scope `decide`."""
        return self._decide(release, "approval", by, why)

    def reject(self, release: str, *, by: str = "", why: str = "") -> ProposalView:
        """Reject, or withdraw after an approval. Scope `decide`."""
        return self._decide(release, "rejection", by, why)

    def jobs(self) -> tuple[JobView, ...]:
        """What was done since the agent started. Scope `read`."""
        return self._get(JobList, "/v1/jobs").items

    def job(self, release: str) -> JobView:
        """Progress on one release. Scope `read`."""
        return self._get(JobView, f"/v1/jobs/{release}")

    def wait(self, release: str, *, seconds: float) -> ProposalView:
        """A proposal once it is published or over. Scope `read`. Raises UnreachableError if it is not by then."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            with suppress(UnreachableError):  # the agent may be started anew meanwhile
                if (found := self._over(release)) is not None:
                    return found
            time.sleep(FOLLOW_SECONDS)
        raise UnreachableError(
            f"the release is not over after {seconds:g} seconds", remedy="See GET /v1/jobs; wait again."
        )

    def ledger(self, release: str | None = None) -> LedgerView:
        """Budget and charges: all, or the one of a release. Scope `read`."""
        if release is not None:
            return self._get(LedgerView, "/v1/ledger", {"release": release})
        newest, *earlier = pages("the agent", self.ledger_page)
        charges = (charge for page in (*earlier[::-1], newest) for charge in page.charges)
        return newest.model_copy(update={"charges": tuple(charges), "next": None})

    def ledger_page(self, before: str | None = None, *, limit: int = 200) -> LedgerView:
        """Budget and some charges: the newest, or those before `next` of another page. Scope `read`."""
        asked = {"limit": str(limit)} if before is None else {"limit": str(limit), "before": before}
        return self._get(LedgerView, "/v1/ledger", asked)

    def regress(self, request: RegressionRequest) -> RegressionView:
        """Pay for, compute and sign a regression; the same request again costs nothing. Scope `decide`."""
        return self._send(RegressionView, "POST", "/v1/regressions", encode(request))

    def regressions(self) -> tuple[RegressionLine, ...]:
        """Every regression that was paid for, the newest first. Scope `read`."""
        return self._get(RegressionList, "/v1/regressions").items

    def regression(self, regression: str) -> RegressionView:
        """One of them with its signed document. Scope `read`."""
        return self._get(RegressionView, f"/v1/regressions/{regression}")

    def audit(self) -> SignedDocument:
        """The ledger's whole chain with everything this member has signed, signed for an auditor. Scope `read`."""
        return self._get(SignedDocument, "/v1/audit")

    def download(self, release: str, folder: Path | str) -> Path:
        """Write the three files of a published release, for `Release.load`, which verifies them. Scope `read`."""
        for name, file in _FILES.items():
            path = f"/v1/releases/{release}/{name}"
            answer = call(self._http, "GET", path, largest_bytes=_LARGEST_FILE_BYTES, own=True)
            write_durably(Path(folder) / file, answer.content, mode=0o644)
        return Path(folder)

    @staticmethod
    def is_from_agent(secret: str, body: bytes, signature: str) -> bool:
        """Whether a message of the webhook was signed with its secret within five minutes of now.

        `body` is as it was received, `signature` its header `Commingle-Signature`.
        """
        return is_signed(secret, body, signature, now=time.time())

    def _over(self, release: str) -> ProposalView | None:
        stages = {job.release: job.stage for job in self.jobs()}
        if stages.get(release) not in _OVER:
            return None
        try:
            found = self.proposal(release)
        except RemoteProblemError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            return None
        return found if State(found.state).final else None

    def _decide(self, release: str, decision: str, by: str, why: str) -> ProposalView:
        body = ascii_json({"by": by, "why": why})
        return self._send(ProposalView, "PUT", f"/v1/proposals/{release}/{decision}", body)

    def _get(self, kind: type[Kind], path: str, params: Mapping[str, str] | None = None) -> Kind:
        answer = call(self._http, "GET", path, params=params, largest_bytes=_LARGEST_FILE_BYTES, own=True)
        return model_of(kind, answer)

    def _send(
        self,
        kind: type[Kind],
        method: str,
        path: str,
        body: bytes,
        *,
        media_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
    ) -> Kind:
        sent = {"Content-Type": media_type, **(headers or {})}
        return model_of(kind, call(self._http, method, path, content=body, headers=sent, params=params, own=True))


def _streams(rows: "pa.Table | Iterable[Mapping[str, Any]]", at_once: int) -> Iterator[bytes]:
    import pyarrow as pa  # noqa: PLC0415 - who only decides needs none

    if isinstance(rows, pa.Table):
        parts: Iterator[pa.Table] = (rows.slice(start, at_once) for start in range(0, rows.num_rows, at_once))
    else:
        mappings = (dict(row) for row in rows)
        parts = map(pa.Table.from_pylist, iter(lambda: list(islice(mappings, at_once)), []))
    for part in parts:
        plain = [
            column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
            for column in part.columns
        ]
        table = pa.table(plain, names=part.column_names)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        yield sink.getvalue().to_pybytes()
