"""What the agent answers, tells and listens to."""
