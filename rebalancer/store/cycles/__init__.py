"""Records of cycles: written by the cycle, read by reports and the dashboard."""
