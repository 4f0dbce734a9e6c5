"""A party's agent: the only code that ever sees private rows."""
