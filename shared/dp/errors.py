"""Parameters and values that would void a guarantee.

PrivacyError
├── ParameterError          epsilon, delta, rho, row_norm or a size outside its domain
└── EncodingRangeError      a value that should have been clipped was not
"""

from commingle.shared.errors import CommingleError


class PrivacyError(CommingleError):
    """Something that would void a guarantee."""

    code = "privacy"


class ParameterError(PrivacyError):
    """A privacy parameter outside its domain."""

    code = "privacy-parameter"


class EncodingRangeError(PrivacyError):
    """An encoded value outside [-1, 1]."""

    code = "encoding-range"
