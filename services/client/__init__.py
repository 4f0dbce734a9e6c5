"""Fetch, verify and fit published releases.

with ReleaseClient("https://coordinator.example", trusted_coordinator=fingerprint) as client:
release = client.fetch(next(client.releases()).id)
print(release.fit("charges", ["age", "smoker"]).summary())
"""

from services.client.release import Release
from services.client.remote import ReleaseClient
from services.estimation import Fit

__all__ = ["Fit", "Release", "ReleaseClient"]
