"""Small builders of what was read and recorded."""

import math
from collections.abc import Mapping
from typing import Any

from rebalancer.model.reason import Reason
from rebalancer.model.records import effect as records
from rebalancer.model.records.effect import Assessment, DayRow, HotEpisode, NodeObservation, Outcome, PodBefore, Step

DAY = 20_850
"""Monday, 2027-02-01."""
T0 = DAY * 86_400.0 + 8 * 3600.0
"""Its morning, 08:00 UTC."""
MINUTE = 60.0
STRATEGY = "LowNodeUtilization"


def an_episode(*, minutes: float | None = 60, start: float = T0, **changes: Any) -> HotEpisode:
    """Of node-1, from 08:00 on."""
    values: dict[str, Any] = {
        "node": "node-1",
        "pool": "general",
        "started_at": start,
        "ended_at": None if minutes is None else start + minutes * MINUTE,
        "peak_share": 0.784,
        "threshold": 0.75,
    }
    return HotEpisode(**values | changes)


def a_sighting(minute: float, **changes: Any) -> NodeObservation:
    """By the timer, so many minutes after the episode's start; of a node that it did not look at."""
    values: dict[str, Any] = {"cycle": f"cycle-{minute:g}", "at": T0 + minute * MINUTE, "trigger": "periodic"}
    values |= {"dry_run": False, "finding": None, "share": None, "high": None, "refusals": {}}
    return NodeObservation(**values | changes)


def a_look(minute: float, share: float | None = 0.712, **changes: Any) -> NodeObservation:
    """One that looked at the node."""
    return a_sighting(minute, **{"share": share, "high": 0.75} | changes)


def a_finding(minute: float, refusals: Mapping[Reason, int] | None = None, **changes: Any) -> NodeObservation:
    """One that found it."""
    return a_look(minute, 0.8, **{"finding": STRATEGY, "refusals": refusals or {}} | changes)


def a_pod(name: str, millicores: float = 500.0, *, evicted: bool = False) -> PodBefore:
    return PodBefore(uid=f"uid-{name}", pod=f"shop/{name}", amount=millicores, evicted=evicted)


def an_assessment(*pods: PodBefore, minute: float = 10, outcome: Outcome | None = None, **changes: Any) -> Assessment:
    """Of node-1 with 10 cores, found at 80%, to be cooled to 70%."""
    values: dict[str, Any] = {
        "cycle": f"cycle-{minute:g}",
        "node": "node-1",
        "pool": "general",
        "strategy": STRATEGY,
        "trigger": "periodic",
        "step": Step.SETTLED,
        "last_eviction_at": T0 + minute * MINUTE,
        "due_at": T0 + (minute + 15) * MINUTE,
        "before_share": 0.8,
        "planned_share": 0.68,
        "target": 0.7,
        "high": 0.75,
        "capacity": 10_000.0,
        "pods": pods,
        "outcome": outcome,
        "assessed_at": None if outcome is None else T0 + (minute + 15) * MINUTE,
    }
    return Assessment(**values | changes)


def a_breakdown(before: float = 8_000.0, after: float = 7_000.0, **parts: float) -> records.ChangeBreakdown:
    """Parts that are not named are zero, the residual too."""
    none = dict.fromkeys(("evicted", "departed", "arrived", "returned", "remaining_change", "residual"), 0.0)
    return records.ChangeBreakdown(before=before, after=after, **none | parts)


def an_hour(hour: int, **changes: Any) -> records.PoolHour:
    values: dict[str, Any] = {"pool": "general", "nodes": 10, "hot_nodes": 1.0, "hot_node_minutes": 60.0}
    values |= {"cpu_share": 0.5, "requested_share": 0.7, "share_stddev": 0.1, "highest_share": 0.8}
    return records.PoolHour(hour=hour, **values | {"new_pods": 0, "new_pods_over_target": 0} | changes)


def a_row(**changes: Any) -> DayRow:
    values: dict[str, Any] = {"pool": "general", "strategy": STRATEGY, "trigger": "periodic", "day": DAY}
    return DayRow(**{"cluster": "test"} | values | changes)


UNKNOWN = math.nan
