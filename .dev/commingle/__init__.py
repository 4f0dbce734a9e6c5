"""Commingle: differentially private data release by several parties, over HTTP.

The names that users import. They load on first use: importing commingle itself reads no other module.

    from commingle import Release, ReleaseClient

    with ReleaseClient("https://coordinator.example", trusted_coordinator=fingerprint) as client:
        release = client.fetch(next(client.releases()).id)
    print(release.fit("charges", ["age", "smoker"]).summary())

`Release` and `ReleaseClient` fetch, verify and analyse published releases, and `Fit` is what a fit returns.
`PartyClient` connects a member's own programs to its agent. `CommingleRegressor` (extra `sklearn`) is a fit behind
scikit-learn's interface. `plan` says what a `Study` will be worth, `PRESETS` has the terms of published papers, and
every fault is a `CommingleError` with a remedy.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from commingle.shared import __version__

if TYPE_CHECKING:
    from commingle.party_agent.edge.client import PartyClient
    from commingle.services.client.regressor import CommingleRegressor
    from commingle.services.client.release import Release
    from commingle.services.client.remote import ReleaseClient
    from commingle.services.fit.result import Fit
    from commingle.shared.documents.presets import PRESETS
    from commingle.shared.documents.study import Study
    from commingle.shared.errors import CommingleError
    from commingle.shared.forecast.forecast import plan

__all__ = [
    "PRESETS",
    "CommingleError",
    "CommingleRegressor",
    "Fit",
    "PartyClient",
    "Release",
    "ReleaseClient",
    "Study",
    "__version__",
    "plan",
]

_WHERE = {
    "CommingleError": "commingle.shared.errors",
    "CommingleRegressor": "commingle.services.client.regressor",
    "PRESETS": "commingle.shared.documents.presets",
    "Fit": "commingle.services.fit.result",
    "PartyClient": "commingle.party_agent.edge.client",
    "Release": "commingle.services.client.release",
    "ReleaseClient": "commingle.services.client.remote",
    "Study": "commingle.shared.documents.study",
    "plan": "commingle.shared.forecast.forecast",
}


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_WHERE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__]
