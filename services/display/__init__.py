"""Results as tables and as JSON: in a notebook, as a data frame, on the wire. Nothing here computes."""
