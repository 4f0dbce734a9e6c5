"""Differential privacy: sensitivity, calibration, accounting, exact noise and exact clipping."""
