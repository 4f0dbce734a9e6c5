"""Fetch, verify and fit published releases.

with ReleaseClient("https://coordinator.example", trusted_coordinator=fingerprint) as client:
release = client.fetch(next(client.releases()).id)
print(release.fit("charges", ["age", "smoker"]).summary())
"""

from commingle.services.client.release import Release
from commingle.services.client.remote import ReleaseClient
from commingle.services.fit import Fit

__all__ = ["Fit", "Release", "ReleaseClient"]
