"""Pauses: backoff, cooldowns and pools that scale up."""
