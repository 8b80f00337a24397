"""Small builders for the store's tests."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rebalancer.model.cluster.owners import Service
from rebalancer.model.decisions.eviction import Eviction, TargetNode, eviction_of
from rebalancer.model.decisions.limits import Check, Scope
from rebalancer.model.decisions.plan import CycleReport, Finding, NodeLine, PodRefusal, Trigger
from rebalancer.model.measured.history import DAY_SECONDS
from rebalancer.model.reason import Reason, Refusal
from rebalancer.model.records.forecasts import ForecastKind, StoredForecast

CLUSTER = "blue"
NOW = 1_760_000_000.25
"""2025-10-09T08:53:20.25Z"""
MIDNIGHT = NOW // DAY_SECONDS * DAY_SECONDS


@dataclass
class SteppingClock:
    """Stands still but for sleeps."""

    at: float = NOW

    def now(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += seconds


@dataclass(frozen=True)
class PodSeen:
    """What the API server says of a pod."""

    uid: str
    terminating: bool = False
    ready: bool = True
    ready_since: float = 0.0
    node: str = "n1"
    eviction_in_progress: bool = False


@dataclass
class FakeReader:
    """A cluster that answers only for single pods."""

    pods: dict[tuple[str, str], PodSeen] = field(default_factory=dict)
    error: Exception | None = None

    def snapshot(self):
        raise NotImplementedError

    def pod_states(self, pods):
        if self.error:
            raise self.error
        return {pod: self.pods[pod] for pod in pods if pod in self.pods}


def build_report(*, cycle: str = "c1", dry_run: bool = False, started_at: float = NOW, **changes) -> CycleReport:
    return CycleReport(
        id=cycle, cluster=CLUSTER, trigger=Trigger.MANUAL, dry_run=dry_run, started_at=started_at, **changes
    )


def build_eviction(
    *, node: str = "n1", service: str = "web", cpu: float = 750.5, cluster: str = CLUSTER, **changes
) -> Eviction:
    return eviction_of(
        **{
            "namespace": "shop",
            "pod": "web-1",
            "uid": f"uid-{changes.get('pod', 'web-1')}",
            "node": node,
            "pool": "general",
            "service": Service(kind="Deployment", namespace="shop", name=service),
            "service_identity": f"shop/{service}",
            "strategy": "LowNodeUtilization",
            "reason": "relieves n1 of 0.09",
            "cpu_millicores": cpu,
            "level": "gold",
            "owner_uid": f"uid-of-{service}",
            "target_nodes": (TargetNode("n2", 0.75), TargetNode("n3", 0.25)),
            "pull_bytes": 5e8,
            "scopes": build_scopes(cluster=cluster, node=node, service=service),
            "ready_before": 3,
            "desired_before": 3,
            "grace_seconds": 30.0,
            "deadline_at": NOW + 600,
        }
        | changes
    )


def a_forecast(node: str = "n1", **fields: Any) -> StoredForecast:
    """One of a day for all of the next, a minute after midnight."""
    given: dict[str, Any] = {
        "kind": ForecastKind.DAILY,
        "node": node,
        "pool": "general",
        "made_at": MIDNIGHT + 60.5,
        "until": fields.get("made_at", MIDNIGHT + 60.5) + DAY_SECONDS,
        "predictor": "combined",
        "peak_millicores": 3200.25,
        "peak_at": MIDNIGHT + 32_400.0,
        "margin_millicores": 200.5,
        "capacity_millicores": 4000.0,
        "high": 0.75,
        "days_used": 8,
        "confidence": 0.875,
        "pods": (("0a1b2c3d", 0.5), ("ffffffff", 0.25)),
    }
    return StoredForecast(**{**given, **fields})


GLOBAL = Scope("global", "")


def build_scopes(*, cluster: str = CLUSTER, node: str = "n1", service: str = "web") -> tuple[Scope, ...]:
    """What an eviction counts in."""
    return (
        GLOBAL,
        Scope("cluster", cluster),
        Scope("node", f"{cluster}/{node}"),
        Scope("service", f"shop/{service}"),
        Scope("serviceNode", f"{cluster}/{node}/shop/{service}"),
    )


def rate(scope: Scope, at_most: int, per_seconds: float = 60.0) -> Check:
    return Check(scope=scope, kind="rate", at_most=at_most, per_seconds=per_seconds)


def spacing(scope: Scope, per_seconds: float) -> Check:
    return Check(scope=scope, kind="spacing", at_most=1, per_seconds=per_seconds)


def separation(scope: Scope, per_seconds: float) -> Check:
    return Check(scope=scope, kind="separation", at_most=1, per_seconds=per_seconds)


def in_flight(scope: Scope, at_most: int) -> Check:
    return Check(scope=scope, kind="inFlight", at_most=at_most)


def build_finding(**changes) -> Finding:
    return Finding(
        **{
            "strategy": "LowNodeUtilization",
            "node": 0,
            "pool": "general",
            "reason": "91% of CPU used, above 80%",
            "cpu_share": 0.91,
            "high": 0.8,
            "target": 0.7,
            "candidates": np.array([0, 1], dtype=np.int32),
        }
        | changes
    )


def build_refusal(
    *, node: str = "n1", pod: str = "web-2", code: Reason = Reason.TOO_YOUNG, detail: str = ""
) -> PodRefusal:
    return PodRefusal(
        node=node, namespace="shop" if pod else "", name=pod, code=code, message=Refusal.of(code, detail).message
    )


def build_line(*, name: str = "n1", before: float | None = 0.91, planned: float | None = 0.68, **changes) -> NodeLine:
    changed = {"changed": before != planned} | changes
    return NodeLine(name=name, pool="general", cpu_before=before, cpu_planned=planned, **changed)
