"""Requests to the API server: credentials, timeouts, retries, streams."""
