"""An HTTP API that fits published releases."""
