"""HTTP calls to one Prometheus."""
