"""What commands other than the daemon need."""
