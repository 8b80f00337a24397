"""Proxies that tests and people put between the daemon and a server."""
