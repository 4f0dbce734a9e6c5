"""Results as tables: in a notebook, as a data frame. Nothing here computes."""
