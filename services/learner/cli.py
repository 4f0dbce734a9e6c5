"""`commingle learner`."""

import os
from pathlib import Path

import click

from commingle.services.client.options import CoordinatorAccess, access_options
from commingle.shared.runtime.cli import A_FOLDER, NEW_FILE, LazyGroup
from commingle.shared.runtime.settings import (
    ServeCommand,
    ServiceSettings,
    Tracing,
    gather,
    traces_option,
    trusted_proxies_option,
)
from commingle.shared.runtime.sso import SsoSettings
from commingle.shared.runtime.tls import ServerTls, tls_options

_TIMEOUT_SECONDS = 10.0


class LearnerSettings(ServiceSettings):
    """Settings that are no options of `serve`.

    Attributes:
        sso: who signs people on; without it a learner is open to all. `decide` has no meaning here.
    """

    prefix = "COMMINGLE_LEARNER"
    sso: SsoSettings | None = None


@click.group(cls=LazyGroup)
def learner() -> None:
    """Serve fits of published releases."""


@learner.command(
    cls=ServeCommand,
    kind=LearnerSettings,
    epilog="""\b
Example:
  commingle learner serve --coordinator https://coordinator.example --coordinator-key FINGERPRINT --cache ./cache
""",
)
@click.option(
    "--settings",
    type=NEW_FILE,
    help='A JSON file that says options: {"serve": {"port": 8200}}.',
)
@click.option("--coordinator", required=True, metavar="URL", help="The coordinator that publishes the releases.")
@access_options
@click.option("--cache", type=A_FOLDER, metavar="DIR", help="Keep verified releases in this folder.")
@tls_options
@trusted_proxies_option
@traces_option
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8200, show_default=True, help="0 takes any free port.")
def serve(
    *,
    settings: Path | None,
    coordinator: str,
    access: CoordinatorAccess,
    cache: Path | None,
    tls: ServerTls | None,
    trusted_proxies: tuple[str, ...],
    trace: Tracing,
    host: str,
    port: int,
) -> None:
    """Serve fits over HTTP until told to stop."""
    sso = gather(LearnerSettings, settings, os.environ)[0].sso
    # help needs none of these, and they take a second to load
    import structlog  # noqa: PLC0415

    from commingle.services.learner.app import create_app  # noqa: PLC0415
    from commingle.services.learner.source import ReleaseSource  # noqa: PLC0415
    from commingle.shared.runtime.oidc import Provider  # noqa: PLC0415
    from commingle.shared.runtime.pages.doors import SsoDoor  # noqa: PLC0415
    from commingle.shared.runtime.server import serve as run  # noqa: PLC0415
    from commingle.shared.runtime.telemetry import configure_logging  # noqa: PLC0415

    configure_logging(service="learner")
    trace(service="learner")
    if access.coordinator_key is None:
        structlog.get_logger().warning(
            "coordinator key not pinned", remedy="Give --coordinator-key, so that no other coordinator is believed."
        )
    with access.client(coordinator, cache=cache, timeout_seconds=_TIMEOUT_SECONDS) as client:
        door = None if sso is None else SsoDoor(Provider(sso))
        run(
            create_app(ReleaseSource(client), door=door), host=host, port=port, tls=tls, trusted_proxies=trusted_proxies
        )
