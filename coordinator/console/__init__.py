"""The console of a coordinator: pages on this machine, for its operator. They read, and change nothing."""
