"""Parameters and values that would void a guarantee.

PrivacyError                something that would void a guarantee
├── ParameterError          epsilon, delta, rho, row_norm or a size outside its domain
└── EncodingRangeError      an encoded value outside [-1, 1]: it should have been clipped
"""

from commingle.shared.errors import CommingleError


class PrivacyError(CommingleError):
    code = "privacy"


class ParameterError(PrivacyError):
    code = "privacy-parameter"


class EncodingRangeError(PrivacyError):
    code = "encoding-range"
