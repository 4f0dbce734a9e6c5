"""Commands' use cases, and what assembles an agent."""
