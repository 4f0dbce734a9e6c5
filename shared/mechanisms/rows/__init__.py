"""rmgm and dgm: what is published are rows, mixed or plain, plus Gaussian noise."""
