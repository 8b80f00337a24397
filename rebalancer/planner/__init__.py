"""Findings to the cheapest set of evictions that reaches the goal, with a reason for every candidate not taken."""

from rebalancer.planner.plan.counted import PlanProgress
from rebalancer.planner.plan.plan_input import Choice, PlanInput, PlanningTime
from rebalancer.planner.plan.planner import Planner

__all__ = ["Choice", "PlanInput", "PlanProgress", "Planner", "PlanningTime"]
