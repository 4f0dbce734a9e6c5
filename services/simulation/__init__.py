"""`commingle simulate`: a whole consortium on one machine."""
