"""Runs side by side: which policies, by which figures, in which words."""
