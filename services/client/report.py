"""What verification found, for people and for programs."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from commingle.services.client.release import Release
from commingle.shared.documents.manifest import ScopedLoss

NOT_PINNED = (
    "The coordinator's key was not pinned: whoever made this directory may have made up coordinator and parties alike. "
    "Give --coordinator-key, or compare the fingerprints above with people you know."
)


def verification_dict(release: Release, evidence: Sequence[str]) -> dict[str, Any]:
    """Ready for JSON."""
    spec = release.spec
    return {
        "release": release.id,
        "study": spec.study,
        "mechanism": spec.mechanism,
        "n": spec.n,
        "rows": release.prepared.rows,
        "columns": list(release.columns),
        "coordinator": release.published.coordinator,
        "coordinator_pinned": release.pinned,
        "published": release.published.manifest.published.isoformat(),
        "findings": list(release.published.findings),
        "evidence": list(evidence),
        "privacy": release.privacy.model_dump(mode="json"),
    }


def verification_text(console: Console, release: Release, evidence: Sequence[str]) -> None:
    """Findings, then what the release costs."""
    spec = release.spec
    console.print(Text(f"Everything holds for release {release.id}", style="bold green"), soft_wrap=True)
    size = f"{spec.mechanism}, {release.prepared.rows} rows x {len(release.columns)} columns on {spec.n} subjects"
    console.print(Text(f"{spec.study}\n{size}\n"), soft_wrap=True)
    for finding in (*release.published.findings, *evidence):
        console.print(Text(f"  ✓ {finding}"), soft_wrap=True)
    console.print()
    console.print(_losses(release))
    console.print(Text(f"{release.privacy.protects}\n{release.privacy.trust}", style="dim"))
    if not release.pinned:
        console.print(Text(f"\n{NOT_PINNED}", style="yellow"))


def _losses(release: Release) -> Table:
    privacy = release.privacy
    table = Table(title=f"Privacy, epsilon at delta {privacy.delta:g}", title_justify="left")
    for heading in ("of", "adjacency"):
        table.add_column(heading)
    for heading in ("rho", "epsilon"):
        table.add_column(heading, justify="right")
    for party in privacy.per_party:
        _add(table, f"block of {party.party}", party.loss, privacy.adjacency)
    _add(table, "a subject, by all parties", privacy.per_subject, privacy.adjacency)
    return table


def _add(table: Table, what: str, loss: ScopedLoss, adjacency: str) -> None:
    """One line per unit; where the release's own is replace_one there is only one."""
    units = {adjacency: loss.own, "replace_one": loss.replace_one}
    for unit, value in units.items():
        table.add_row(Text(what if unit == adjacency else ""), unit, f"{value.rho:.6g}", f"{value.epsilon:.6g}")
