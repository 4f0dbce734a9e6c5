"""Regressions of this party alone: asked for locally, checked, paid for, signed (docs/regression.md)."""
