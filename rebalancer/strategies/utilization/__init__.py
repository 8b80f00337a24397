"""Strategies that act on utilization and contention."""
