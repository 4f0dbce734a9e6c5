"""How a Commingle process runs: clock, files, keys on disk, HTTP edges, logging and the command line."""
