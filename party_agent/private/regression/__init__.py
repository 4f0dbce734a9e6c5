"""Linear regression by one holder of all attributes of a task: published private methods (design: methods.md B, C)."""
