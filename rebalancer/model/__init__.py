"""The nouns of the house. Pure data and pure matching: no I/O, no clock."""
