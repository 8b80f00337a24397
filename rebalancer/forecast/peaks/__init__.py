"""Forecasts of the peaks of nodes."""
