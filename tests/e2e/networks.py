"""Networks as they are found: a private certificate authority, a forward proxy, and one that inspects TLS."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from select import select
from threading import Thread

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = timedelta(days=1)
_PIECE = 1 << 16
_PATIENCE_SECONDS = 0.1


@dataclass(frozen=True)
class Authority:
    """A certificate authority of one's own; its files are in a directory."""

    directory: Path
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def file(self) -> Path:
        return self.directory / "ca.pem"

    @classmethod
    def create(cls, directory: Path, name: str) -> "Authority":
        directory.mkdir()
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(name)
        usage = x509.KeyUsage(
            digital_signature=True, content_commitment=False, key_encipherment=False, data_encipherment=False,
            key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
        )  # fmt: skip
        certificate = (
            _builder(subject, subject, key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        made = cls(directory, certificate, key)
        made.file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return made

    def issue(self) -> tuple[Path, Path]:
        """Certificate and key, as PEM files, for a server on loopback."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.DNSName("localhost"), x509.IPAddress(IPv4Address("127.0.0.1"))]
        certificate = (
            _builder(_name("localhost"), self.certificate.subject, key)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        files = self.directory / "server.pem", self.directory / "server.key"
        files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        form = serialization.PrivateFormat.PKCS8
        files[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
        return files


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    return builder.serial_number(x509.random_serial_number()).not_valid_before(now - _DAY).not_valid_after(now + _DAY)


@dataclass
class ConnectProxy:
    """A forward proxy that knows CONNECT.

    Attributes:
        inspects: whose certificates it shows to clients in the servers' place; None tunnels what it cannot read.
        trusts: the authority of the servers, needed to inspect.
        alters: bytes to change on their way to a server, and what into; both of the same length.
        asked: where clients wanted to be connected to.
    """

    inspects: Authority | None = None
    trusts: Authority | None = None
    alters: tuple[bytes, bytes] | None = None
    asked: list[str] = field(default_factory=list)

    @contextmanager
    def running(self) -> Iterator[str]:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            Thread(target=self._accept, args=(listener,), daemon=True).start()
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
            listener.shutdown(socket.SHUT_RDWR)

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError):  # a client that does not trust the certificate shown hangs up
            request = b""
            while b"\r\n\r\n" not in request:
                request += client.recv(_PIECE)
            _, target, _ = request.split(b" ", 2)
            self.asked.append(target.decode())
            host, _, port = target.decode().rpartition(":")
            with socket.create_connection((host, int(port))) as server:
                client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                self._connect(client, server, host)

    def _connect(self, client: socket.socket, server: socket.socket, host: str) -> None:
        if self.inspects is None or self.trusts is None:
            self._both_ways(client, server)
            return
        shown = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        shown.load_cert_chain(*self.inspects.issue())
        trusting = ssl.create_default_context(cafile=self.trusts.file)
        with (
            shown.wrap_socket(client, server_side=True) as inner,
            trusting.wrap_socket(server, server_hostname=host) as outer,
        ):
            self._both_ways(inner, outer)

    def _both_ways(self, client: socket.socket, server: socket.socket) -> None:
        """Pass on what comes, in one thread: two must not use one TLS connection at the same time."""
        other = {client: server, server: client}
        for side in other:
            side.settimeout(
                _PATIENCE_SECONDS
            )  # a record of TLS itself makes a socket readable and holds nothing to read
        while True:
            waiting = [side for side in other if isinstance(side, ssl.SSLSocket) and side.pending()]
            for side in waiting or select(list(other), [], [])[0]:
                with suppress(TimeoutError):
                    piece = side.recv(_PIECE)
                    if not piece:
                        return
                    other[side].sendall(piece.replace(*self.alters) if self.alters and side is client else piece)
