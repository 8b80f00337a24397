"""Forecasts and what they are made of."""
