"""Explanations of pods and nodes."""
