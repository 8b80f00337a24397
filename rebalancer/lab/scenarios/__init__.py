"""Scenarios: the contents of a practice cluster, and its scheduled events."""
