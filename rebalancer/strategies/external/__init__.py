"""Strategies of other packages."""
