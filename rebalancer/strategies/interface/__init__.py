"""Input and output of a strategy, loads, and the selection of nodes and pods."""
