"""The cycles of a run: the simulated cluster behind the ports of a cycle."""
