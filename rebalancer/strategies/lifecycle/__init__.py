"""Strategies that act on the age and state of pods and nodes."""
