"""Planners of a cycle, and the simulation that chooses soft taints and cordons."""
