"""Replay: the recorded days again on a simulated clock, under a policy."""
