"""What a release will be worth, from public quantities alone, before any budget is spent."""
