"""What this party has spent."""
