"""What starts a cycle: requests, and open alerts."""
