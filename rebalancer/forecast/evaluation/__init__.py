"""Actuals of forecasts, and their accuracy."""
