"""Plans beside the fewest evictions that would do."""
