"""Queries, their units and chunks, and the columns of their answers."""
