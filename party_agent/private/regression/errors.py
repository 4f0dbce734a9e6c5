"""What the regression room refuses. Parameters outside their domain are `shared.privacy.errors.ParameterError`."""

from commingle.shared.errors import CommingleError


class SampleError(CommingleError):
    """Rows and labels that are not a regression problem; sizes only, never a value."""

    code = "regression-sample"
