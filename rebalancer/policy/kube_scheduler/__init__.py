"""The configuration of kube-scheduler."""
