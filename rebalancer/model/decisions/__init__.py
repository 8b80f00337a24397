"""Decisions of a cycle, and the ports through which it reads and acts."""
