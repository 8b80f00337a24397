"""The only place where it is all wired together: the cycle, its world, its settings."""
