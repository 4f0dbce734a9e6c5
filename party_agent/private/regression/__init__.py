"""Linear regression by one holder of all attributes of a task: published private methods (docs/design/methods.md)."""
