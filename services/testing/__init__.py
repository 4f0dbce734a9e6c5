"""A consortium for tests and demonstrations: coordinator and agents on this machine, and faults to inject.

Users import it as `commingle.testing` (docs/testing.md).
"""
