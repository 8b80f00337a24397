"""The policy file: its schema and its loader. It parses bytes and opens no file."""

from rebalancer.policy.loader import load_policy
from rebalancer.policy.schema.policy import RebalancerPolicy

__all__ = ["RebalancerPolicy", "load_policy"]
