"""moments: what is published are second moments, computed among the parties, plus Gaussian noise."""
