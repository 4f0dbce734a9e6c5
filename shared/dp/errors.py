"""Parameters and values that would void a guarantee."""

from commingle.shared.errors import CommingleError


class PrivacyError(CommingleError):  # something that would void a guarantee
    code = "privacy"


class ParameterError(PrivacyError):  # epsilon, delta, rho, row_norm or a size outside its domain
    code = "privacy-parameter"


class EncodingRangeError(PrivacyError):  # an encoded value outside [-1, 1]: it should have been clipped
    code = "encoding-range"
