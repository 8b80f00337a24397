"""State of cluster, ledger and daemon for the pages of the dashboard."""
