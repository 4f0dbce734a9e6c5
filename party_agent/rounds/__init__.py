"""A release, step by step, at one agent."""
