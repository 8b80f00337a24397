"""Strategies that restore constraints of the scheduler."""
