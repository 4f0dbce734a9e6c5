"""Documents, signatures, mechanisms and round states: bytes in, verified values out."""
