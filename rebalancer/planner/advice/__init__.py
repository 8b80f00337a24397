"""Advice on the configuration of kube-scheduler."""
