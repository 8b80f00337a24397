"""The account of a day, from the lab alone: its usage model, its log, the statuses of its PodDisruptionBudgets."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bench.day.unserved import Name, Span, exposed_spans, spans_without_ready
from rebalancer.lab import Lab
from rebalancer.lab.loads.history import Stay
from rebalancer.lab.objects.store import Change
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.schema.limits import resolve

MINUTE = 60.0
HOUR = 3600.0
OURS = "rebalancer"
"""User-Agents of the product begin with it."""

_SCALED = ("deployments", "statefulsets")


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """Counts of a day, or of the part that was counted."""

    hot_minutes: int
    """Minutes that nodes were hot, all together."""
    hot_by_hour: tuple[int, ...]
    peak_share: float
    evictions: int
    """By us, accepted."""
    refused: int
    """Refused by the API server."""
    broken_budgets: tuple[Name, ...]
    """Budgets that were under their floor while an evicted pod of ours had no Ready replacement."""
    low_budget_minutes: float
    """Minutes that budgets were under their floor, whatever the cause."""
    over_limit: tuple[Name, ...]
    """Services that were moved more often in an hour than their limit."""
    most_of_a_service: int
    """Evictions by us of one service."""
    pods: int
    """That ran at all."""
    unserved: Mapping[Name, tuple[Span, ...]] = field(default_factory=dict)
    """Service of two replicas or more -> when it had no Ready pod."""
    exposed: Mapping[Name, tuple[Span, ...]] = field(default_factory=dict)
    """Service -> when an eviction by us was in flight or recent."""


@dataclass(frozen=True, slots=True)
class _Health:
    at: float
    healthy: int
    floor: int
    expected: int


class Budgets:
    """Health of every budget over time; made before the day begins."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self.courses: dict[Name, list[_Health]] = defaultdict(list)
        self.replicas: dict[Name, list[tuple[float, int]]] = defaultdict(list)
        """Service -> (from when, desired replicas)."""
        with lab.cluster.lock:
            for plural in ("poddisruptionbudgets", *_SCALED):
                for each in lab.cluster.store.all(plural):
                    self._note(plural, each)
            lab.cluster.store.subscribe(self._observe)

    def _observe(self, change: Change) -> None:
        if change.type != "DELETED":
            self._note(change.plural, change.object)

    def _note(self, plural: str, obj: dict[str, Any]) -> None:
        meta, now = obj["metadata"], self._lab.clock.now()
        name = meta.get("namespace", ""), meta["name"]
        if plural == "poddisruptionbudgets" and obj.get("status"):
            status = obj["status"]
            health = _Health(now, status["currentHealthy"], status["desiredHealthy"], status["expectedPods"])
            self.courses[name].append(health)
        elif plural in _SCALED:
            self.replicas[name].append((now, int(obj["spec"].get("replicas", 1))))


def account(lab: Lab, budgets: Budgets, policy: RebalancerPolicy, *, start: float, end: float, high: float) -> Day:
    """Count from `start` to `end`."""
    times = np.arange(start, end, MINUTE)
    figures = lab.usage.window_means(times)
    shares = figures.nodes / np.array([machine.cores for machine in figures.columns.machines])[:, None]
    hot = np.count_nonzero((shares > high) & figures.up, axis=0)
    moved: dict[Name, list[float]] = defaultdict(list)
    refused = 0
    for entry in lab.log.evictions():
        if entry.user_agent.startswith(OURS):
            if entry.code == 201:
                moved[entry.namespace, service_of(entry.name)].append(entry.at)
            else:
                refused += 1
    stays: dict[Name, list[Stay]] = defaultdict(list)
    for stay in figures.columns.stays:
        stays[stay.namespace, service_of(stay.pod)].append(stay)
    unserved = {
        name: spans_without_ready(stays[name], desired, start=start, end=end)
        for name, desired in budgets.replicas.items()
        if name in stays
    }
    low, broken = 0.0, []
    for name, course in budgets.courses.items():
        low += _low_seconds(course, end)
        if any(_breaks(course, at) for at in moved.get(name, ())):
            broken.append(name)
    return Day(
        hot_minutes=int(hot.sum()),
        hot_by_hour=tuple(int(hot[at : at + 60].sum()) for at in range(0, len(hot), 60)),
        peak_share=float(shares[figures.up].max()),
        evictions=sum(len(at) for at in moved.values()),
        refused=refused,
        broken_budgets=tuple(sorted(broken)),
        low_budget_minutes=low / MINUTE,
        over_limit=tuple(sorted(name for name, at in moved.items() if _over_limit(at, budgets.replicas[name], policy))),
        most_of_a_service=max((len(at) for at in moved.values()), default=0),
        pods=len(figures.columns.stays),
        unserved={name: spans for name, spans in unserved.items() if spans},
        exposed={name: exposed_spans(at, stays[name], end=end) for name, at in moved.items()},
    )


def service_of(pod: str) -> str:
    """`cart-7d9f-x2x2x` (a Deployment's) is of `cart`, and so is `cart-0`."""
    parts = pod.split("-")
    return "-".join(parts[:-1] if parts[-1].isdigit() and len(parts[-1]) < 3 else parts[:-2])


def _low_seconds(course: list[_Health], end: float) -> float:
    ends = [*(each.at for each in course[1:]), end]
    return sum(until - each.at for each, until in zip(course, ends, strict=True) if each.healthy < each.floor)


def _breaks(course: list[_Health], at: float) -> bool:
    """Whether a budget is under its floor between an eviction and the moment in which all are healthy again, and was
    not before it."""
    first = bisect_right([each.at for each in course], at - 1e-6) - 1
    if first >= 0 and course[first].healthy < course[first].floor:
        return False
    for each in course[first + 1 :]:
        if each.healthy < each.floor:
            return True
        if each.at > at and each.healthy >= each.expected:
            return False
    return False


def _over_limit(times: list[float], replicas: list[tuple[float, int]], policy: RebalancerPolicy) -> bool:
    """Whether more were moved within any window than the greatest limit that held in it."""
    at = sorted(times)
    for rate in policy.limits.service.evictions:
        window = float(rate.per)
        for number, last in enumerate(at):
            inside = [each for each in at[: number + 1] if each > last - window]
            known = [count for since, count in replicas if since <= last]
            during = [count for since, count in replicas if last - window < since <= last]
            most = max([*known[-1:], *during], default=1)
            if len(inside) > resolve(rate.max, most, rate.at_least):
                return True
    return False
