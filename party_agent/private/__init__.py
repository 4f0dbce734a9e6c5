"""The room where rows are: sources, encoding and the one bridge from rows to a privatised block."""
