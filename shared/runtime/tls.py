"""TLS: a certificate to serve under, and a certificate authority of one's own to trust.

Everything that matters is signed above TLS: a network that inspects TLS with its own authority reads what passes and
can stop it, and cannot change it.
"""

import ssl
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import click

from commingle.shared.runtime.cli import NEW_FILE, gathered
from commingle.shared.runtime.errors import SettingsError
from commingle.shared.runtime.files import require_plain

ca_option = click.option(
    "--ca-file",
    type=NEW_FILE,
    help="PEM certificates of further authorities to trust, such as a private one or a proxy's that inspects TLS.",
)


http_option = click.option(
    "--allow-http",
    is_flag=True,
    envvar="COMMINGLE_ALLOW_HTTP",
    help="Allow plain http to another machine. Use it only if you control the whole network in between.",
)


@dataclass(frozen=True, slots=True)
class ServerTls:
    """PEM files of a server's certificate chain and its key."""

    certificate: Path
    key: Path


_SOON = timedelta(days=14)
_NOT_ITS_KEY = frozenset({"KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED"})
RENEW = "Renew the certificate, then stop and start the service."


def ends_soon(pem: bytes, now: datetime) -> str | None:
    """In words that the first of these certificates has expired, or will within 14 days."""
    from cryptography.x509 import load_pem_x509_certificate  # noqa: PLC0415 - loads slowly, and not all serve TLS

    try:
        end = load_pem_x509_certificate(pem).not_valid_after_utc
    except ValueError:  # of a kind that TLS itself reads
        return None
    if end - now >= _SOON:
        return None
    return f"the certificate {'has expired' if end < now else 'expires'} on {end:%Y-%m-%d %H:%M} UTC"


def ends_soon_at(host: str, port: int, now: datetime, *, timeout_seconds: float) -> str | None:
    """The same of the certificate that a server shows; None also if none is shown there."""
    try:
        pem = ssl.get_server_certificate((host, port), timeout=timeout_seconds)
    except (OSError, ValueError):
        return None
    return ends_soon(pem.encode(), now)


def trust(ca_file: Path | None) -> ssl.SSLContext | bool:
    """The argument `verify` of `httpx.Client`: the usual authorities, and those in a PEM file."""
    if ca_file is None:
        return True
    context = ssl.create_default_context()
    try:
        require_plain(ca_file)
        context.load_verify_locations(ca_file)
    except OSError as error:  # ssl.SSLError is one
        raise SettingsError(
            f"cannot read certificates from {ca_file} ({error.strerror or error})",
            remedy="Give a PEM file with the certificate of your authority.",
        ) from None
    return context


def trust_nobody() -> ssl.SSLContext:
    """For connections without TLS: reading the usual authorities takes a processor a twentieth of a second."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def is_this_machine(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _server_tls(tls_certificate: Path | None, tls_key: Path | None) -> ServerTls | None:
    certificate, key = tls_certificate, tls_key
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise click.UsageError("--tls-certificate and --tls-key go together")
    try:
        require_plain(certificate)
        require_plain(key)
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except OSError as error:
        said = error.strerror or error
        if getattr(error, "reason", None) in _NOT_ITS_KEY:
            said = "this key belongs to another certificate"
        raise SettingsError(
            f"cannot serve under {certificate} with {key} ({said})",
            remedy="Give PEM files of a certificate chain and of its key, without a password.",
        ) from None
    return ServerTls(certificate, key)


tls_options = gathered(
    "tls",
    _server_tls,
    click.option("--tls-certificate", type=NEW_FILE, help="PEM certificate chain to serve HTTPS under."),
    click.option("--tls-key", type=NEW_FILE, help="PEM key of the certificate."),
)
"""The command is given `tls`, None where both are absent."""
