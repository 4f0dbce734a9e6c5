"""A party's regression document: checked offline, for people and for programs."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from commingle.services.errors import ReleaseDirectoryError
from commingle.shared.documents.regression import VerifiedRegression, verify_regression

_NOT_PINNED = (
    "The party's key was not compared with one you know: whoever made this file may have made up the party. Give "
    "--party-key. Whether the rows were as stated and the noise was drawn only the party knows; its audit export shows "
    "that the loss was charged."
)


def read_regression(file: Path, *, trusted_party: str | None) -> VerifiedRegression:
    """The regression in a file, verified.

    Raises:
        ReleaseDirectoryError: the file cannot be read.
        DocumentError, SignatureError, VerificationError: it does not hold.
    """
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ReleaseDirectoryError(f"cannot read {file} ({error.strerror})", remedy="Check the path.") from None
    return verify_regression(data, trusted_party=trusted_party)


def regression_dict(found: VerifiedRegression, *, pinned: bool) -> dict[str, Any]:
    """Ready for JSON."""
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


def regression_text(console: Console, found: VerifiedRegression, *, pinned: bool) -> None:
    """Findings, coefficients, then what they cost."""
    document, privacy = found.document, found.document.privacy
    console.print(Text(f"Everything holds for regression {document.spec}", style="bold green"), soft_wrap=True)
    console.print(Text(f"{document.target.name} by {document.method}, n = {document.n}\n"), soft_wrap=True)
    for finding in found.findings:
        console.print(Text(f"  ✓ {finding}"), soft_wrap=True)
    table = Table("term")
    table.add_column("coefficient", justify="right")
    for term in document.coefficients:
        table.add_row(Text(term.label), f"{term.original:.6g}")
    console.print(table)
    cost = f"epsilon {privacy.epsilon:.6g} at delta {privacy.delta:g} ({privacy.adjacency}); {privacy.guarantee}"
    console.print(Text(cost), soft_wrap=True)
    if not privacy.exact_noise:
        console.print(Text("The noise is floating point, which the proof does not cover.", style="yellow"))
    console.print(Text(privacy.protects, style="dim"))
    if not pinned:
        console.print(Text(f"\n{_NOT_PINNED}", style="yellow"))
