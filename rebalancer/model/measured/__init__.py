"""Measured usage: now, over the last days, and as expected."""
