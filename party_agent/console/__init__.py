"""The console of a party: pages on this machine, for the person who decides. It asks the local API like any command."""
