"""Nothing that a user, a token or a folder names is waited for, or read without an end."""

import os
import resource
from collections.abc import Callable
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any, cast

import click
import pytest

from commingle.shared.documents.study import Study
from commingle.shared.errors import CommingleError
from commingle.shared.release.audit import verify_party_audit
from commingle.shared.runtime.archive import reading_archive
from commingle.shared.runtime.attachments import with_attachments
from commingle.shared.runtime.files import load_secret, open_plain, read_history, read_plain, require_plain
from commingle.shared.runtime.settings import Settings, load_settings, read_token
from commingle.shared.runtime.tls import trust
from tests.world.disks import SPECIAL, make_endless, make_special

STUDY: Study = cast(Any, Study).model_construct(attachments=None)
SAID = {"directory": "Is a directory"}


def unpack(path: Path) -> None:
    with reading_archive(path, path.parent / "home"):
        pass


OPENERS: dict[str, Callable[[Path], object]] = {
    "settings": lambda path: load_settings(Settings, path),
    "token": read_token,
    "key": load_secret,
    "history": lambda path: read_history(path, verify_party_audit, key=None),
    "backup": unpack,
    "attachment": lambda path: with_attachments(STUDY, (path,)),
    "authorities": trust,
}


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - of them it has one of its own, each time


@pytest.mark.parametrize("kind", SPECIAL)
def test_what_is_no_plain_file_is_refused_at_once_and_nothing_stays_open(tmp_path: Path, kind: str) -> None:
    path, before = make_special(kind, tmp_path / "named"), open_files()
    for opening in (open_plain, read_plain, require_plain):
        with pytest.raises(OSError, match=SAID.get(kind, "not a plain file")) as refused:
            opening(path)
        assert (refused.value.filename, bool(refused.value.strerror)) == (str(path), True)
    assert open_files() == before


@pytest.mark.parametrize("path", ["", "a\0b", "\ud800", "absent", "/proc/self/mem/absent"])
def test_path_that_cannot_be_opened_is_one_kind_of_error(path: str) -> None:
    for opening in (open_plain, read_plain, require_plain):
        with pytest.raises(OSError) as refused:  # noqa: PT011 - the kind is what counts
            opening(path)
        assert refused.value.strerror


def test_plain_file_is_read_also_by_way_of_a_link(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    for name in ("file", "link"):
        require_plain(tmp_path / name)
        assert read_plain(tmp_path / name, most_bytes=7) == b"content"
        with open_plain(str(tmp_path / name)) as file:
            assert (file.read(3), os.get_inheritable(file.fileno())) == (b"con", False)


def test_file_beyond_its_limit_is_refused_and_not_read_to_its_end(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(OSError, match="larger than 64 MiB"):
        read_plain(make_endless(tmp_path / "file"))
    with pytest.raises(OSError, match="larger than 0 MiB"):
        read_plain("/proc/self/status", most_bytes=10)  # which says that it has none
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 << 10  # KiB


@pytest.mark.parametrize(
    ("what", "kind"), [*product(OPENERS, SPECIAL), *product(("settings", "token", "history"), ["endless"])]
)
def test_what_a_command_is_given_is_refused_with_a_remedy_where_it_is_no_plain_file(
    tmp_path: Path, what: str, kind: str
) -> None:
    path = make_endless(tmp_path / "named") if kind == "endless" else make_special(kind, tmp_path / "named")
    with pytest.raises((CommingleError, click.ClickException)) as refused:
        OPENERS[what](path)
    assert getattr(refused.value, "remedy", "as click says")


def test_attachment_has_the_digest_of_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "plan.pdf").write_bytes(b"plan")
    (attached,) = with_attachments(STUDY, (tmp_path / "plan.pdf",)).attachments or ()
    assert (attached.name, attached.sha256) == ("plan.pdf", sha256(b"plan").hexdigest())
