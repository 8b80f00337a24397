"""Assessments of evictions, hot nodes by the hot-node SLO, and reports."""
