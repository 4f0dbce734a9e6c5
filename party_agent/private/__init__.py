"""The room where rows are: sources, encoding and the two ways out of it, privatised and masked."""
