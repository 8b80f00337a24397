"""What is left to chance: the scheduler's sample, its choice among equals, and draws of a whole plan."""
