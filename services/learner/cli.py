"""`commingle learner`."""

from collections.abc import Mapping
from pathlib import Path

import click

from commingle.services.client.options import coordinator_key_option, member_option
from commingle.shared.runtime.settings import read_token, token_option, trusted_proxies_option
from commingle.shared.runtime.tls import ServerTls, ca_option, http_option, tls_options

_TIMEOUT_SECONDS = 10.0


@click.group()
def learner() -> None:
    """Serve fits of published releases."""


@learner.command(
    epilog="""\b
Example:
  commingle learner serve --coordinator https://coordinator.example --coordinator-key FINGERPRINT --cache ./cache
"""
)
@click.option("--coordinator", required=True, metavar="URL", help="Where releases come from.")
@coordinator_key_option
@member_option
@click.option("--cache", type=click.Path(path_type=Path), metavar="DIR", help="Keep verified releases on disk.")
@token_option
@ca_option
@http_option
@tls_options
@trusted_proxies_option
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", default=8200, show_default=True, help="0 takes any free port.")
def serve(
    *,
    coordinator: str,
    coordinator_key: str | None,
    members: Mapping[str, str],
    cache: Path | None,
    token_file: Path | None,
    ca_file: Path | None,
    allow_http: bool,
    tls: ServerTls | None,
    trusted_proxies: tuple[str, ...],
    host: str,
    port: int,
) -> None:
    """Serve fits over HTTP until told to stop."""
    # help needs none of these, and they take a second to load
    import structlog  # noqa: PLC0415

    from commingle.services.client.remote import ReleaseClient  # noqa: PLC0415
    from commingle.services.learner.app import create_app  # noqa: PLC0415
    from commingle.services.learner.source import ReleaseSource  # noqa: PLC0415
    from commingle.shared.runtime.logging import configure_logging  # noqa: PLC0415
    from commingle.shared.runtime.server import serve as run  # noqa: PLC0415

    configure_logging(service="learner")
    if coordinator_key is None:
        structlog.get_logger().warning(
            "coordinator key not pinned", remedy="Give --coordinator-key, so that no other coordinator is believed."
        )
    with ReleaseClient(
        coordinator,
        trusted_coordinator=coordinator_key,
        members=members,
        cache=cache,
        token=read_token(token_file),
        ca_file=ca_file,
        allow_http=allow_http,
        timeout_seconds=_TIMEOUT_SECONDS,
    ) as client:
        run(create_app(ReleaseSource(client)), host=host, port=port, tls=tls, trusted_proxies=trusted_proxies)
