"""Further analyses of the same moments, at no further cost of privacy.

See docs/design/estimation.md#more-from-the-same-moments.
"""

from commingle.services.analysis.covariance import PartialCorrelations, PrincipalComponents, partial_correlations, pca
from commingle.services.analysis.description import Description, describe
from commingle.services.analysis.linear_models import Comparison, TwoStageFit, compare, two_stage
from commingle.services.analysis.paths import CoefficientPath, lasso_path, ridge_path
from commingle.services.analysis.survival import Survival, survival
from commingle.services.analysis.tables import CrossTable, cross_table

__all__ = [
    "CoefficientPath",
    "Comparison",
    "CrossTable",
    "Description",
    "PartialCorrelations",
    "PrincipalComponents",
    "Survival",
    "TwoStageFit",
    "compare",
    "cross_table",
    "describe",
    "lasso_path",
    "partial_correlations",
    "pca",
    "ridge_path",
    "survival",
    "two_stage",
]
