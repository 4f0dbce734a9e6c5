"""Tables that people give for a plan or a simulation: read as agents read them, with a draft of their schema."""
