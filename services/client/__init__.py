"""Fetch, verify and analyse published releases; see docs/sdk.md. Users import the names from `commingle` itself."""
