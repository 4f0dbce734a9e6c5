"""A learner's client: fits the newest release by the learner's HTTP API and prints the table. It has no data.

Usage: fit.py LEARNER MECHANISM TARGET FEATURE...
"""

import sys

import httpx

learner, mechanism, target, *features = sys.argv[1:]
with httpx.Client(base_url=learner, timeout=120) as http:
    releases = http.get("/v1/releases").raise_for_status().json()["items"]
    release = next(each for each in releases if each["mechanism"] == mechanism)
    asked = {"target": target, "features": features}
    fit = http.post(f"/v1/releases/{release['id']}/fits", json=asked).raise_for_status().json()
print(f"{release['study']}: {target} by {', '.join(features)} ({fit['estimator']})")  # noqa: T201 - its output
for term, value, (low, high) in zip(fit["terms"], fit["coefficients"], fit["intervals"], strict=True):
    print(f"  {term:<24} {value:>9.3f}   {low:>9.3f} to {high:>9.3f}")  # noqa: T201 - its output
