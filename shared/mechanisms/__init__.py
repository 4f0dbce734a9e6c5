"""The kinds of release, one folder each (docs/adr/0013): what is uploaded, how it is fitted, what it will be worth."""
