"""Generalised linear models of a release of moments: odds ratios and rates, at no further cost of privacy."""

from commingle.services.models.family import FAMILIES
from commingle.services.models.glm import glm
from commingle.services.models.result import GeneralisedFit

__all__ = ["FAMILIES", "GeneralisedFit", "glm"]
