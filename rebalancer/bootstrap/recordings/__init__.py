"""Recordings and replays."""
