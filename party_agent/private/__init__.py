"""The only code that sees rows: sources, encoding, and the ways out under a debit, `privatise` and `regression`."""
