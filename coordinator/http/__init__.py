"""The coordinator's HTTP interface, version 1."""
