"""`commingle plan`: what a release will be worth, from public figures."""
