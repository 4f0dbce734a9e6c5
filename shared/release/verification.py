"""Checking a release offline: who signed what, also in the matrix (docs/design/documents.md#verification).

No word of a coordinator counts: everything that follows from the spec is computed again, every signature is checked
over the received bytes, and each party's columns are compared with its own signature.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from math import isclose
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.dsse import Fingerprint, Verified, VerifyingKey
from commingle.shared.documents.manifest import Manifest, PrivacyStatement, SecondMoments
from commingle.shared.documents.model import decode
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.statements import (
    BlockStatement,
    SignedDocument,
    Sums,
    approval_set_digest,
    open_approvals,
    open_statement,
)
from commingle.shared.errors import VerificationError, require
from commingle.shared.mechanisms import mechanism_of
from commingle.shared.release.checks import open_spec
from commingle.shared.release.matrix import content_digest, decode_matrix, second_moments
from commingle.shared.release.plan import plan_block, privacy_statement, published_columns
from commingle.shared.text import counted

_REMEDY = "Do not use this release; ask its coordinator and members which bytes they signed."
_require = partial(require, remedy=_REMEDY)
_TOLERANCE = 1e-9
_Rows = Sequence[Sequence[float]]
_NOBODY: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class PublishedRelease:
    """A release that has been checked in full."""

    release: str  # its id, the digest of the spec
    coordinator: Fingerprint
    spec: ReleaseSpec
    manifest: Manifest
    moments: SecondMoments
    findings: tuple[str, ...]
    # parties whose keys were compared with known keys; the keys of all others chose their own names
    pinned: frozenset[str]
    sums: Mapping[str, Sums]  # the published sums of each party with a first stage

    @property
    def members(self) -> dict[str, dict[str, str | bool]]:
        """Each party's key as a fingerprint, and whether it is pinned; ready for JSON."""
        parties = ((party.name, party.verifying_key.fingerprint) for party in self.spec.parties)
        return {name: {"fingerprint": key, "pinned": name in self.pinned} for name, key in parties}

    @property
    def signers(self) -> tuple[str, ...]:
        return tuple(called(party.name, pinned=party.name in self.pinned) for party in self.spec.parties)

    @property
    def size(self) -> str:
        """What was published about how many people, in words."""
        what, columns = mechanism_of(self.spec).publishes, counted(len(self.spec.matrix_columns), "column")
        rows = f"{self.moments.rows:,} {what} x" if mechanism_of(self.spec).of_rows else f"{what} of"
        return f"{rows} {columns} on {self.spec.n:,} people"


def called(name: str, *, pinned: bool) -> str:
    """What to call a party: its name only if its key is known, because any key can call itself anything."""
    return name if pinned else f"a key that calls itself {name}"


def open_manifest(data: bytes, *, trusted_coordinator: str | None) -> Verified[Manifest]:
    """A manifest that the trusted coordinator signed, or anybody if that is None; its contents are not checked.

    Raises VerificationError, SignatureError, DocumentError: it is not one.
    """
    opened = decode(SignedDocument, data).open(Manifest)
    if trusted_coordinator is not None and opened.signer != trusted_coordinator:
        raise VerificationError(
            f"the manifest is signed by {opened.signer[:16]}, not by the trusted coordinator",
            remedy="Compare fingerprints with the coordinator's operator over another channel.",
        )
    return opened


def verify_release(
    manifest: bytes,  # JSON, signed
    matrix: bytes,  # Parquet
    moments: bytes,  # JSON
    *,
    trusted_coordinator: str | None,  # fingerprint of the manifest's key; None accepts any, and the findings say so
    members: Mapping[str, str] = _NOBODY,  # fingerprints for names; others are accepted, and the findings say so
) -> PublishedRelease:
    """Check the three published files of a release against each other and every signature.

    Raises VerificationError, SignatureError, DocumentError: naming the first thing that does not hold.
    """
    opened = open_manifest(manifest, trusted_coordinator=trusted_coordinator)
    document = opened.document
    spec = _verify_spec(document)
    pinned = _verify_members(spec.document, members)
    statements = _verify_parties(document, spec)
    _require(sha256(matrix).hexdigest() == document.matrix_sha256, "the matrix file is not the one that was signed")
    _require(
        sha256(moments).hexdigest() == document.moments_sha256,
        "the moments are not the ones that were signed",
    )
    integers = decode_matrix(spec.document, matrix)
    _verify_columns(spec.document, integers, statements)
    parsed = decode(SecondMoments, moments)
    _verify_moments(spec, parsed, integers)
    return PublishedRelease(
        release=spec.digest,
        coordinator=opened.signer,
        spec=spec.document,
        manifest=document,
        moments=parsed,
        findings=_findings(opened, spec, trusted=trusted_coordinator is not None, pinned=pinned),
        pinned=pinned,
        sums={name: statement.sums for name, statement in statements.items() if statement.sums is not None},
    )


def _verify_spec(manifest: Manifest) -> Verified[ReleaseSpec]:
    spec = open_spec(manifest.spec, [VerifyingKey.from_hex(manifest.proposer_key)])
    document = spec.document
    _require(spec.digest == manifest.release, "the manifest names another release than the spec's digest")
    _require(manifest.columns == published_columns(document), "the manifest's columns do not follow from the spec")
    mechanism, terms = mechanism_of(document), document.terms
    _require(manifest.step == mechanism.step(terms), "the manifest's step does not follow from the spec")
    _require(manifest.rows == mechanism.rows(terms), "the manifest's rows do not follow from the spec")
    claimed, computed = manifest.privacy, privacy_statement(document)
    apart = {"per_party", "per_subject", "per_subject_outsiders"}
    said = claimed.model_dump(exclude=apart) == computed.model_dump(exclude=apart)
    same = said and _stated(claimed) == _stated(computed)
    pairs = [
        (getattr(a, field), getattr(b, field))
        for ours, theirs in zip(computed.scopes, claimed.scopes, strict=False)
        for a, b in zip(ours.stated, theirs.stated, strict=False)
        for field in ("rho", "epsilon", "guess_percent")
    ]
    agree = all(isclose(a, b, rel_tol=_TOLERANCE) for a, b in pairs)
    _require(same and agree, "the manifest's privacy statement does not follow from the spec")
    return spec


def _stated(privacy: PrivacyStatement) -> tuple[list[tuple[str, bool]], bool, list[int]]:
    # the places of losses: a figure in another place would say something else
    parties = [(party.party, party.first_stage is None) for party in privacy.per_party]
    return parties, privacy.per_subject_outsiders is None, [len(scope.stated) for scope in privacy.scopes]


def _verify_members(spec: ReleaseSpec, members: Mapping[str, str]) -> frozenset[str]:
    for party in spec.parties:
        key = party.verifying_key.fingerprint
        if members.get(party.name, key) != key:
            raise VerificationError(
                f"{party.name} is pinned with key {members[party.name]}, and the release names {key} for it",
                remedy="Ask that member over another channel which key it signed with; if not this, it is forged.",
            )
    return frozenset(members) & {party.name for party in spec.parties}


def _verify_parties(manifest: Manifest, spec: Verified[ReleaseSpec]) -> dict[str, BlockStatement]:
    names = {party.name for party in spec.document.parties}
    _require(set(manifest.approvals) == names, "the approvals are not those of the spec's members")
    _require(set(manifest.blocks) == names, "the blocks are not those of the spec's members")
    relied_on = approval_set_digest(open_approvals(manifest.approvals, spec))
    statements = {}
    for party in spec.document.parties:
        statement = open_statement(manifest.blocks[party.name], BlockStatement, party, spec=spec.digest).document
        plan = plan_block(spec.document, party)
        _require(statement.approvals == relied_on, f"{party.name} relied on another set of approvals")
        _require(plan.describes(statement), f"{party.name} signed another shape or noise than the spec calls for")
        statements[party.name] = statement
    transcripts = {statement.transcript for statement in statements.values()}
    exchanged = len(transcripts) == 1 and (None not in transcripts) is mechanism_of(spec.document).interactive
    _require(exchanged, "the members' blocks do not come from one exchange")
    return statements


def _verify_columns(spec: ReleaseSpec, matrix: NDArray[np.int64], statements: Mapping[str, BlockStatement]) -> None:
    intercept = np.column_stack([mechanism_of(spec).intercept(spec.terms)])
    start = intercept.shape[1]
    _require(np.array_equal(matrix[:, :start], intercept), "the intercept column does not follow from the spec")
    for party in spec.parties:
        end = start + len(party.block_columns)
        same = content_digest(matrix[:, start:end]) == statements[party.name].content_sha256
        _require(same, f"the columns of {party.name} are not the ones it signed")
        start = end


def _verify_moments(spec: Verified[ReleaseSpec], moments: SecondMoments, matrix: NDArray[np.int64]) -> None:
    expected = second_moments(spec.document, spec.digest, matrix)
    figures = {"gram", "noise_variance", "entry_variance"}
    _require(
        moments.model_dump(exclude=figures) == expected.model_dump(exclude=figures),
        "the moments describe another release",
    )
    _require(
        _close([moments.noise_variance], [expected.noise_variance])
        and _close(moments.entry_variance or (), expected.entry_variance or ()),
        "the moments' noise does not follow from the spec",
    )
    # each entry at its own scale: |G_ij| <= sqrt(G_ii G_jj), and columns may differ by orders of magnitude
    scale = np.sqrt(np.abs(np.diag(np.array(expected.gram))))
    _require(
        _close(moments.gram, expected.gram, allowed=_TOLERANCE * np.outer(scale, scale)),
        "the moments are not those of the matrix",
    )


def _close(claimed: _Rows, computed: _Rows, allowed: NDArray[np.float64] | None = None) -> bool:
    if [len(row) for row in claimed] != [len(row) for row in computed]:
        return False
    expected = np.array(computed)
    tolerance = _TOLERANCE * np.abs(expected) if allowed is None else allowed
    return bool(np.all(np.abs(np.array(claimed) - expected) <= tolerance))


def _findings(
    manifest: Verified[Manifest], spec: Verified[ReleaseSpec], *, trusted: bool, pinned: frozenset[str]
) -> tuple[str, ...]:
    parties = spec.document.parties
    whose = "the trusted coordinator" if trusted else "a coordinator you have not pinned"
    signers = [(called(p.name, pinned=p.name in pinned), p.verifying_key.fingerprint) for p in parties]
    scaled = [called(p.name, pinned=p.name in pinned) for p in parties if p.mapped_by_sums]
    return (
        f"manifest signed by {whose}, key {manifest.signer}",
        f"spec proposed by key {spec.signer}",
        *(f"{who} approved and signed its block, key {key}" for who, key in signers),
        "every member's columns in the matrix are the integers it signed",
        "intercept, columns, noise, step and privacy statement follow from the spec",
        "the moments are those of the matrix",
        *(f"{who} signed the sums by which its columns are undone" for who in scaled),
    )
