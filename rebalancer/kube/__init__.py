"""Kubernetes in and out: auth, paged lists, the snapshot, eviction, the lease and metrics-server."""
