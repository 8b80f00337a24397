"""The lab's Prometheus."""
