"""Replays of recordings."""
