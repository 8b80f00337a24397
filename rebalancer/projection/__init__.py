"""The cluster of the next minutes: what leaves, what ends, what is disturbed. Decisions read it, not the present."""
