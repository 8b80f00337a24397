"""May this pod go (guards, budgets), and how many (admission)? Used by every strategy and trigger through one door."""
