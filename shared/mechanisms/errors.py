"""Errors of the projection.

MixingError (a ValueError)    an argument outside the domain of docs/design/mixing.md
"""


class MixingError(ValueError):
    """An argument lies outside the domain for which the projection is defined and exact."""
