"""The candidates of a finding: which may go and would help, and in which order."""
