"""HTTP to the coordinator and to this agent's own programs: clients, and the answers as models."""
