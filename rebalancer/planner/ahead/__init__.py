"""Ahead of a peak: the nodes that will be hot, and the latest start of their relief."""
