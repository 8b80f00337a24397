"""The lab's Kubernetes API server."""
