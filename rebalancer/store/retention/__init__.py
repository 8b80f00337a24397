"""Removal and thinning of old rows."""
