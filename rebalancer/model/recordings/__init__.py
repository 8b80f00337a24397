"""Recordings: what a replay needs to know of the past, and its results."""
