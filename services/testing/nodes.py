"""A consortium's coordinator and agents: an agent's data, how each of them starts, and how it fails."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from signal import Signals
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet
from pydantic import TypeAdapter

from commingle.services.errors import ConsortiumError
from commingle.services.tables import Unusable, draft, read_table
from commingle.services.testing.links import Link
from commingle.services.testing.processes import Command, ServerProcess, only_processes
from commingle.shared.documents.schema import Attribute
from commingle.shared.runtime.files import write_durably
from commingle.shared.runtime.tls import ServerTls

if TYPE_CHECKING:
    from commingle import PartyClient
    from commingle.services.testing.in_process import ServerThread

DATASET = "main"
_ATTRIBUTES = TypeAdapter(tuple[Attribute, ...])


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """A party's table, with its schema.

    Attributes:
        rows: a CSV or Parquet file.
        attributes: of its columns.
        subject_id: the columns that identify subjects.
        id_rules: the rules of ids; empty for ids as they are.
    """

    rows: Path
    attributes: tuple[Attribute, ...]
    subject_id: tuple[str, ...] = ("subject",)
    id_rules: tuple[str, ...] = ()


def dataset_of(
    table: Any,  # noqa: ANN401 - of any library
    folder: Path,
    *,
    subject_id: str,
    schema: Sequence[Attribute | Mapping[str, Any]] | None,
) -> Dataset:
    """A table as a file, which goes into that folder if it is not one yet, with the schema given or drafted from it.

    The table is a file, or what `pyarrow.table` takes, such as a data frame or columns by name.

    Raises TableError, ConsortiumError: the subject column does not exist, or a column needs a schema.
    """
    if isinstance(table, Dataset):
        return table
    if isinstance(table, str | Path):
        rows = Path(table).resolve()
    else:
        rows = folder / "rows.parquet"
        pyarrow.parquet.write_table(table if isinstance(table, pa.Table) else pa.table(table), rows)
    if schema is None:
        return Dataset(rows=rows, attributes=_drafted(rows, subject_id), subject_id=(subject_id,))
    given = [one if isinstance(one, Mapping) else one.model_dump(mode="json") for one in schema]
    return Dataset(rows=rows, attributes=_ATTRIBUTES.validate_json(json.dumps(given)), subject_id=(subject_id,))


def rows_of(dataset: Dataset) -> int:
    return read_table(dataset.rows, subject_id=dataset.subject_id).table.n


def _drafted(rows: Path, subject_id: str) -> tuple[Attribute, ...]:
    table = read_table(rows, subject_id=(subject_id,), typed=True).table
    found = {name: draft(name, cells, target=False, levels=False) for name, cells in table.columns.items()}
    for name, attribute in found.items():
        if isinstance(attribute, Unusable):
            raise ConsortiumError(
                f"{rows.name}: column {name!r} cannot be used, {attribute.reason}",
                remedy="Leave it out, or give `schemas`.",
            )
    return tuple(attribute for attribute in found.values() if not isinstance(attribute, Unusable))


def self_signed(folder: Path, *, days: float = 30) -> ServerTls:
    """A self-signed certificate of this machine for so long and its key, as files of that folder."""
    # loads slowly, and a simulation serves no network
    from cryptography import x509  # noqa: PLC0415
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    alternative = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(alternative, critical=True)
        .sign(key, hashes.SHA256())
    )
    tls, pem = ServerTls(folder / "api.pem", folder / "api.key"), serialization.Encoding.PEM
    tls.certificate.write_bytes(made.public_bytes(pem))
    plain = serialization.NoEncryption()
    write_durably(tls.key, key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    return tls


@dataclass(eq=False, kw_only=True)
class Node:
    """A coordinator or an agent, which can fail.

    Attributes:
        home: its directory.
        url: where it listens on the network.
        server: the process or the thread that serves it.
    """

    home: Path
    url: str
    server: "ServerProcess | ServerThread"

    @property
    def alive(self) -> bool:
        return self.server.alive

    @property
    def pid(self) -> int:
        """The process ID. Raises ConsortiumError without processes."""
        return self._process.pid

    def start(self, *, fault: str = "") -> None:
        """Start it if it is down, and return when it listens.

        Args:
            fault: the fault point (docs/faults.md) at which it kills itself, `NAME` or `NAME:NTH`.

        Raises:
            ProcessError: it does not start.
            ConsortiumError: a fault point is given, and it is no process.
        """
        self.server.begin(fault=fault)
        self.server.await_listening()

    def kill(self) -> None:
        """Kill it like `kill -9`, or stop a thread."""
        self.server.kill()

    def restart(self, *, fault: str = "") -> None:
        """Kill it and start it again; otherwise as `start`."""
        self.kill()
        self.start(fault=fault)

    def await_death(self) -> None:
        """Return when it has killed itself at its fault point.

        Raises ProcessError: it has not, or has ended otherwise; ConsortiumError without processes.
        """
        self._process.await_death()

    def signal(self, number: Signals) -> None:
        """Send it a signal, such as SIGSTOP. Raises ConsortiumError without processes."""
        self._process.signal(number)

    def fill_disk(self, *, full: bool = True) -> None:
        """Let no file of it grow, or lift this limit. Raises ConsortiumError without processes."""
        self._process.fill_disk(full=full)

    def set_clock(self, *, ahead: timedelta) -> None:
        """Set its clock ahead of the true time. Raises ConsortiumError with processes."""
        self.server.set_clock(ahead=ahead)

    @property
    def _process(self) -> ServerProcess:
        if not isinstance(self.server, ServerProcess):
            raise only_processes("The server is a thread, and this is for a process")
        return self.server


@dataclass(eq=False, kw_only=True)
class Coordinator(Node):
    """The coordinator; `key` is the fingerprint of the key that signs its releases."""

    key: str

    def proposing(self, study: Path) -> Command:
        """The `commingle` command that proposes a study as its operator."""
        return ("coordinator", "propose", study, "--home", self.home, "--coordinator", self.url)


@dataclass(eq=False, kw_only=True)
class Agent(Node):
    """A party's agent.

    Attributes:
        name: the party's name.
        dataset: the party's table, with its schema.
        token: for its API on the network, with every scope.
        ca_file: the certificate to trust there.
        link: its way to the coordinator, which injects faults.
    """

    name: str
    dataset: Dataset
    token: str = ""
    ca_file: Path
    _link: Link | None = None

    @property
    def link(self) -> Link:
        """Its way to the coordinator. Raises ConsortiumError: it has no link."""
        if self._link is None:
            raise ConsortiumError("the consortium was started without links", remedy="Start it with links=True.")
        return self._link

    def client(self) -> "PartyClient":
        """A client of its API on the network."""
        from commingle import PartyClient  # noqa: PLC0415 - as public names are

        return PartyClient(self.url, token=self.token, ca_file=self.ca_file)
