"""Odds ratios, rates, hazard ratios and synthetic rows of a release of moments, at no further cost of privacy."""

from commingle.services.models.glm import GeneralisedFit, glm
from commingle.services.models.hazard_ratios import HazardRatios, hazard_ratios
from commingle.services.models.outcome import FAMILIES
from commingle.services.models.stratified import StratifiedTable, stratified
from commingle.services.models.synthetic import SyntheticRows, synthesize

__all__ = [
    "FAMILIES",
    "GeneralisedFit",
    "HazardRatios",
    "StratifiedTable",
    "SyntheticRows",
    "glm",
    "hazard_ratios",
    "stratified",
    "synthesize",
]
