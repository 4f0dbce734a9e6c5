"""The certificate of a consortium's agents."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from commingle.shared.runtime.files import write_durably
from commingle.shared.runtime.tls import ServerTls


def self_signed(folder: Path) -> ServerTls:
    """A certificate of this machine, which signs itself, and its key, as files of that folder."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    alternative = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=7))
        .add_extension(alternative, critical=True)
        .sign(key, hashes.SHA256())
    )
    tls, pem = ServerTls(folder / "api.pem", folder / "api.key"), serialization.Encoding.PEM
    tls.certificate.write_bytes(made.public_bytes(pem))
    plain = serialization.NoEncryption()
    write_durably(tls.key, key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    return tls
