"""Advice on what keeps nodes hot: what replays would have been without it."""
