"""A party's files: keys, settings, pins."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from commingle.party_agent.errors import ConflictError, WritingError
from commingle.party_agent.home.home import EngineSettings, Home, PartySettings, PinnedCoordinator
from commingle.party_agent.home.policy import Policy
from commingle.party_agent.private.engine import IN_PROCESS, Dask
from commingle.shared.errors import ParameterError
from commingle.shared.runtime import faults
from commingle.shared.runtime.errors import KeyFileError, SettingsError
from tests.world.consortium import CrashError
from tests.world.disks import mounted


def create(root: Path, *, linkage_key: bytes | None = None, **settings: Any) -> Home:
    home = Home(root)
    home.create(PartySettings(name="ward", **settings), policy=Policy(), linkage_key=linkage_key)
    return home


def test_home_has_fresh_keys_settings_and_policy(tmp_path: Path) -> None:
    one, two = create(tmp_path / "one"), create(tmp_path / "two")
    assert one.settings() == PartySettings(name="ward")
    assert one.policy() == Policy()
    assert one.identity().name == "ward"
    secrets = [
        (h.identity().signing_key.fingerprint, h.consortium().linkage_key(), h.sealing_key()) for h in (one, two)
    ]
    assert len({*map(str, secrets[0]), *map(str, secrets[1])}) == 6


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return create(tmp_path / "h")


def test_files_can_be_read_by_their_owner_only(home: Home) -> None:
    assert home.root.stat().st_mode & 0o077 == 0
    for path in home.root.rglob("*"):
        if path.is_file():
            assert path.stat().st_mode & 0o077 == 0, path


def test_second_creation_is_refused_and_changes_nothing(tmp_path: Path, home: Home) -> None:
    before = {path: path.read_bytes() for path in home.root.rglob("*") if path.is_file()}
    with pytest.raises(ConflictError, match="is a member's home already"):
        create(tmp_path / "h", epsilon_cap=3.0)
    assert {path: path.read_bytes() for path in home.root.rglob("*") if path.is_file()} == before


def test_keys_left_by_a_creation_that_crashed_are_never_overwritten(tmp_path: Path, home: Home) -> None:
    (home.root / "settings.json").unlink()
    before = (home.root / "keys" / "signing.key").read_bytes()
    with pytest.raises(KeyFileError, match="exists already"):
        create(tmp_path / "h")
    assert (home.root / "keys" / "signing.key").read_bytes() == before


def test_creation_on_a_full_disk_says_so_and_can_be_repeated(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", kibibytes=2048) as disk:
        (disk / "notes.txt").write_text("not the home's")
        filler = disk / "filler"
        filler.write_bytes(bytes(1940 << 10))  # there is room for keys, and none for a ledger
        for root in (disk / "h", disk):
            with pytest.raises(WritingError, match="full") as refused:
                create(root)
            assert refused.value.remedy.startswith("Free space")
            assert sorted(path.name for path in disk.iterdir() if path.name != "h") == ["filler", "notes.txt"]
        filler.unlink()
        assert create(disk / "h").settings().name == "ward"


NUMBERS = (0.0, -1.0, float("nan"), float("inf"))


@pytest.mark.parametrize(
    ("caps", "error"),
    [
        *(({name: cap}, ValidationError) for name in ("epsilon_cap", "delta_cap") for cap in NUMBERS),
        ({"epsilon_cap": 1e300}, ParameterError),
        ({"delta_cap": 5e-324}, ParameterError),
    ],
)
def test_caps_that_are_no_positive_numbers_or_cannot_be_calibrated_are_refused_before_anything_is_written(
    tmp_path: Path, caps: dict[str, float], error: type[Exception]
) -> None:
    with pytest.raises(error):
        create(tmp_path / "h", linkage_key=None, **caps)
    assert not (tmp_path / "h").exists()


@pytest.mark.parametrize("name", ["", "Ward", "a b", "ä", "../x", "-a", "a" * 64, "ward\n"])
def test_names_that_cannot_travel_are_refused(name: str) -> None:
    with pytest.raises(ValidationError):
        PartySettings(name=name)


@pytest.mark.parametrize("file", ["signing.key", "sealing.key", "linkage.key"])
def test_key_file_that_others_can_read_is_refused(file: str, home: Home) -> None:
    (home.root / "keys" / file).chmod(0o640)
    with pytest.raises(KeyFileError, match="read by others"):
        home.sealing_key() if file == "sealing.key" else home.identity()


def test_pins_are_kept_normalised_and_replaced(home: Home) -> None:
    assert home.consortium().pins() == {}
    home.consortium().pin({"lab": f" {'AB' * 32}\n"})
    home.consortium().pin({"clinic": "0" * 64})
    home.consortium().pin({"lab": "AB" * 32})  # the same again is no replacement
    with pytest.raises(ConflictError, match=f"lab is pinned already, with another key: {'ab' * 32}") as refused:
        home.consortium().pin({"new": "1" * 64, "lab": "cd" * 32})
    assert "--replace" in refused.value.remedy
    assert home.consortium().pins() == {"lab": "ab" * 32, "clinic": "0" * 64}
    home.consortium().pin({"lab": "cd" * 32}, replace=True)
    assert home.consortium().pins() == {"lab": "cd" * 32, "clinic": "0" * 64}


@pytest.mark.parametrize("fingerprint", ["", "ab", "0" * 63, "0" * 65, "g" * 64, "٠" * 64, "0x" + "0" * 62])  # noqa: RUF001
def test_what_is_no_fingerprint_is_not_pinned(fingerprint: str, home: Home) -> None:
    with pytest.raises(SettingsError, match="64 hex digits"):
        home.consortium().pin({"lab": fingerprint})
    assert home.consortium().pins() == {}


@pytest.mark.parametrize("text", ["", "[]", '{"a": 1}', "{", "\udcff"])
def test_pins_file_with_a_mistake_is_refused(text: str, home: Home) -> None:
    home.consortium().pins_file.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(SettingsError, match=r"pins\.json"):
        home.consortium().pins()


def test_settings_with_a_mistake_are_refused(home: Home) -> None:
    path = home.root / "settings.json"
    good = json.loads(path.read_bytes())
    for change in ({"epsilon_cap": 0}, {"epsilon_cup": 1}, {"coordinator": {"url": "u"}}):
        path.write_text(json.dumps({**good, **change}))
        with pytest.raises(SettingsError, match=r"settings\.json"):
            home.settings()


def test_what_is_no_home_says_what_to_do(tmp_path: Path) -> None:
    home = Home(tmp_path)
    for read in (home.settings, home.policy, home.identity):
        with pytest.raises(SettingsError, match=r"cannot read|not a party's home"):
            read()


def test_secrets_do_not_show_in_a_repr(home: Home) -> None:
    identity = home.identity()
    said = repr(identity) + str(home)
    secret = (home.root / "keys" / "signing.key").read_text().strip()
    for hidden in (secret, repr(home.consortium().linkage_key()), home.consortium().linkage_key().hex()):
        assert hidden not in said


def enrolled_home(root: Path) -> tuple[Home, PinnedCoordinator]:
    """Made, pinned and then enrolled."""
    home = create(root, linkage_key=b"\x07" * 32)
    home.consortium().pin({"lab": "ab" * 32})
    where = PinnedCoordinator(url="https://hub.example:8443", signing_key="c0" * 32)
    return home, where


def test_what_lies_at_the_top_goes_with_the_first_consortium(tmp_path: Path) -> None:
    home, where = enrolled_home(tmp_path / "h")
    for _ in range(2):
        consortium = home.join(where, name="hub.example")
        assert list(home.consortia()) == ["hub.example"]
        assert (consortium.coordinator(), consortium.linkage_key()) == (where, b"\x07" * 32)
        assert consortium.pins() == {"lab": "ab" * 32}
    assert not (home.root / "pins.json").exists()
    assert not (home.root / "keys" / "linkage.key").exists()
    assert (home.root / "consortia").stat().st_mode & 0o077 == 0
    assert consortium.folder.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("nth", range(1, 5))
def test_power_cut_while_a_consortium_is_joined_loses_nothing(tmp_path: Path, nth: int) -> None:
    home, where = enrolled_home(tmp_path / "h")
    reached = 0

    def strike(_: str) -> None:
        nonlocal reached
        reached += 1
        if reached == nth:
            raise CrashError

    faults.arm(strike)
    with suppress(CrashError):
        home.join(where, name="hub.example")
    faults.arm(lambda _: None)
    assert reached >= min(nth, 3)
    consortium = home.join(where, name="hub.example")
    assert (consortium.coordinator(), consortium.linkage_key()) == (where, b"\x07" * 32)
    assert consortium.pins() == {"lab": "ab" * 32}


def test_left_consortium_keeps_its_files_and_its_name(tmp_path: Path) -> None:
    home, where = enrolled_home(tmp_path / "h")
    consortium = home.join(where, name="hub.example")
    home.leave(consortium.name)
    assert home.consortia() == {}
    assert consortium.linkage_key() == b"\x07" * 32
    other = PinnedCoordinator(url="https://other.example", signing_key="c1" * 32)
    assert home.name_for(other.key, wanted=None, called="hub.example") == "hub.example-2"
    assert home.join(where, name="hub.example").pins() == {"lab": "ab" * 32}


def test_pins_made_after_the_last_consortium_was_left_go_with_the_one_that_is_joined_again(tmp_path: Path) -> None:
    home, where = enrolled_home(tmp_path / "h")
    home.leave(home.join(where, name="hub.example").name)
    home.consortium().pin({"ward": "cd" * 32})
    assert home.join(where, name="hub.example").pins() == {"lab": "ab" * 32, "ward": "cd" * 32}
    assert not (home.root / "pins.json").exists()


def test_pin_made_after_the_last_consortium_was_left_replaces_no_other_unless_asked_to(tmp_path: Path) -> None:
    home, where = enrolled_home(tmp_path / "h")
    home.leave(home.join(where, name="hub.example").name)
    home.consortium().pin({"lab": "cd" * 32})
    with pytest.raises(ConflictError, match="lab is pinned already, with another key"):
        home.join(where, name="hub.example")
    assert home.consortia() == {}
    home.consortium().pin({"lab": "cd" * 32}, replace=True)
    assert home.join(where, name="hub.example").pins() == {"lab": "cd" * 32}


def test_partitions_are_read_in_this_process_unless_settings_say_otherwise() -> None:
    assert EngineSettings().open() is IN_PROCESS
    assert EngineSettings(kind="dask").open() == Dask(None, 2)


@pytest.mark.parametrize(
    ("address", "options"),
    [
        *((where, {}) for where in ("tls://cluster.example:8786", "tcp://127.0.0.1:8786", "tcp://localhost:8786")),
        ("tcp://[::1]:8786", {}),
        ("tcp://10.0.0.7:8786", {"allow_tcp": True}),  # the operator's decision
    ],
)
def test_scheduler_is_reached_by_tls_or_on_this_machine(address: str, options: dict[str, bool]) -> None:
    assert EngineSettings(kind="dask", scheduler=address, **options).open() == Dask(address, 2)


@pytest.mark.parametrize("address", ["tcp://cluster.example:8786", "tcp://10.0.0.7:1", "http://127.0.0.1", "cluster"])
def test_other_schedulers_are_refused(address: str) -> None:
    with pytest.raises(ValidationError, match="tls://"):
        EngineSettings(kind="dask", scheduler=address)
