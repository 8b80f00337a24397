"""A snapshot of the cluster, once and kept current."""
