"""Errors of the projection.

MixingError (a ValueError)    an argument outside the domain of protocol.md section 3
"""


class MixingError(ValueError):
    """An argument lies outside the domain for which the projection is defined and exact."""
