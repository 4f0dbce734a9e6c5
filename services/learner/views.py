"""What the learner answers, on the wire, with short examples for the OpenAPI document."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict

from commingle.shared.documents.manifest import PrivacyStatement, PublishedColumn
from commingle.shared.documents.schema import Attribute, encoded_columns, presence_column
from commingle.shared.documents.spec import INTERCEPT, ReleaseSpec, StatedPurpose
from commingle.shared.estimation.pair_noise import Held
from commingle.shared.estimation.pair_noise import held as counts_of
from commingle.shared.estimation.prepared import PreparedMoments
from commingle.shared.release.verification import PublishedRelease
from commingle.shared.wire import ReleaseSummary

_ABOUT = """
"release": "8d0c3f7a1b5e9c24d6f8a03b7e1c5d9f2a4b6c8e0d1f3a5b7c9e2d4f6a8b0c1e", "coordinator_pinned": true,
"members_pinned": ["clinic"], "warnings": []
"""
_FIT = """
"target": "charges, yearly", "terms": ["(intercept)", "age", "smoker[yes]"], "coefficients": [-29.97, 1.98, 24.1],
"standard_errors": [1.32, 0.02, 0.9], "t_values": [-22.8, 79.7, 26.8], "p_values": [0.0, 0.0, 0.0],
"intervals": [[-32.55, -27.38], [1.93, 2.03], [22.3, 25.9]], "confidence_level": 0.95, "interval_for": "table",
"covariance": [[1.73, -0.03, 0.0], [-0.03, 0.0006, 0.0], [0.0, 0.0, 0.81]], "degrees_of_freedom": 397,
"diagnostics": {"condition_number": 2.9, "f_p_value": 0.0, "f_statistic": 3472.5, "feature_root": 4142.3,
  "r_squared": 0.946, "r_squared_error": 0.005, "root": 67.2, "signal_to_noise": 1652.4},
"estimator": "measurement_error", "features": ["age", "smoker"], "intercept": true, "mechanism": "rmgm",
"n": 2000, "rows": 400, "imputed": [], "subjects": [],
"counts": [{"parties": ["the list"], "subjects": 2000.0, "error": 0.0, "kept": 2000.0, "interval": [2000.0, 2000.0]}]
"""
_TEST = """
"target": "charges, yearly", "smaller": ["age"], "larger": ["age", "bmi", "smoker"], "terms": ["bmi", "smoker[yes]"],
"statistic": 1896.99, "degrees_of_freedom": [2, 396], "p_value": 0.0, "r_squared_smaller": 0.912,
"r_squared_larger": 0.994, "interval_for": "population"
"""
_PATH = """
"method": "ridge", "target": "charges, yearly", "features": ["age"], "terms": ["(intercept)", "age"],
"penalties": [0.1, 0.01], "coefficients": [[6.44, 1.82], [1.03, 1.98]], "r_squared": [0.985, 0.993], "best": 1,
"l1_ratio": 0.0, "noise_penalty": null, "n": 2000, "rows": 400, "subjects": []
"""
_GLM = """
"family": "binomial", "outcome": "readmitted[yes]", "features": ["sex"], "terms": ["(intercept)", "sex[m]"],
"coefficients": [-2.05, 0.31], "standard_errors": [0.06, 0.08], "intervals": [[-2.17, -1.93], [0.15, 0.47]],
"p_values": [0.0, 0.0001], "ratios": [0.129, 1.363], "ratio_intervals": [[0.114, 0.145], [1.162, 1.6]],
"covariance": [[0.0036, -0.0035], [-0.0035, 0.0064]], "marginal_effects": [null, 0.036],
"marginal_errors": [null, 0.009], "auc": 0.538, "auc_interval": [0.517, 0.559], "levels": ["sex[f]", "sex[m]"],
"expected": [0.114, 0.149], "observed": [0.114, 0.15], "observed_errors": [0.006, 0.007],
"n": 10000, "n_interval": [10000, 10000], "confidence_level": 0.95, "interval_for": "population",
"sentence": "All other features alike, odds of readmitted[yes] are 1.36 times as high at sex[m] as at sex[f].",
"about": "The model speaks of everybody in the release.",
"prior": "Coefficients of features have a normal prior of mean 0 and standard deviation 1.", "subjects": []
"""
ANSWERS: Mapping[str, Mapping[str, Any]] = {
    name: json.loads("{" + ",".join((_ABOUT, *parts)) + "}")
    for name, parts in {
        "fit": (_FIT,),
        "two-stage": (_FIT, '"endogenous": ["bmi"], "instruments": ["age"], "first_stages": []'),
        "compare": (_TEST,),
        "glm": (_GLM,),
        "ridge-path": (_PATH,),
        "lasso-path": (_PATH, '"method": "elastic_net", "l1_ratio": 1.0, "noise_penalty": 0.12'),
        "pca": (
            '"labels": ["age", "bmi"], "loadings": [[0.71, 0.71], [-0.71, 0.71]], "shares": [0.52, 0.48]',
            '"variances": [1.03, 0.97], "signal_to_noise": [3960.7, 3706.7], "standardised": true',
            '"n": 2000, "rows": 400, "subjects": []',
        ),
        "partial-correlations": (
            '"labels": ["age", "bmi"], "values": [[1.0, 0.05], [0.05, 1.0]]',
            '"standard_errors": [[null, 0.05], [0.05, null]], "interval_for": "table"',
            '"n": 2000, "rows": 400, "subjects": []',
        ),
        "table": (
            '"row": "smoker", "column": "readmitted", "rows": ["no", "yes"], "columns": ["no", "yes"]',
            '"counts": [[1402.0, 151.0], [371.0, 78.0]], "count_errors": [[6.1, 6.1], [6.1, 6.1]], "event": "yes"',
            '"reference": "no", "compared": ["no", "yes"], "shares": [0.097, 0.174]',
            '"share_intervals": [[0.081, 0.114], [0.138, 0.211]], "differences": [null, 0.076]',
            '"difference_intervals": [[null, null], [0.036, 0.117]], "ratios": [null, 1.79]',
            '"ratio_intervals": [[null, null], [1.35, 2.35]], "odds_ratios": [null, 1.95]',
            '"odds_intervals": [[null, null], [1.4, 2.71]], "statistic": 17.2, "degrees_of_freedom": 1',
            '"p_value": 3e-05, "trend_p_value": null, "confidence_level": 0.95, "subjects": []',
            '"sentence": "17.4% of those with smoker = yes have readmitted = yes, and 9.7% of those with smoker = no."',
        ),
        "survival": (
            '"outcome": "outcome", "by": "stage", "time": "followup", "event": "died = yes", "unit": "months"',
            '"intervals": ["[0, 12)", "[12, 24]"], "begin": 0.0, "ends": [12.0, 24.0], "groups": ["i", "ii"]',
            '"at_risk": [[1500.0, 1212.0], [903.0, 655.0]], "at_risk_errors": [[9.1, 6.5], [9.1, 6.5]]',
            '"events": [[148.0, 122.0], [171.0, 119.0]], "survival": [[0.896, 0.799], [0.802, 0.649]]',
            '"survival_intervals": [[[0.879, 0.914], [0.776, 0.823]], [[0.774, 0.831], [0.615, 0.685]]]',
            '"causes": [], "incidence": [[], []], "incidence_intervals": [[], []]',
            '"restricted_means": [21.5, 19.5], "restricted_mean_intervals": [[21.2, 21.8], [19.0, 20.0]]',
            '"horizons": [24.0, 24.0], "statistic": 61.2, "degrees_of_freedom": 1, "p_value": 1e-14',
            '"confidence_level": 0.95, "subjects": []',
            '"sentence": "79.9% of i, 64.9% of ii reach 24 months without died = yes; log-rank p <0.001."',
        ),
        "hazard-ratios": (
            '"outcome": "outcome", "event": "died = yes", "features": ["stage"], "terms": ["stage[ii]"]',
            '"coefficients": [0.73], "standard_errors": [0.063], "p_values": [1e-30], "ratios": [2.07]',
            '"ratio_intervals": [[1.83, 2.34]], "covariance": [[0.00397]], "change_p_values": [0.89]',
            '"statistic": 0.02, "degrees_of_freedom": 1, "p_value": 0.89, "intervals": ["[0, 12)"]',
            '"interval_ratios": [[null]], "interval_ratio_intervals": [[[null, null]]], "events": [1036.0]',
            '"confidence_level": 0.95, "subjects": []',
            '"sentence": "All other features alike, the hazard of died = yes is 2.07 times as high at stage[ii]."',
        ),
        "describe": (
            '"by": "smoker", "groups": ["no", "yes"], "people": [1553.0, 449.0], "lines": ["age (years)", "sex = f"]',
            '"counts": [[1553.0, 449.0], [801.0, 190.0]], "values": [[54.2, 49.8], [0.516, 0.423]]',
            '"intervals": [[[53.3, 55.1], [48.1, 51.5]], [[0.49, 0.542], [0.375, 0.471]]]',
            '"deviations": [16.9, null], "p_values": [1e-05, 0.0004], "trend_p_values": [null, null]',
            '"confidence_level": 0.95, "subjects": []',
        ),
    }.items()
}


def with_example(example: str) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [json.loads(example)]})


@dataclass(frozen=True, slots=True, eq=False)
class LoadedRelease:
    """What fits need of a verified release; its files are not kept.

    Attributes:
        pinned: whether the coordinator's key was known beforehand.
    """

    published: PublishedRelease
    prepared: PreparedMoments
    pinned: bool


class _View(BaseModel):
    model_config = ConfigDict(frozen=True)


class Predictions(_View):
    """Expected target for every row given, in its own unit."""

    model_config = with_example(
        """
        {"release": "8d0c3f7a1b5e9c24d6f8a03b7e1c5d9f2a4b6c8e0d1f3a5b7c9e2d4f6a8b0c1e",
         "target": "charges, yearly", "estimator": "shrunken", "predictions": [66.08],
         "warnings": ["shrunken is for prediction: it is biased on purpose and has no standard errors."]}
        """
    )

    release: str
    target: str
    estimator: str
    predictions: list[float]
    warnings: list[str]


class ReleaseItem(_View):
    """One line of the list. `epsilon` and `delta` are per member, in the release's own adjacency."""

    model_config = with_example(
        """
        {"id": "8d0c3f7a1b5e9c24d6f8a03b7e1c5d9f2a4b6c8e0d1f3a5b7c9e2d4f6a8b0c1e",
         "study": "Charges", "mechanism": "rmgm", "n": 2000, "k": 400, "epsilon": 1.0, "delta": 1e-05,
         "parties": ["clinic", "insurer"]}
        """
    )

    id: str
    study: str
    mechanism: str
    n: int
    k: int | None
    epsilon: float
    delta: float
    parties: list[str]

    @classmethod
    def of_summary(cls, summary: ReleaseSummary) -> Self:
        names = [party.name for party in summary.parties]
        return cls(**summary.model_dump(include=set(cls.model_fields) - {"parties"}), parties=names)

    @classmethod
    def of_spec(cls, release: str, spec: ReleaseSpec) -> Self:
        facts = spec.model_dump(include=set(cls.model_fields) - {"id", "parties"})
        return cls(id=release, parties=[party.name for party in spec.parties], **facts)


class ReleaseList(_View):
    """Published releases. While the coordinator is away: those this learner kept, all at once."""

    items: list[ReleaseItem]
    next: str | None
    source: Literal["coordinator", "cache"]


class Column(_View):
    """One column of the matrix.

    `signal_to_noise` is the estimated variance of a published entry without its noise, over the variance of the noise:
    near or below 0 the column is buried. Of a whitened column both are those of the attribute in its place, undone.
    """

    name: str
    label: str
    party: str | None
    noise_variance: float
    signal_to_noise: float | None


class SubjectCount(_View):
    """How many people of keyed data sets a member holds or two share, its standard error, and how many count."""

    parties: list[str]
    subjects: float
    error: float
    kept: float


class MemberKey(_View):
    """A member's key; unless it is pinned, the member is only what that key calls itself."""

    name: str
    fingerprint: str
    pinned: bool


class ReleaseDetail(ReleaseItem):
    """A verified release."""

    model_config = ConfigDict(json_schema_extra={})

    rows: int
    stated: StatedPurpose
    adjacency: str
    coordinator: str
    coordinator_pinned: bool
    members: list[MemberKey]
    published: datetime
    attributes: list[Attribute]
    columns: list[Column]
    subjects: Literal["listed", "keyed"]
    subject_counts: list[SubjectCount]
    privacy: PrivacyStatement

    @classmethod
    def of(cls, held: LoadedRelease) -> Self:
        """All that can be said about it."""
        spec, manifest = held.published.spec, held.published.manifest
        return cls(
            **ReleaseItem.of_spec(held.published.release, spec).model_dump(),
            rows=held.prepared.rows,
            stated=StatedPurpose(**spec.stated),
            adjacency=spec.terms.adjacency,
            coordinator=held.published.coordinator,
            coordinator_pinned=held.pinned,
            members=[MemberKey.model_validate({"name": name, **key}) for name, key in held.published.members.items()],
            published=manifest.published,
            attributes=list(spec.terms.attributes),
            columns=_columns(held),
            subjects="keyed" if spec.keyed else "listed",
            subject_counts=[
                SubjectCount(parties=list(c.parties), subjects=c.subjects, error=c.error, kept=c.kept)
                for c in _counts(held)
            ],
            privacy=manifest.privacy,
        )


class ReleaseMoments(_View):
    """Estimated second moments S_hat = G - rows V of the encoded attributes, summed over the n people.

    The intercept comes first. An attribute's encoded value is (original - offset) / scale. S_hat may have negative
    eigenvalues where noise outweighs signal. The noise of one row has covariance V: diagonal where no member whitened.
    A moments release publishes S_hat itself, with the variances of the noise E in the entries of what was published;
    S_hat carries the noise T E T^T, T being `mixing`, the identity where no member whitened.
    """

    model_config = with_example(
        """
        {"release": "8d0c3f7a1b5e9c24d6f8a03b7e1c5d9f2a4b6c8e0d1f3a5b7c9e2d4f6a8b0c1e",
         "mechanism": "moments", "n": 2000, "rows": 2000, "columns": ["(intercept)", "age"],
         "labels": ["(intercept)", "age"],
         "offset": [0.0, 50.0], "scale": [1.0, 30.0], "second_moments": [[2000.0, -54.9], [-54.9, 721.1]],
         "noise_variance": [0.0, 0.0], "noise_covariance": [[0.0, 0.0], [0.0, 0.0]],
         "mixing": [[1.0, 0.0], [0.0, 1.0]],
         "entry_variance": [[0.0, 12.5], [12.5, 25.0]]}
        """
    )

    release: str
    mechanism: str
    n: int
    rows: int
    columns: list[str]
    labels: list[str]
    offset: list[float]
    scale: list[float]
    second_moments: list[list[float]]
    noise_variance: list[float]
    noise_covariance: list[list[float]]
    mixing: list[list[float]]
    entry_variance: list[list[float]] | None

    @classmethod
    def of(cls, held: LoadedRelease) -> Self:
        """S_hat and V."""
        p = held.prepared
        return cls(
            release=held.published.release,
            mechanism=p.mechanism,
            n=p.n,
            rows=p.rows,
            columns=[INTERCEPT, *(column.name for column in encoded_columns(held.published.spec.terms.attributes))],
            labels=list(p.labels),
            offset=p.offset.tolist(),
            scale=p.scale.tolist(),
            second_moments=(p.gram - p.rows * p.V).tolist(),
            noise_variance=np.diag(p.V).tolist(),
            noise_covariance=p.V.tolist(),
            mixing=p.mixing.tolist(),
            entry_variance=None if p.entry_variance is None else p.entry_variance.tolist(),
        )


def _counts(held: LoadedRelease) -> tuple[Held, ...]:
    return () if held.prepared.pairs is None else counts_of(held.prepared.pairs)


def _columns(held: LoadedRelease) -> list[Column]:
    """Signal: (G_jj - G_1j^2 / G_11) / (rows - 1) - v_j, the intercept partialled out; presences are left out."""
    p = held.prepared
    ones = {INTERCEPT, *(presence_column(party.name).name for party in held.published.spec.parties)}
    first = PublishedColumn(name=INTERCEPT, party=None, sigma=0)
    published = (first, *(column for column in held.published.manifest.columns if column.name not in ones))
    spread = (np.diag(p.gram) - p.gram[0] ** 2 / p.gram[0, 0]) / (p.rows - 1)
    return [
        Column(
            name=column.name,
            label=label,
            party=column.party,
            noise_variance=noise,
            signal_to_noise=(variance - noise) / noise if noise > 0 else None,
        )
        for column, label, noise, variance in zip(
            published, p.labels, np.diag(p.V).tolist(), spread.tolist(), strict=True
        )
    ]
