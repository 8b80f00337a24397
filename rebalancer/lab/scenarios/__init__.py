"""What a practice cluster is made of, and what happens to it."""
