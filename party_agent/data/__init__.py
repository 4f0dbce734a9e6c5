"""Data sets that the operator declared."""
