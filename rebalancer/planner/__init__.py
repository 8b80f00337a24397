"""Findings to the cheapest set of evictions that reaches the goal, with a reason for every candidate not taken."""

from rebalancer.planner.planner import Planner

__all__ = ["Planner"]
