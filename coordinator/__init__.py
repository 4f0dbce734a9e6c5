"""The coordinator: enrols parties, runs rounds, assembles and publishes. It sees only privatised blocks."""
