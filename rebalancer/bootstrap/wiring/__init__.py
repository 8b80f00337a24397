"""Adapters from settings and a policy."""
