"""Commingle: differentially private multi-party data release for linear regression."""
