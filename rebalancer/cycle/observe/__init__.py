"""The input of a cycle, and whether it is safe to use."""
