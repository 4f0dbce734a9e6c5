"""Sensitivity, calibration, accounting and noise: everything that carries the privacy guarantee."""
