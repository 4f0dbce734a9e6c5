"""Reading a coordinator: its lists unverified, releases only after verification."""

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

import httpx

from commingle.services.client.files import (
    NO_MEMBERS,
    ReleaseCache,
    ReleaseFiles,
    fingerprint,
    largest_matrix,
    member_pins,
)
from commingle.services.client.release import Release
from commingle.services.errors import UnknownReleaseError, UnpublishedError
from commingle.shared.documents.dsse import Fingerprint, VerifyingKey
from commingle.shared.errors import ProtocolError, VerificationError
from commingle.shared.release.audit import (
    VerifiedLog,
    confirm_by_log,
    require_continues,
    require_pinned,
    verify_member_log,
)
from commingle.shared.runtime.coordinator_client import CoordinatorClient
from commingle.shared.runtime.errors import RemoteProblemError, SettingsError
from commingle.shared.runtime.remote import LARGEST_ANSWER_BYTES, call, connect, json_of
from commingle.shared.wire import CoordinatorIdentity, ReleasePage, ReleaseSummary

_PAGE = 100
_RELEASE_ID = re.compile(r"[0-9a-f]{64}")
_NOT_FOUND, _CONFLICT = 404, 409
_log = logging.getLogger(__name__)


class ReleaseClient:
    """A client that reads a coordinator. Several threads may share it.

    Args:
        base_url: where the coordinator listens.
        trusted_coordinator: fingerprint of the key that must have signed its manifests; None accepts any key.
        members: fingerprints, by name, of members whose keys you know. The client refuses a release that names another
            key for one of them. `Release.published.pinned` says which members of a release are among these.
        cache: directory that keeps verified releases by digest; None keeps nothing. It only ever grows. It also keeps
            the coordinator's newest log of member keys: the client then refuses releases whose keys are not in the
            log, and a log that does not continue the one kept.
        token: bearer token of scope `read`, for coordinators where reading is not public.
        ca_file: PEM certificates of authorities to trust beside the system's.
        allow_http: also speak plain http to another machine.
        timeout_seconds: for connecting and for each read.
        transport: how requests travel, for tests and for unusual networks.

    Raises SettingsError: the address or a fingerprint is malformed, or the address is plain http to another machine.
    """

    def __init__(
        self,
        base_url: str,
        *,
        trusted_coordinator: str | None = None,
        members: Mapping[str, str] = NO_MEMBERS,
        cache: Path | str | None = None,
        token: str | None = None,
        ca_file: Path | None = None,
        allow_http: bool = False,
        timeout_seconds: float = 30.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.trusted_coordinator = fingerprint(trusted_coordinator)
        self.members = member_pins(members)
        self._cache = None if cache is None else ReleaseCache(Path(cache))
        http = connect(
            str(_checked_url(base_url)),
            ca_file=ca_file,
            allow_http=allow_http,
            timeout_seconds=timeout_seconds,
            transport=transport,
            headers={} if token is None else {"Authorization": f"Bearer {token}"},
        )
        self._calls = CoordinatorClient(http)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close connections."""
        self._calls.http.close()

    @property
    def base_url(self) -> str:
        """Where the coordinator listens."""
        return self._calls.url

    @property
    def cache(self) -> ReleaseCache | None:
        """The cache on disk."""
        return self._cache

    def coordinator(self, *, timeout_seconds: float | None = None) -> CoordinatorIdentity:
        """The coordinator that answers.

        Raises RemoteError: nobody answers, or something else does; VerificationError: it is not the trusted one.
        """
        identity = self._calls.identity(timeout_seconds=timeout_seconds)
        actual = VerifyingKey.from_hex(identity.signing_key).fingerprint
        if actual != (self.trusted_coordinator or identity.fingerprint):
            raise VerificationError(
                f"{self.base_url} signs with key {actual[:16]}, not with the one expected",
                remedy="Compare fingerprints with the coordinator's operator over another channel.",
            )
        return identity

    def releases(self, state: str | None = "published") -> Iterator[ReleaseSummary]:
        """All releases in a state (None for any), page by page. Raises RemoteError while iterating."""
        return self._calls.listed(state=state)

    def page(self, *, state: str | None = "published", cursor: str | None = None, limit: int = _PAGE) -> ReleasePage:
        """One page of the list. Raises RemoteError."""
        return self._calls.release_page(state=state, cursor=cursor, limit=limit)

    def member_log(self, *, coordinator: Fingerprint | None = None) -> tuple[VerifiedLog, bytes]:
        """Every key that the coordinator has had for every member, verified, and the signed log as served.

        Args:
            coordinator: the coordinator that must have signed the log; by default the trusted one, or the one that
                answers.

        Raises:
            RemoteError: the coordinator does not answer, or not as one.
            VerificationError, SignatureError, DocumentError: the log does not hold, does not continue the one in the
                cache, or has another key for a pinned member.
        """
        signer = coordinator or self.trusted_coordinator or self.coordinator().fingerprint
        kept = self._kept_log(signer)  # before the download: another one may overtake it
        data = self._calls.member_log()
        log = verify_member_log(data, trusted_coordinator=signer)
        if kept is not None:
            require_continues(kept, log)
        require_pinned(log, self.members)
        if self._cache is not None:
            self._cache.put_member_log(signer, data)
        return log, data

    def fetch(self, release_id: str) -> Release:
        """Download a release, or take it from the cache, and verify it either way.

        Raises:
            UnknownReleaseError, UnpublishedError: there is no such release, or it is not published.
            RemoteError: the coordinator does not answer, or not as one.
            VerificationError, SignatureError, DocumentError: the release does not hold.
        """
        if not _RELEASE_ID.fullmatch(release_id):
            raise UnknownReleaseError(
                f"{release_id[:80]!r} is not a release id",
                remedy="Give all 64 hex digits of the id; the list of releases has them.",
            )
        cached = self._cached(release_id)
        if cached is not None:
            return cached
        files = self._download(release_id)
        release = self._verified(release_id, files)
        if self._cache is not None:
            log, _ = self.member_log(coordinator=release.published.coordinator)
            confirm_by_log(log, release.spec)
            self._cache.put(release_id, files)
        return release

    def _kept_log(self, signer: str) -> VerifiedLog | None:
        data = self._cache.member_log(signer) if self._cache is not None else None
        if data is None:
            return None
        try:
            return verify_member_log(data, trusted_coordinator=signer)
        except ProtocolError as error:
            _log.warning("the cached log of member keys is not used: %s", error)
            return None

    def _cached(self, release_id: str) -> Release | None:
        files = self._cache.get(release_id) if self._cache is not None else None
        if files is None:
            return None
        try:
            return self._verified(release_id, files)
        except ProtocolError as error:
            _log.warning("cached release %s is not used: %s", release_id[:16], error)
            return None

    def _download(self, release_id: str) -> ReleaseFiles:
        manifest, moments = (self._file(release_id, name) for name in ("manifest", "moments"))
        for document in (manifest, moments):
            json_of(document)  # so that an error says if a proxy sent a page
        largest_bytes = largest_matrix(manifest.content, trusted_coordinator=self.trusted_coordinator)
        matrix = self._file(release_id, "matrix", largest_bytes=largest_bytes)
        return ReleaseFiles(manifest.content, matrix.content, moments.content)

    def _file(self, release_id: str, name: str, *, largest_bytes: int = LARGEST_ANSWER_BYTES) -> httpx.Response:
        try:
            return call(self._calls.http, "GET", f"/v1/releases/{release_id}/{name}", largest_bytes=largest_bytes)
        except RemoteProblemError as error:
            if error.status == _NOT_FOUND:
                raise UnknownReleaseError(
                    f"{self.base_url} has no release {release_id[:16]}…", remedy="Check the id and the address."
                ) from None
            if error.status == _CONFLICT:
                raise UnpublishedError(str(error), remedy=error.remedy) from None
            raise

    def _verified(self, release_id: str, files: ReleaseFiles) -> Release:
        release = Release.of(files, trusted_coordinator=self.trusted_coordinator, members=self.members)
        if release.id != release_id:
            raise VerificationError(
                f"release {release.id[:16]} came in answer to a request for {release_id[:16]}",
                remedy="Do not use this coordinator; report it to its operator.",
            )
        return release


def _checked_url(text: str) -> httpx.URL:
    with suppress(httpx.InvalidURL, UnicodeError):  # the latter of a host's name
        url = httpx.URL(text)
        if url.scheme in {"http", "https"} and url.host:
            return url
    raise SettingsError(f"{text!r} is not an address", remedy="Give a URL such as https://coordinator.example.")
