"""What the coordinator remembers: members, releases and their events, in SQLite or PostgreSQL."""
