"""Keeps forecasts current, and verifies them afterwards."""
