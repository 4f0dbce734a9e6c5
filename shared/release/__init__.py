"""What follows from a spec: blocks, the published matrix, verification, audit and the states of a release."""
