"""Short examples for the OpenAPI document: of models, and of answers whose model says only that they are JSON."""

import json
from collections.abc import Mapping
from typing import Any

from pydantic import ConfigDict

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
"l1_ratio": 0.0, "noise_penalty": null, "n": 2000, "rows": 400
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
            '"n": 2000, "rows": 400',
        ),
        "partial-correlations": (
            '"labels": ["age", "bmi"], "values": [[1.0, 0.05], [0.05, 1.0]]',
            '"standard_errors": [[null, 0.05], [0.05, null]], "interval_for": "table", "n": 2000, "rows": 400',
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
    """A model's configuration with an example, JSON."""
    return ConfigDict(json_schema_extra={"examples": [json.loads(example)]})
