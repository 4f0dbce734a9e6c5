"""Which addresses of the network a process and those that it started listen on, as Linux tells in /proc."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

_PROC = Path("/proc")
_LISTENS = "0A"  # of proc(5), as the kernel's TCP_LISTEN
_SOCKET = "socket:["


@dataclass(frozen=True, slots=True, order=True)
class OpenAddress:
    """Where a process listens for TCP."""

    pid: int
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port} (process {self.pid})"


def open_addresses(pid: int) -> tuple[OpenAddress, ...]:
    """Those of the process with that number and of all below it.

    Raises:
        OSError: it is another user's, or this system has no such /proc.
    """
    return tuple(sorted(one for each in (pid, *_below(pid)) for one in _of(each)))


def _below(pid: int) -> Iterator[int]:
    parents = dict[int, int]()
    for path in _PROC.glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            parents[int(path.parent.name)] = int(path.read_text(errors="replace").rpartition(")")[2].split()[1])
    found = [pid]
    while found:
        found = [child for child, parent in parents.items() if parent in found]
        yield from found


def _of(pid: int) -> Iterator[OpenAddress]:
    held = set[str]()
    for path in (_PROC / str(pid) / "fd").iterdir():
        with suppress(OSError):  # it was closed meanwhile
            held.add(str(path.readlink()))
    for name in ("tcp", "tcp6"):
        for line in (_PROC / str(pid) / "net" / name).read_text().splitlines()[1:]:
            _, local, _, state, *others = line.split()
            if state == _LISTENS and f"{_SOCKET}{others[5]}]" in held:
                host, _, port = local.partition(":")
                yield OpenAddress(pid, _host(bytes.fromhex(host)), int(port, 16))


def _host(packed: bytes) -> str:
    """The kernel writes the address as words of this machine, which are little-endian on all that Commingle runs on."""
    words = b"".join(packed[start : start + 4][::-1] for start in range(0, len(packed), 4))
    return str(IPv4Address(words) if len(words) == 4 else IPv6Address(words))  # noqa: PLR2004 - bytes of an IPv4 address
