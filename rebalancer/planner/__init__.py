"""Findings to the cheapest set of evictions that reaches the goal, with a reason for every candidate not taken."""

from rebalancer.planner.plan.plan_input import Choice, PlanInput, PlanningTime
from rebalancer.planner.plan.planner import Planner
from rebalancer.planner.plan.state import PlanProgress

__all__ = ["Choice", "PlanInput", "PlanProgress", "Planner", "PlanningTime"]
