"""Usage of past days, and the hot-node SLO."""
