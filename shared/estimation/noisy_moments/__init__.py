"""Releases that publish S + noise itself, with known entry variances (moments.md, Estimation)."""
