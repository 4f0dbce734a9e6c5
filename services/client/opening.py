"""What commands that ask one release share: where it is, who signed it, and how they say so."""

from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from commingle.services.client.options import CoordinatorAccess, access_options
from commingle.services.client.pins import require_parties
from commingle.services.client.release import Release
from commingle.services.results import Result
from commingle.shared.text import quoted

if TYPE_CHECKING:  # httpx is slow to import and a directory needs none
    from commingle.services.client.remote import ReleaseClient

Function = TypeVar("Function", bound=Callable[..., Any])
_SHOWN = 20


def release_options(command: Function) -> Function:
    """Add DIR|URL and what it takes to read and verify a release there; the command is given it as `found`."""

    @wraps(command)
    def with_release(
        *args: Any,  # noqa: ANN401 - any command
        source: str,
        release: str | None,
        save: Path | None,
        access: CoordinatorAccess,
        **given: Any,  # noqa: ANN401 - as above
    ) -> Any:  # noqa: ANN401 - as above
        found = _open(source, release, access)
        require_parties(access.members, found.published.members)
        if save is not None:
            found.save(save)
        return command(*args, found=found, **given)

    made: Any = access_options(with_release)
    for option in (
        click.option(
            "--save", type=click.Path(path_type=Path), metavar="DIR", help="Also write the verified release there."
        ),
        click.option("--release", metavar="ID", help="Which release, when fetching from a coordinator."),
        click.argument("source", metavar="DIR|URL"),
    ):
        made = option(made)
    return made  # type: ignore[no-any-return] # same signature but for the options


def _open(source: str, release: str | None, access: CoordinatorAccess) -> Release:
    if "://" not in source:
        if release is not None:
            raise click.UsageError("--release goes with a coordinator's URL; a directory holds one release.")
        return Release.load(source, trusted_coordinator=access.coordinator_key, members=access.members)
    from commingle.shared.runtime.console import PlainConsole  # noqa: PLC0415 - rich is slow to import

    with access.client(source) as client:
        if release is None:
            raise click.UsageError(f"Name the release with --release ID. {_list_releases(client)}")
        with PlainConsole(stderr=True).status("Fetching and verifying"):
            return client.fetch(release)


def _list_releases(client: "ReleaseClient") -> str:
    page = client.page(limit=_SHOWN)
    lines = [f"  {item.id}  {quoted(item.study)}" for item in page.items]
    more = ["  …"] if page.next is not None else []
    return "\n".join(["Published there:", *lines, *more]) if lines else "Nothing is published there yet."


def attribute_names(given: Iterable[str], release: Release) -> tuple[str, ...] | None:
    """Names given one by one or with commas between them; a name may itself contain a comma. None for no name."""
    attributes = {attribute.name for attribute in release.attributes}
    names: list[str] = []
    for text in given:
        names += [text] if text in attributes else [name.strip() for name in text.split(",")]
    return tuple(names) or None


def answer(release: Release, result: Result) -> dict[str, Any]:
    """A result as JSON, with which release it is of and whose keys were known."""
    pins = {"coordinator_pinned": release.pinned, "members": release.published.members}
    return {"release": release.id, **pins, **result.to_dict()}


def provenance(release: Release) -> str:
    """Which release it is, and who vouches for it, for people."""
    key = "key pinned" if release.pinned else "key not pinned: give --coordinator-key"
    found = release.published
    said = f"Release {release.id[:16]}, verified; coordinator {key}.\nSigned by {', '.join(found.signers)}."
    if len(found.pinned) < len(found.members):
        said += " Give --member NAME=FINGERPRINT for members whose keys you know."
    return said
