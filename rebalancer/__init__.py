"""Rebalances Kubernetes clusters by real and predicted CPU load, and explains every decision.

Public to other packages: `rebalancer.plugin` for strategies, and `rebalancer.testing` for their tests.
"""

__version__ = "0.1.0"
