"""What a cycle reports."""
