"""The OpenAPI descriptions of the three services, as they are kept in docs/openapi.

python -m tests.packaging.openapi    writes them anew
"""

import json
import tempfile
from pathlib import Path
from typing import Any, cast

from commingle import ReleaseClient
from commingle.coordinator.coordinator import Coordinator
from commingle.coordinator.http.app import create_app as coordinator_app
from commingle.coordinator.http.streams import Feed
from commingle.coordinator.publisher import Publisher
from commingle.coordinator.store.store import Store, open_store
from commingle.party_agent.edge.api import LocalApi
from commingle.party_agent.edge.app import create_app as party_app
from commingle.services.learner.app import create_app as learner_app
from commingle.services.learner.source import ReleaseSource

FOLDER = Path(__file__).parents[2] / "docs" / "openapi"


def descriptions() -> dict[str, str]:
    with tempfile.TemporaryDirectory() as folder:
        return _descriptions(open_store(f"sqlite:///{folder}/store.sqlite"))


def _descriptions(store: Store) -> dict[str, str]:
    hub = Coordinator("hub", cast("Any", None), store, cast("Any", None), cast("Any", None))
    apps = {
        "coordinator": coordinator_app(hub, Publisher(hub), Feed(store)),
        "party-agent": party_app(LocalApi(agents=cast("Any", None), loops=None, peer_is_operator=True)),
        "learner": learner_app(ReleaseSource(ReleaseClient("http://127.0.0.1:1"))),
    }
    store.close()
    return {f"{name}.json": json.dumps(app.openapi(), indent=1, sort_keys=True) + "\n" for name, app in apps.items()}


if __name__ == "__main__":
    for name, text in descriptions().items():
        (FOLDER / name).write_text(text)
