"""The kinds of release, one folder each (docs/adr/0013): what is uploaded, how it is fitted, what it will be worth.

`interface` says what a folder offers, `shared.registry` which there are. Everything else asks `mechanism_of(spec)`.
"""

from commingle.shared.registry import mechanism_of

__all__ = ["mechanism_of"]
