"""The use cases of commands, and what assembles an agent."""
