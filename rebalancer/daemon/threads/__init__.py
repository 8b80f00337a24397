"""Threads of the daemon, a class each: what it needs, and `run` until the daemon stops."""
