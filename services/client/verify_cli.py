"""`commingle verify` and `commingle members`: who signed what.

The first checks a release with the histories beside it, or a member's regression, offline. The second checks a
coordinator's log of member keys, and compares it with the one seen last.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from commingle.services.client.files import WRITABLE, ReleaseFiles, fingerprint, require_parties
from commingle.services.client.metadata import citation
from commingle.services.client.options import CoordinatorAccess, access_options, coordinator_key_option, member_option
from commingle.services.errors import ReleaseDirectoryError, write_for_everyone
from commingle.shared.documents.dsse import payload_type
from commingle.shared.documents.manifest import PrivacyStatement, ScopedLoss
from commingle.shared.documents.model import as_written, decode
from commingle.shared.documents.regression import VerifiedRegression, verify_regression
from commingle.shared.documents.spec import StatedPurpose
from commingle.shared.documents.statements import SignedDocument
from commingle.shared.errors import DocumentError
from commingle.shared.release.audit import (
    CoordinatorAudit,
    MemberLog,
    PartyAudit,
    VerifiedLog,
    confirm_by_coordinator,
    confirm_by_log,
    confirm_by_party,
    verify_coordinator_audit,
    verify_member_log,
    verify_party_audit,
)
from commingle.shared.release.verification import PublishedRelease, called
from commingle.shared.runtime.cli import A_FOLDER, A_PATH, NEW_FILE, emit, reads
from commingle.shared.runtime.console import coefficients
from commingle.shared.runtime.files import LARGEST_HISTORY_BYTES, read_plain
from commingle.shared.text import quoted

_AUDIT_FILES = "audit-*.json"
_WHAT_IT_IS = (
    "A name here is what a key calls itself. Compare your own keys with this list, and the head with what others see: "
    "keys that nobody knows, or two heads, mean that the coordinator makes up members."
)
_RELEASE_NOT_PINNED = (
    "The coordinator's key was not pinned: the author of this directory may have made up coordinator and members. "
    "Give --coordinator-key, or compare the fingerprints above with people you know."
)
_MEMBERS_NOT_PINNED = (
    "Nothing shows that these keys are theirs: {names}. The holder of the coordinator's key can make up members. Ask "
    "them for their fingerprints and give --member NAME=FINGERPRINT."
)
_PARTY_NOT_PINNED = (
    "The member's key was not compared with one you know: the author of this file may have made up the member. Give "
    "--party-key. Only the member knows if rows were as stated and noise was drawn; its audit export shows "
    "that the loss was charged."
)


@click.command(
    epilog="""\b
Examples:
  commingle verify ./release --coordinator-key FINGERPRINT
  commingle verify ./release --coordinator-key FINGERPRINT --member charite=FINGERPRINT --member mayo=FINGERPRINT
  commingle verify ./release --json
  commingle verify regression.json --party-key FINGERPRINT
"""
)
@click.argument("directory", metavar="DIR|FILE", type=A_PATH)
@coordinator_key_option
@member_option
@click.option("--party-key", metavar="FINGERPRINT", help="Expected fingerprint of the member's key (regressions only).")
@click.option(
    "--replacement",
    is_flag=True,
    help="For keyed data sets: also show the privacy loss when a person's values change and the person stays.",
)
@reads(
    {
        "release": str,
        "study": str,
        "stated": StatedPurpose,
        "mechanism": str,
        "n": int,
        "buckets": int | None,
        "kept": int | None,
        "rows": int,
        "columns": list[str],
        "coordinator": str,
        "coordinator_pinned": bool,
        "members": dict[str, dict[str, str | bool]],
        "published": datetime,
        "citation": str,
        "findings": list[str],
        "evidence": list[str],
        "privacy": dict[str, Any],
    },
    {
        "regression": str,
        "party": str,
        "signer": str,
        "party_pinned": bool,
        "findings": list[str],
        "method": str,
        "target": str,
        "n": int,
        "coefficients": list[dict[str, Any]],
        "privacy": dict[str, Any],
    },
)
def verify(
    *,
    directory: Path,
    coordinator_key: str | None,
    members: Mapping[str, str],
    party_key: str | None,
    replacement: bool,
) -> None:
    """Check a published release offline: who signed what, and that the matrix is what they signed.

    FILE is the signed document of a member's own regression.

    Audit files in DIR (audit-*.json, from `commingle party audit export`, `commingle coordinator audit export` and
    `commingle members`) are checked with it. The exit code is 0 only if everything holds.
    """
    if directory.is_file():
        if coordinator_key is not None or members:
            raise click.UsageError(
                "--coordinator-key is for a release, and so is --member; a regression is pinned with --party-key."
            )
        _verify_regression(directory, party_key, replacement=replacement)
        return
    if party_key is not None:
        raise click.UsageError("--party-key is for a regression; a release is pinned with --coordinator-key.")
    trusted = fingerprint(coordinator_key)
    files = ReleaseFiles.read(directory)
    found = files.verify(trusted_coordinator=trusted, members=members)
    require_parties(members, found.members)
    evidence = [_confirm(path, found, files) for path in sorted(directory.glob(_AUDIT_FILES))]
    emit(
        _release_dict(found, evidence, pinned=trusted is not None),
        text=lambda console: _print_release(
            console, found, evidence, pinned=trusted is not None, replacement=replacement
        ),
    )


def _verify_regression(file: Path, party_key: str | None, *, replacement: bool) -> None:
    trusted, data = fingerprint(party_key), _read(file, remedy="Check the path.")
    _require_regression(file, as_written(data))
    found, pinned = verify_regression(data, trusted_party=trusted), trusted is not None
    emit(
        _regression_dict(found, pinned=pinned),
        text=lambda console: _print_regression(console, found, pinned=pinned, replacement=replacement),
    )


def _require_regression(file: Path, said: object) -> None:
    names = said.keys() if isinstance(said, Mapping) else ()
    signed = said["envelope"] if isinstance(said, Mapping) and "envelope" in said else None
    kind = signed.get("payloadType") if isinstance(signed, Mapping) else None
    if kind in {payload_type(model.signed_as()) for model in (PartyAudit, CoordinatorAudit, MemberLog)}:
        what = "a signed history"
        remedy = f"Put it beside a release as audit-NAME.json and verify that folder ({_AUDIT_FILES})."
    elif signed is not None:
        return
    elif {"study", "parties"} <= {*names}:
        what, remedy = "a study, which nobody has signed", f"Check it: commingle study check {file}"
    elif isinstance(said, list) and all(isinstance(one, Mapping) and "name" in one for one in said):
        what, remedy = "a schema", "It is checked where it is registered: commingle party datasets add --schema"
    elif (file.parent / "manifest.json").is_file():
        what, remedy = "a part of a release", f"Verify the whole folder: commingle verify {file.parent}"
    else:
        what = "no signed document" if isinstance(said, Mapping | list) else "no JSON"
        remedy = "Name the folder of a published release, or the file of a member's regression."
    raise DocumentError(f"{file} is {what}, and no regression that a member has signed", remedy=remedy)


def _release_dict(found: PublishedRelease, evidence: Sequence[str], *, pinned: bool) -> dict[str, Any]:
    spec, manifest = found.spec, found.manifest
    return {
        "release": found.release,
        "study": spec.study,
        "stated": spec.model_dump(mode="json", include=set(StatedPurpose.model_fields)),
        "mechanism": spec.mechanism,
        "n": spec.n,
        "buckets": spec.buckets,
        "kept": spec.terms.kept,
        "rows": found.moments.rows,
        "columns": [column.name for column in spec.matrix_columns],
        "coordinator": found.coordinator,
        "coordinator_pinned": pinned,
        "members": found.members,
        "published": manifest.published.isoformat(),
        "citation": citation(found),
        "findings": list(found.findings),
        "evidence": list(evidence),
        "privacy": {
            **manifest.privacy.model_dump(mode="json"),
            "delta_implementation": manifest.privacy.delta_implementation,
        },
    }


def _print_release(
    console: Console, found: PublishedRelease, evidence: Sequence[str], *, pinned: bool, replacement: bool
) -> None:
    spec, privacy = found.spec, found.manifest.privacy
    size = f"{spec.mechanism}, {found.size}"
    about = "\n".join([quoted(spec.study), *spec.stated_sentences, size, *spec.terms.kept_words])
    _print_findings(console, f"release {found.release}", about, (*found.findings, *evidence))
    console.print()
    console.print(_losses(privacy, pinned=found.pinned, replacement=replacement))
    right = privacy.per_subject.own.guess_percent
    console.print(f"Who guesses about a person from all of it is right at most {right} times in 100. A coin: 50.")
    console.print(Text(f"{privacy.protects}\n{privacy.trust}", style="dim"))
    if not pinned:
        console.print(Text(f"\n{_RELEASE_NOT_PINNED}", style="yellow"))
    unknown = [party.name for party in spec.parties if party.name not in found.pinned]
    if unknown:
        console.print(Text(f"\n{_MEMBERS_NOT_PINNED.format(names=', '.join(unknown))}", style="yellow"))


def _regression_dict(found: VerifiedRegression, *, pinned: bool) -> dict[str, Any]:
    document = found.document
    return {
        "regression": document.spec,
        "party": document.party,
        "signer": found.signer,
        "party_pinned": pinned,
        "findings": list(found.findings),
        "method": document.method,
        "target": document.target.name,
        "n": document.n,
        "coefficients": [c.model_dump(mode="json") for c in document.coefficients],
        "privacy": document.privacy.model_dump(mode="json"),
    }


def _print_regression(console: Console, found: VerifiedRegression, *, pinned: bool, replacement: bool) -> None:
    document, privacy = found.document, found.document.privacy
    about = "" if document.request.n is None else "about "
    size = f"{document.target.name} by {document.method}, n = {about}{document.n}"
    _print_findings(console, f"regression {document.spec}", size, found.findings)
    console.print(coefficients((c.label, c.encoded, c.original) for c in document.coefficients))
    cost = f"epsilon {privacy.epsilon:.6g} at delta {privacy.delta:g} ({privacy.adjacency}); {privacy.guarantee}"
    console.print(Text(cost), soft_wrap=True)
    if replacement and privacy.replacement is not None:
        other = privacy.replacement.loss
        console.print(Text(f"rho {float(other.rho):.6g} beside delta {other.delta:.3g} (replace_one)"))
    if not privacy.exact_noise:
        console.print(Text("The noise is floating point, which the proof does not cover.", style="yellow"))
    console.print(Text(privacy.protects, style="dim"))
    if not pinned:
        console.print(Text(f"\n{_PARTY_NOT_PINNED}", style="yellow"))


def _confirm(path: Path, release: PublishedRelease, files: ReleaseFiles) -> str:
    data = _read(path, remedy="Fix its permissions or leave it out.")
    kind = decode(SignedDocument, data).envelope.payloadType
    if kind == payload_type(CoordinatorAudit.signed_as()):
        said = confirm_by_coordinator(verify_coordinator_audit(data), release, manifest=files.manifest)
    elif kind == payload_type(MemberLog.signed_as()):
        said = confirm_by_log(verify_member_log(data, trusted_coordinator=release.coordinator), release.spec)
    else:
        said = confirm_by_party(verify_party_audit(data), release)
    return f"{path.name}: {said}"


def _read(file: Path, *, remedy: str) -> bytes:
    try:
        return read_plain(file, most_bytes=LARGEST_HISTORY_BYTES)
    except OSError as error:
        raise ReleaseDirectoryError(f"cannot read {file} ({error.strerror})", remedy=remedy) from None


def _print_findings(console: Console, what: str, size: str, findings: Iterable[str]) -> None:
    console.print(Text(f"Everything holds for {what}", style="bold green"), soft_wrap=True)
    console.print(Text(f"{size}\n"), soft_wrap=True)
    for finding in findings:
        console.print(Text(f"  ✓ {finding}"), soft_wrap=True)


def _losses(privacy: PrivacyStatement, *, pinned: frozenset[str], replacement: bool) -> Table:
    taken = f", of which {privacy.delta_implementation:.2g} for the exchange" if privacy.delta_implementation else ""
    table = Table(title=f"Privacy, epsilon at delta {privacy.delta:g}{taken}", title_justify="left")
    for heading in ("of", "adjacency"):
        table.add_column(heading)
    for heading in ("rho", "epsilon"):
        table.add_column(heading, justify="right")

    def add(what: str, loss: ScopedLoss) -> None:
        shown = {privacy.adjacency: loss.own}
        if replacement and loss.replacement is not None:
            shown["replace_one"] = loss.replacement
        for unit, value in shown.items():
            table.add_row(Text(what if value is loss.own else ""), unit, f"{value.rho:.6g}", f"{value.epsilon:.6g}")

    for party in privacy.per_party:
        whose = called(party.party, pinned=party.party in pinned)
        add(f"block of {whose}", party.loss)
    add("a person, to outsiders", privacy.outsiders)
    add("a person, to everybody", privacy.per_subject)
    return table


@click.command(
    epilog="""\b
Examples:
  commingle members https://hub.example.org --coordinator-key FINGERPRINT --cache ./cache
  commingle members https://hub.example.org --member charite=FINGERPRINT --out release/audit-members.json
"""
)
@click.argument("url", metavar="URL")
@access_options
@click.option(
    "--cache",
    type=A_FOLDER,
    metavar="DIR",
    help="Keep the log in this folder, and refuse a log that does not continue it.",
)
@click.option("--out", type=NEW_FILE, help="Also write the signed log, for `commingle verify`.")
@reads(
    unless=("--cache", "--out"),
    coordinator=str,
    coordinator_pinned=bool,
    head=str,
    entries=list[dict[str, Any]],
    members=dict[str, dict[str, Any]],
    replaced=list[str],
)
def members(*, url: str, access: CoordinatorAccess, cache: Path | None, out: Path | None) -> None:
    """Show every key that a coordinator has had for every member, as one signed chain."""
    with access.client(url, cache=cache) as client:
        known, signed = client.member_log()
    if out is not None:
        write_for_everyone(out, {out: signed}, remedy=WRITABLE, error=ReleaseDirectoryError)
    emit(
        {
            "coordinator": known.signer,
            "coordinator_pinned": access.coordinator_key is not None,
            "head": known.chain.head,
            "entries": [
                {**entry.model_dump(mode="json"), "pinned": access.members.get(entry.party) == entry.key}
                for entry in known.entries
            ],
            "members": {
                name: {"keys": list(keys), "revoked": name in known.revoked} for name, keys in known.members.items()
            },
            "replaced": _replaced(known, access.members),
        },
        text=lambda console: _print_log(console, known, access.members),
    )


def _replaced(known: VerifiedLog, pins: Mapping[str, str]) -> list[str]:
    return [name for name, key in pins.items() if known.members.get(name, (key,))[-1] != key]


def _print_log(console: Console, known: VerifiedLog, pins: Mapping[str, str]) -> None:
    table = Table("when", "what", "calls itself", "key", "after")
    for entry in known.entries:
        key = f"{entry.key}{' (pinned)' if pins.get(entry.party) == entry.key else ''}"
        table.add_row(f"{entry.at:%Y-%m-%d %H:%M}", entry.kind, entry.party, key, entry.previous[:16])
    console.print(table)
    for name in _replaced(known, pins):
        console.print(Text(f"{name} has another key since the pinned one: ask whether it replaced it.", style="yellow"))
    console.print(f"Signed by {known.signer}\nhead {known.chain.head}\n{_WHAT_IT_IS}", highlight=False, soft_wrap=True)
