"""Methods and pre-processing of papers that no user is offered: for reproducing what they report."""
