"""From second moments to coefficients with honest errors: pure, no I/O (docs/design/estimation.md)."""
