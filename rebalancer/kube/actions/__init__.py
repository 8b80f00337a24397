"""Writes to the cluster: evictions, taints, cordons, Events."""
