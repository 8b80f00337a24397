"""Parts of the dashboard's pages, made by hand."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from rebalancer.effect.report import AccuracyLine, Report, make_report
from rebalancer.model.decisions.eviction import Eviction, TargetNode
from rebalancer.model.decisions.eviction import Outcome as EvictionOutcome
from rebalancer.model.notation.document import Dimension
from rebalancer.model.reason import BlockedReason, MissReason, Reason
from rebalancer.model.records.cycles import CycleSummary, RecordedFinding, RefusalExample, RefusalGroup
from rebalancer.model.records.effect import Assessment, HotEpisode, Outcome, PodBefore, Step
from rebalancer.web.pages import views
from rebalancer.web.pages.overview import PoolHeat
from rebalancer.web.pages.views import NodeLine, NodeSelection, NodeState
from tests.builders import an_eviction
from tests.effect.builders import a_breakdown, a_row, an_hour

NOW = 1_790_082_000.0
"""2026-09-22 13:00 UTC, a Tuesday."""
HOUR, DAY = 3600.0, 86_400.0
CYCLE = "0123456789abcdef0123456789abcdef"
HIGH, TARGET = 0.75, 0.65


def a_node(name: str = "node-1", share: float | None = 0.5, **fields: Any) -> NodeLine:
    """One that is hot when its share says so."""
    state = NodeState.UNKNOWN if share is None else NodeState.HOT if share > HIGH else NodeState.COOL
    given: dict[str, Any] = {
        "pool": "general",
        "state": state,
        "high": HIGH,
        "target": TARGET,
        "capacity_millicores": 16_000.0,
        "pods": 31,
    }
    return NodeLine(name=name, share=share, **{**given, **fields})


def a_map(nodes: Sequence[NodeLine], selection: NodeSelection = NodeSelection(), **fields: Any) -> views.Map:  # noqa: B008 - frozen
    """Of all these nodes, in their order."""
    pools = [
        views.PoolLine(
            name=pool,
            nodes=len(members),
            states={state: sum(line.state is state for line in members) for state in NodeState},
            soft_tainted=sum(bool(line.soft_tainted) for line in members),
            cordoned=sum(line.cordoned for line in members),
            share=sum(line.share or 0.0 for line in members) / len(members),
            high=HIGH,
        )
        for pool in dict.fromkeys(line.pool for line in nodes)
        if (members := [line for line in nodes if line.pool == pool])
    ]
    wanted = [
        line
        for line in nodes
        if selection.pool in (None, line.pool) and selection.state in (None, line.state) and selection.text in line.name
    ]
    return views.Map(
        selection=selection,
        at=NOW - 20,
        forecast_mode="Act",
        forecast_at=NOW - 400,
        pools=tuple(pools),
        nodes=tuple(wanted[selection.first : selection.first + views.MOST_TILES]),
        of=len(wanted),
        **fields,
    )


def a_cycle_line(**fields: Any) -> CycleSummary:
    given: dict[str, Any] = {
        "id": CYCLE,
        "version": "0.1.0",
        "trigger": "alert",
        "dry_run": False,
        "started_at": NOW - 65,
        "finished_at": NOW - 64.2,
        "nodes": 40,
        "hot_nodes": 2,
        "findings": 2,
        "hot_node_minutes": 37.5,
        "price": 1.25,
        "refusals": 9,
        "outcomes": {"evicted": 2, "refused": 1},
        "stopped": "",
        "notes": ("nodes may not be patched, so none gets a soft taint: only certain landings count",),
    }
    return CycleSummary(**{**given, **fields})


def a_move(**fields: Any) -> Eviction:
    given: dict[str, Any] = {
        "planned_at": NOW - 64.8,
        "cycle": CYCLE,
        "trigger": "alert",
        "node": "node-1",
        "pod": "checkout-6c9f7d5b8-x2x7k",
        "service": "shop/checkout",
        "cpu_millicores": 1650.0,
        "reason": "real CPU 91.2% is over high 75% (alert NodeHot), to be cooled to 65%; "
        "relieves the node of 10.3% cpu",
        "outcome": EvictionOutcome.EVICTED,
        "target_nodes": (TargetNode("node-7", 0.75), TargetNode("node-9", 0.25)),
        "replacement_pod": "checkout-6c9f7d5b8-9q4mz",
        "replacement_node": "node-7",
        "replaced_at": NOW - 30,
        "effect": "cooled",
    }
    return an_eviction(**{**given, **fields})


def a_pod(name: str = "checkout-6c9f7d5b8-x2x7k", **fields: Any) -> views.PodNow:
    """On node-1; with a `code` one that stays."""
    given: dict[str, Any] = {
        "namespace": "shop",
        "node": "node-1",
        "service": "shop/checkout",
        "cpu_millicores": 1650.0,
        "cpu_share": 0.103,
        "cpu_request_millicores": 500.0,
        "created": NOW - 3 * HOUR,
        "message": Reason(fields["code"]).sentence if fields.get("code") else "",
    }
    return views.PodNow(name=name, **{**given, **fields})


def a_refusal(code: Reason = Reason.TOO_YOUNG, **fields: Any) -> RefusalGroup:
    given: dict[str, Any] = {
        "node": "node-1",
        "code": code.value,
        "count": 3,
        "examples": (
            RefusalExample(pod="shop/cart-7d4b9c6f5-abcde", message=f"{code.sentence}: 2m", cpu_millicores=820.0),
            RefusalExample(pod="shop/cart-7d4b9c6f5-fghij", message=f"{code.sentence}: 90s", cpu_millicores=None),
        ),
        "cycle": CYCLE,
        "at": NOW - 65,
    }
    return RefusalGroup(**{**given, **fields})


def a_finding(**fields: Any) -> RecordedFinding:
    given: dict[str, Any] = {
        "at": NOW - 65,
        "cycle": CYCLE,
        "node": "node-1",
        "strategy": "LowNodeUtilization",
        "share": 0.912,
        "high": HIGH,
        "target": TARGET,
        "reason": "real CPU 91.2% is over high 75% (alert NodeHot), to be cooled to 65%",
    }
    return RecordedFinding(**{**given, **fields})


ACCOUNT = a_breakdown(
    14_592.0, 11_100.0, evicted=3300.0, departed=450.0, arrived=310.0, remaining_change=-120.0, residual=68.0
)


def an_assessment(**fields: Any) -> Assessment:
    given: dict[str, Any] = {
        "cycle": CYCLE,
        "node": "node-1",
        "pool": "general",
        "strategy": "LowNodeUtilization",
        "trigger": "alert",
        "step": Step.SETTLED,
        "last_eviction_at": NOW - 2 * HOUR,
        "due_at": NOW - 1.75 * HOUR,
        "before_share": 0.912,
        "planned_share": 0.706,
        "target": TARGET,
        "high": HIGH,
        "capacity": 16_000.0,
        "pods": (PodBefore(uid="u1", pod="shop/checkout-1", amount=1650.0, evicted=True),),
        "assessed_at": NOW - 1.75 * HOUR,
        "after_share": 0.694,
        "breakdown": ACCOUNT,
        "outcome": Outcome.TOO_FEW_EVICTED,
        "detail": "from 91.2% to 69.4%, target 65%: 3.3 cores were evicted, 4.19 would have been needed",
    }
    return Assessment(**{**given, **fields})


def an_episode(**fields: Any) -> HotEpisode:
    given: dict[str, Any] = {
        "node": "node-1",
        "pool": "general",
        "started_at": NOW - 3 * HOUR,
        "ended_at": NOW - 2 * HOUR,
        "peak_share": 0.93,
        "threshold": 0.85,
        "discovered_at": NOW - 2.9 * HOUR,
        "discovery_trigger": "alert",
        "strategy": "LowNodeUtilization",
        "evictions": 2,
        "cooled": True,
        "detail": "discovered 6m after it became hot, 2 evictions",
    }
    return HotEpisode(**{**given, **fields})


def a_curve(peak: float = 0.93) -> views.Curve:
    def share(at: float) -> float:
        hour = at / HOUR % 24
        return 0.28 + (peak - 0.28) * math.exp(-((hour - 10) ** 2) / 14) + 0.02 * math.sin(at / 700)

    since, until = NOW - DAY, NOW + DAY
    past = [(at, share(at)) for at in _steps(since, NOW)]
    ahead = [(at, share(at) * 1.06) for at in _steps(NOW, until)]
    times = {"now": NOW, "since": since, "until": until}
    return views.Curve(past=tuple(past), source="5-minute means from the usage history", ahead=tuple(ahead), **times)


def _steps(since: float, until: float) -> Iterable[float]:
    return [since + 300.0 * step for step in range(int((until - since) / 300))]


def a_heat(pool: str = "general", **fields: Any) -> PoolHeat:
    """Six hours of a pool whose hottest node was cooled an hour ago."""
    since, until = NOW - 6 * HOUR, NOW + 3 * HOUR
    given: dict[str, Any] = {
        "high": HIGH,
        "target": TARGET,
        "past": tuple(
            (at, 0.6 if at > NOW - HOUR else 0.7 + 0.1 * (at - since) / HOUR / 6) for at in _steps(since, NOW)
        ),
        "ahead": tuple((at, 0.6 + 0.03 * (at - NOW) / HOUR) for at in _steps(NOW, until)),
        "evictions": ((NOW - HOUR, "shop/cart-0 from node-1"), (NOW - HOUR + 1, "shop/cart-1 from node-1")),
        "now": NOW,
        "since": since,
        "until": until,
    }
    return PoolHeat(pool=pool, **{**given, **fields})


def a_node_page(line: NodeLine, **fields: Any) -> views.NodePage:
    plan = (
        "peak 96% expected at 2026-09-23 10:05 UTC, over 75% from 2026-09-23 08:40 UTC; "
        "to be relieved by 2026-09-23 05:45 UTC, before the window 'night' closes at 2026-09-23 06:00 UTC"
    )
    gone: dict[str, Any] = {"replacement_node": "", "replaced_at": None, "effect": ""}
    refused = {"outcome": EvictionOutcome.REFUSED, "code": "ServerBudget", "detail": Reason.SERVER_BUDGET.sentence}
    to_come: dict[str, Any] = dict.fromkeys(("assessed_at", "outcome", "breakdown", "after_share"))
    times = {"started_at": NOW - 30 * HOUR, "ended_at": NOW - 29 * HOUR, "discovered_at": None}
    missed = {"miss_reason": MissReason.BELOW_THRESHOLD, "detail": "measured at most 72.1%, high is 75%"}
    given: dict[str, Any] = {
        "at": NOW - 20,
        "plan": plan,
        "curve": a_curve(),
        "evictions": (
            a_move(),
            a_move(pod="cart-0", planned_at=NOW - 60, **gone),
            a_move(pod="db-0", **gone, **refused),
        ),
        "findings": (a_finding(),),
        "refusals": (a_refusal(), a_refusal(Reason.NO_NODE_WITH_HEADROOM, count=11, cycles=4)),
        "assessments": (
            an_assessment(step=Step.DAY, **to_come, detail=""),
            an_assessment(),
            an_assessment(step=Step.HOUR, outcome=Outcome.COOLED, after_share=0.61, detail="at or under the target"),
        ),
        "episodes": (an_episode(), an_episode(**times, discovery_trigger="", evictions=0, cooled=None, **missed)),
    }
    return views.NodePage(line=line, **{**given, **fields})


def a_report(days: int = 14, by: Dimension | None = "pool") -> Report:
    today = int(NOW // DAY)
    counts: dict[str, Any] = {"hot": 9, "evictions": 21, "prevented": 2, "false_alarms": 1, "trigger": "alert"}
    relief = {"relief_planned": 12.5, "relief_measured": 11.2}
    reasons = {
        f"eviction/{BlockedReason.GUARDS}": 1,
        f"eviction/{BlockedReason.NO_TARGET_NODE}": 1,
        f"effect/{Outcome.COOLED}": 4,
        f"effect/{Outcome.REMAINING_PODS_GREW}": 1,
    }
    rows = [
        a_row(
            cluster="blue",
            pool=pool,
            day=today - ago,
            discovered=8 - ago % 3,
            evicted_from=6 - ago % 3,
            cooled=4 - ago % 2,
            assessed=5 - ago % 2,
            hot_node_minutes=240.0 + 40 * (ago % 5),
            reasons={f"discovery/{MissReason.BELOW_THRESHOLD}": 1 + ago % 3, **reasons},
            **counts,
            **relief,
        )
        for ago in range(days)
        for pool in ("general", "batch")
    ]
    of_hour: dict[str, Any] = {"nodes": 20, "hot_nodes": 1.5, "hot_node_minutes": 12.0, "new_pods": 14}
    shares = {"cpu_share": 0.55, "requested_share": 0.75, "share_stddev": 0.11, "highest_share": 0.91}
    hours = [
        an_hour(int(NOW // HOUR) - ago, pool=pool, new_pods_over_target=2, **of_hour, **shares)
        for ago in range(days * 24)
        for pool in ("general", "batch")
    ]
    blocked = an_episode(node="node-2", blocked_reason=BlockedReason.GUARDS, evictions=0, cooled=None)
    accuracy = {"mae": 0.031, "coverage": 0.92, "hot_recall": 0.88, "hot_precision": None, "peak_hour_error": 0.75}
    return make_report(
        since=NOW - days * DAY,
        until=NOW,
        by=() if by is None else (by,),
        days=rows,
        episodes=[an_episode(), blocked],
        assessments=[an_assessment()],
        moved=[
            an_eviction(service="shop/checkout", node="node-1", cycle=CYCLE, trigger="alert"),
            an_eviction(service="shop/cart", node="node-2", cycle=CYCLE, trigger="forecast"),
        ],
        hours=hours,
        accuracy=[AccuracyLine(pool=None, forecasts=420, **accuracy)],
    )


def a_cluster(count: int, pools: Sequence[str] = ("general", "batch", "memory")) -> list[NodeLine]:
    """So many nodes, the hottest first: some hot, some expected to be, a few unknown."""
    lines = []
    for number in range(count):
        wave = (number * 7919 % 1000) / 1000
        share = None if number % 97 == 96 else round(0.08 + 0.62 * wave + (0.25 if number % 41 == 0 else 0.0), 3)
        peak = None if share is None else min(share * 1.35 + 0.03, 1.05)
        scale = f"ip-10-0-{number // 250}-{number % 250}.eu-central-1.compute.internal"
        forecast = {"peak_share": peak, "peak_at": None if peak is None else NOW + 3600.0 * (2 + number % 20)}
        state = {"cordoned": number % 61 == 7, "ready": number % 89 != 3}
        line = a_node(
            scale if count < 200 else f"node-{number:04d}",
            share,
            pool=pools[number % len(pools)],
            soft_tainted="hot" if number % 41 == 0 else "no-room" if number % 53 == 5 else "",
            problem="no usage sample" if share is None else "",
            **forecast,
            **state,
        )
        if line.state is NodeState.COOL and peak is not None and peak > HIGH:
            line = replace(line, state=NodeState.EXPECTED, hot_from=NOW + 7200.0)
        lines.append(line)
    rank = {NodeState.HOT: 0, NodeState.EXPECTED: 1, NodeState.COOL: 2, NodeState.UNKNOWN: 3}
    return sorted(lines, key=lambda line: (rank[line.state], -(line.share or 0.0), line.name))
