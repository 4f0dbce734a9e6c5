"""A learner's client: fits the newest release by the learner's HTTP API and prints it beside what is true.

Usage: fit.py LEARNER MECHANISM TARGET FEATURE... It has no data of a clinic. The people are made up, so it can make up
all of them again and fit them without privacy: what a real client can never do.
"""

import sys
import textwrap

import httpx
import numpy as np

from commingle.services.simulation.dataset import cohort
from commingle.services.simulation.evaluate import design

_PEOPLE = 60_000  # as in tables.py


def truth(target: str, features: list[str]) -> list[float]:
    """Least squares of everybody whom `tables.py` makes up, the intercept first."""
    made_up = cohort(seed=0, subjects=_PEOPLE)
    known = {attribute.name: attribute for attribute in made_up.attributes}
    x, y = (design(made_up.table, tuple(known[name] for name in names)) for names in (features, [target]))
    fitted = np.linalg.lstsq(np.column_stack([np.ones(len(x)), x]), y[:, 0], rcond=None)
    return [float(value) for value in fitted[0]]


learner, mechanism, target, *features = sys.argv[1:]
with httpx.Client(base_url=learner, timeout=120) as http:
    releases = http.get("/v1/releases").raise_for_status().json()["items"]
    release = next(each for each in releases if each["mechanism"] == mechanism)
    place = f"/v1/releases/{release['id']}"
    counts = http.get(place).raise_for_status().json()["subject_counts"]
    asked = {"target": target, "features": features}
    answer = http.post(f"{place}/fits", json=asked)
if answer.is_client_error:
    problem = answer.json()
    sys.exit(f"{release['study']} gives no such fit: {problem['detail']}. {problem['remedy']}")
fit = answer.raise_for_status().json()
said = [release["study"], "", f"{'people':<38} {'about':>9}   {'standard error':>14}"]
said += [f"  {' and '.join(c['parties']):<36} {c['subjects']:>9,.0f}   {c['error']:>14,.0f}" for c in counts]
said += ["", f"{target} by {', '.join(features)}: {fit['estimator']}, 95 % intervals for the population"]
said += [f"{'':<26} {'estimate':>9}   {'interval':^22}   {'everybody, without privacy':>26}"]
rows = zip(fit["terms"], fit["coefficients"], fit["intervals"], truth(target, features), strict=True)
said += [
    f"  {term:<24} {value:>9.3f}   {low:>9.3f} to {high:>9.3f}   {true:>26.3f}"
    for term, value, (low, high), true in rows
]
said += [textwrap.fill(warning, 110, initial_indent="\n") for warning in fit["warnings"]]
print(*said, sep="\n")  # noqa: T201 - its output
