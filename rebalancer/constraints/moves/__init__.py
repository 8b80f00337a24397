"""Rules about moves: how many, how fast and when."""
