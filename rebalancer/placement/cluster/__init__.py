"""The cluster in the scheduler's view: nodes, kinds of pods, and what is counted on each node."""
