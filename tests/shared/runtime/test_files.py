import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from commingle.shared.documents.dsse import SigningKey
from commingle.shared.runtime.errors import KeyFileError, SettingsError
from commingle.shared.runtime.files import (
    close_to_others,
    create_secret,
    load_secret,
    load_signing_key,
    remove_durably,
    sealing_public_key,
    write_durably,
)
from commingle.shared.runtime.settings import Settings, load_settings


def test_file_is_written_in_full_for_its_owner_only_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "file"
    write_durably(path, b"one")
    write_durably(path, b"two")
    assert path.read_bytes() == b"two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_file_is_written_piece_by_piece_or_stays_what_it_was_without_a_temporary_one_beside_it(tmp_path: Path) -> None:
    def broken() -> Iterator[bytes]:
        yield b"half"
        raise ConnectionError

    path, folder = tmp_path / "file", tmp_path / "taken"
    write_durably(path, iter([b"one", b"", b"two"]))
    folder.mkdir()
    with pytest.raises(ConnectionError):
        write_durably(path, broken())
    with pytest.raises(TypeError):
        write_durably(path, "not bytes")  # type: ignore[arg-type] # the failure is the point
    with pytest.raises(OSError, match="taken"):  # at the rename
        write_durably(folder, b"data")
    assert path.read_bytes() == b"onetwo"
    assert sorted(tmp_path.iterdir()) == [path, folder]


def test_mode_asked_for_is_set_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        write_durably(tmp_path / "file", b"", mode=0o644)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o644


def test_device_or_pipe_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(FileExistsError, match="is not a plain file"):
        write_durably(pipe, b"")
    assert pipe.is_fifo()


def test_removing_is_idempotent_also_where_the_folder_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_durably(path, b"")
    for _ in range(2):
        remove_durably(path)
    assert not path.exists()
    remove_durably(tmp_path / "no folder" / "file")


def test_secret_is_stored_once_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "key"
    secret = create_secret(path)
    assert len(secret) == 32
    assert load_secret(path) == secret != create_secret(tmp_path / "another")
    assert load_signing_key(path).fingerprint == SigningKey(secret).fingerprint
    with pytest.raises(KeyFileError, match="exists already"):
        create_secret(path)
    assert load_secret(path) == secret


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o610, 0o666, 0o644])
def test_key_file_that_others_can_touch_is_refused_with_the_command_that_mends_it(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "key"
    create_secret(path)
    path.chmod(mode)
    with pytest.raises(KeyFileError, match="read by others") as refused:
        load_secret(path)
    assert f"chmod 600 {path}" in refused.value.remedy


SECRET = b"5e" * 32


@pytest.mark.parametrize(
    ("content", "said"),
    [
        *((text, "64 hex digits") for text in (b"", SECRET[:-2], SECRET + b"00", SECRET[:-2] + b"zz", SECRET[:-1])),
        (b"\xff" * 32, "64 hex digits"),
        (None, "cannot read"),
    ],
    ids=repr,
)
def test_malformed_or_missing_key_file_is_refused_without_showing_its_content(
    tmp_path: Path, content: bytes | None, said: str
) -> None:
    path = tmp_path / "key"
    if content is not None:
        write_durably(path, content)
    with pytest.raises(KeyFileError, match=said) as refused:
        load_secret(path)
    assert "5e5e" not in refused.value.diagnostics()


def test_sealing_public_key_is_that_of_the_rfc_7748_vector() -> None:
    # section 6.1, Alice
    secret = bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
    assert sealing_public_key(secret).hex() == "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"


class Example(Settings):
    name: str
    port: int = 8000


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "settings.json"),  # which is not there
        ("", "JSON"),
        ("[]", "object|Example"),
        ('{"name": 5}', "name"),
        ('{"name": "a", "prot": 1}', "prot"),
        ("{}", "name"),
        ('{"name": "a", "port": true}', "port"),
        ('{"name": "a", "port": 1, "port": 2}', "settings.json: an object gives one name twice"),
        ('{"name": "a", "port": "postgresql://user:secret@host"}', "port"),
    ],
)
def test_settings_that_cannot_be_used_are_refused_by_path_or_field_and_without_a_value(
    tmp_path: Path, text: str | None, said: str
) -> None:
    path = tmp_path / "settings.json"
    for start in ("", "\N{BYTE ORDER MARK}"):  # which some editors write
        path.write_text(start + '{"name": "clinic"}')
        assert load_settings(Example, path) == Example(name="clinic", port=8000)
    path.unlink()
    if text is not None:
        path.write_text(text)
    with pytest.raises(SettingsError, match=said) as refused:
        load_settings(Example, path)
    assert "secret" not in refused.value.diagnostics()


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def generous_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("generous_umask")
def test_directories_made_for_a_private_file_are_private_whatever_the_umask(tmp_path: Path) -> None:
    write_durably(tmp_path / "a" / "b" / "secret", b"x")
    write_durably(tmp_path / "c" / "d" / "public", b"x", mode=0o644)
    assert [mode_of(tmp_path / name) for name in ("a", "a/b")] == [0o700, 0o700]
    assert mode_of(tmp_path / "c" / "d") == 0o777


@pytest.mark.usefixtures("generous_umask")
def test_directory_is_closed_to_others_and_those_above_it_that_were_there_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "home").mkdir()
    close_to_others(tmp_path / "there" / "home")
    close_to_others(tmp_path / "there" / "new" / "keys")
    modes = [mode_of(tmp_path / "there" / name) for name in ("", "home", "new", "new/keys")]
    assert modes == [0o777, 0o700, 0o700, 0o700]


def test_directory_that_cannot_be_closed_to_others_is_refused(tmp_path: Path) -> None:
    class Foreign(type(tmp_path)):  # type: ignore[misc] # the class of this system's paths
        def chmod(self, mode: int, **_: object) -> None:
            raise PermissionError(1, f"not the owner: {mode:o}")

    (tmp_path / "home").mkdir()
    (tmp_path / "home").chmod(0o755)
    with pytest.raises(KeyFileError, match="open to others") as refused:
        close_to_others(Foreign(tmp_path / "home"))
    assert "chmod 700" in refused.value.remedy
