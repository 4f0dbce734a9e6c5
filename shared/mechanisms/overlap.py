"""Whether fits of a planned release of keyed subjects will be possible across its parties."""

from commingle.shared.estimation.pairwise import ENOUGH_SHARED


def fits_across(n: int, error: float | None) -> bool:
    """Whether n subjects whom all hold are enough, with that standard error of their number; None where it is exact."""
    return error is None or n >= ENOUGH_SHARED * error
