"""TLS: a certificate to serve under, and a certificate authority of one's own to trust.

Everything that matters is signed above TLS: a network that inspects TLS with its own authority reads what passes and
can stop it, and cannot change it.
"""

import ssl
from dataclasses import dataclass
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
        raise SettingsError(
            f"cannot serve under {certificate} with {key} ({error.strerror or error})",
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
