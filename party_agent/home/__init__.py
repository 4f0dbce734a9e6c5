"""What a party's home holds: settings, policy, tokens, and the data sets that its owner declared."""
