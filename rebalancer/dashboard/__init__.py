"""The state of cluster, ledger and daemon, as the pages of the dashboard show it."""
