"""Linear regression by one holder of all attributes: published private methods (docs/design/estimation.md)."""
