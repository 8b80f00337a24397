"""Memory since the last restart, its growth, and leaks."""
