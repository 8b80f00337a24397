"""Rebalances Kubernetes clusters by real and predicted CPU load, and explains every decision."""

__version__ = "0.1.0"
