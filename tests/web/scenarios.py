"""A dashboard without a daemon: hand-made views, and the application that shows them."""

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from rebalancer.model.cluster.obstacles import Obstacle
from rebalancer.model.decisions.eviction import Eviction, TargetNode
from rebalancer.model.decisions.limits import EvictionBackoff, LimitLine, Pause, Scope
from rebalancer.model.errors import RebalancerError
from rebalancer.model.notation.document import Dimension
from rebalancer.model.records.cycles import (
    CycleNode,
    CycleRecord,
    CycleSummary,
    RefusalGroup,
    ServiceEvictions,
)
from rebalancer.model.records.effect import Assessment
from rebalancer.web import Auth, make_app
from rebalancer.web.pages import views
from rebalancer.web.pages.overview import Due, Evaluated, PoolHeat, WhyNot
from rebalancer.web.pages.verdict import Tone, Verdict
from rebalancer.web.pages.views import NodeLine, NodeSelection
from tests.builders import an_eviction
from tests.web.builders import (
    DAY,
    HIGH,
    HOUR,
    NOW,
    a_cycle_line,
    a_finding,
    a_heat,
    a_map,
    a_move,
    a_node,
    a_node_page,
    a_pod,
    a_refusal,
    a_report,
    an_assessment,
)
from tests.web.fakes import Daemon

PEAK = "peak 96% expected at 2026-09-22 15:05 UTC, over 75% from 2026-09-22 14:40 UTC"
LIMITS = (
    (("global", ""), "30 in 1h", 4, 26, None),
    (("pool", "blue/general"), "2 in 10m", 2, 0, NOW + 300),
    (("cluster", "blue"), "5 in flight", 5, 0, None),
    (("pulls", "blue/general"), "20Gi being pulled", 3 << 30, 17 << 30, None),
    (("landing", "blue/node-7"), "6 in flight", 0, 6, None),
)
"""(scope, limit, used, left, when there is room again)"""
WINDOWS = (
    ("cluster blue", "open until 2026-09-23 04:00 UTC", None, "night"),
    ("service shop/db", "closed until 2026-09-27 02:00 UTC", NOW + 4 * DAY, "allow 0 2 * * 0 2h UTC"),
    ("service shop/odd", "", None, "not a cron"),
)
"""(scope, state, when it opens, the window); without a state it is broken."""
WAITS = Verdict(tone=Tone.WATCH, title="1 of 2 nodes hot:", text="waiting for 1 replacement, 40s")
UNDER_WAY: dict[str, Any] = {
    "pod": "checkout-6c9f7d5b8-x2x7k",
    "planned_at": NOW - 64,
    "deadline_at": NOW + 300,
    "ready_before": 3,
    "desired_before": 3,
    "target_nodes": (TargetNode("node-7", 1.0),),
}


@dataclass
class HandMade:
    """Implements `web.pages.views.Views`, and writes down its calls."""

    nodes: list[NodeLine] = field(default_factory=lambda: [a_node("node-1", 0.912), a_node("node-2", 0.4)])
    pages: dict[str, views.NodePage] = field(default_factory=dict)
    moves: list[Eviction] = field(default_factory=lambda: [a_move()])
    pods: tuple[views.PodNow, ...] = field(default_factory=lambda: (a_pod(), a_pod("cart-0", code="TooYoung")))
    reliefs: tuple[Assessment, ...] = field(default_factory=lambda: (an_assessment(),))
    refusals: list[RefusalGroup] = field(default_factory=lambda: [a_refusal()])
    cycle_lines: list[CycleSummary] = field(default_factory=lambda: [a_cycle_line()])
    pauses: tuple[Pause, ...] = (
        Pause(scope=Scope("pool", "blue/batch"), reason="load test", created_by="ada", until=NOW + HOUR),
    )
    verdict: Verdict = WAITS
    evaluated: Evaluated | None = Evaluated(nodes=1, pools=("general",))  # noqa: RUF009 - frozen
    why_not: tuple[WhyNot, ...] = ()
    heat: tuple[PoolHeat, ...] = field(default_factory=lambda: (a_heat(), a_heat("batch", ahead=(), evictions=())))
    open_breakers: tuple[str, ...] = ()
    obstacles: tuple[Obstacle, ...] = ()
    problem: str = ""
    fails: Exception | None = None
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    leads: bool = True
    dry_run: bool = False
    parts_in: dict[str, str] = field(default_factory=dict)
    grafana: str = ""
    docs: str = ""
    cluster: str = "blue"
    replay_page: bytes | None = None
    failed: tuple[str, ...] = ()
    overdue: str = ""

    def _ask(self, *what: Any) -> None:
        self.calls.append(what)
        if self.fails is not None:
            raise self.fails

    def head(self) -> views.Head:
        return views.Head(
            cluster=self.cluster,
            now=NOW,
            leads=self.leads,
            leadership="since term 7" if self.leads else "node-a holds the lease",
            dry_run=self.dry_run,
            parts_in=self.parts_in,
            version="0.1.0",
            grafana=self.grafana,
            docs=self.docs,
            has_replay=self.replay_page is not None,
            failed_parts=self.failed,
            overdue=self.overdue,
        )

    def replay(self) -> bytes | None:
        self._ask("replay")
        return self.replay_page

    def map(self, selection: NodeSelection) -> views.Map:
        self._ask("map", selection)
        return a_map(self.nodes, selection)

    def overview(self, selection: NodeSelection) -> views.Overview:
        if self.fails is not None and not isinstance(self.fails, RebalancerError):
            raise self.fails
        return views.Overview(
            verdict=self.verdict,
            map=a_map(self.nodes, selection, obstacles=self.obstacles),
            last_cycle=self.cycle_lines[0] if self.cycle_lines else None,
            due=(
                Due(at=NOW + 700, what=PEAK, node="node-2"),
                Due(at=None, what="no window opens in time", node="node-1"),
                Due(at=NOW + 500, what="the forecast is renewed"),
                Due(at=None, what="LowNodeUtilization evaluates general, batch every 2m"),
            ),
            more_due=3,
            leaks=(Due(at=NOW + 7200, what="shop/<b>web</b>-1 grows by 60 MiB an hour", node="node-1"),),
            more_leaks=4,
            open_breakers=self.open_breakers,
            pauses=self.pauses,
            evaluated=self.evaluated,
            why_not=self.why_not,
            heat=self.heat,
            problem=str(self.fails or self.problem),
        )

    def node(self, name: str, *, behind: float = DAY) -> views.NodePage | None:
        self._ask("node", name, behind)
        if name in self.pages:
            return self.pages[name]
        return next((a_node_page(line, pods=self.pods) for line in self.nodes if line.name == name), None)

    def cycles(
        self, *, before: float | None, after: float | None, acted: bool, behind: float = math.inf
    ) -> views.CyclesPage:
        self._ask("cycles", before, after, acted, *([] if math.isinf(behind) else [behind]))
        return views.CyclesPage(
            cycles=tuple(self.cycle_lines),
            older=self.cycle_lines[-1].started_at if self.cycle_lines else None,
            newer=None if before is None else before,
            acted=acted,
        )

    def cycle(self, cycle: str) -> views.CyclePage | None:
        self._ask("cycle", cycle)
        line = next((each for each in self.cycle_lines if each.id == cycle), None)
        if line is None:
            return None
        node: dict[str, Any] = {"pool": "general", "cpu_after": None, "high": HIGH}
        return views.CyclePage(
            record=CycleRecord(
                summary=line,
                findings=(
                    a_finding(),
                    a_finding(node="node-2", resource="memory", share=0.87, reason="over its high"),
                ),
                evictions=tuple(self.moves),
                refusals=tuple(self.refusals),
                nodes=(
                    CycleNode(node="node-1", cpu_before=0.912, cpu_planned=0.706, hot=True, **node),
                    CycleNode(node="node-7", cpu_before=0.31, cpu_planned=0.51, hot=False, **node),
                ),
            ),
            stages={"observe": 0.31, "find": 0.02, "steer": 0.2, "relieve": 0.27},
            assessments=(an_assessment(),),
        )

    def limits(self) -> views.LimitsPage:
        self._ask("limits")
        return views.LimitsPage(
            at=NOW,
            limits=tuple(
                LimitLine(scope=Scope(*scope), what=what, used=used, left=left, in_bytes="Gi" in what, next_at=next_at)
                for scope, what, used, left, next_at in LIMITS
            ),
            windows=tuple(
                views.WindowLine(
                    scope=scope, open=words[:4] == "open", broken=not words, words=words, next_open=at, because=because
                )
                for scope, words, at, because in WINDOWS
            ),
            pauses=self.pauses,
            open_breakers=self.open_breakers,
            cooldowns=(
                views.Cooldown(scope="node node-1", until=NOW + 200, last_at=NOW - 100, what="not relieved again"),
            ),
            backoffs=(
                EvictionBackoff(
                    service_identity="shop/db",
                    node="node-3",
                    until=NOW + HOUR,
                    count=2,
                    reason="its replacement came back to the same node",
                ),
            ),
            open_evictions=(an_eviction(service="shop/checkout", record=1, node="node-1", **UNDER_WAY),),
        )

    def services(self, *, days: int, text: str) -> views.ServicesPage:
        self._ask("services", days, text)
        lines = [
            ServiceEvictions(
                service=name,
                kind="Deployment",
                evictions=moves,
                last_at=NOW - 64,
                triggers={"alert": moves - 1, "forecast": 1},
                strategies={"LowNodeUtilization": moves},
                target_nodes={"node-7": moves - 2, "node-9": 1, "node-10": 1, "node-11": 1},
                effects={"cooled": moves - 3, "remainingPodsGrew": 1} if moves > 4 else {},
                returned=0,
                late=1,
            )
            for name, moves in (("shop/checkout", 14), ("shop/cart", 6), ("search/index", 3))
            if text in name
        ]
        return views.ServicesPage(services=tuple(lines), of=len(lines), days=days, text=text)

    def service(self, name: str) -> views.ServicePage | None:
        self._ask("service", name)
        moves = tuple(each for each in self.moves if str(each.service) == name)
        pods = tuple(each for each in self.pods if each.service == name)
        return views.ServicePage(name=name, evictions=moves, pods=pods) if moves or pods else None

    def search(self, text: str) -> views.SearchPage:
        self._ask("search", text)
        return views.SearchPage(
            text=text,
            nodes=tuple(each for each in self.nodes if text in each.name),
            pods=tuple(each for each in self.pods if text in each.full_name),
            more_pods=7,
            services=tuple(
                views.ServiceNow(name=name, kind="Deployment", pods=3) for name in ("shop/checkout",) if text in name
            ),
            evictions=tuple(each for each in self.moves if text in each.full_name),
        )

    def timeline(self, seconds: float) -> views.TimelinePage:
        self._ask("timeline", seconds)
        return views.TimelinePage(
            since=NOW - seconds,
            until=NOW,
            evictions=tuple(each for each in self.moves if each.reserved.planned_at >= NOW - seconds),
            more=False,
            reliefs=self.reliefs,
            counts=Counter((each.reserved.cycle, each.node) for each in self.moves),
        )

    def policy(self) -> tuple[views.PolicyField, ...]:
        self._ask("policy")
        return (
            views.PolicyField(path="cluster", value=self.cluster, line=3),
            views.PolicyField(path="pools[general].thresholds.high", value="75", line=8),
            views.PolicyField(path="guards.minAge", value="5m", line=None),
        )

    def reports(self, *, days: int, by: Dimension | None) -> views.ReportsPage:
        self._ask("reports", days, by)
        return views.ReportsPage(days=days, by=by, report=a_report(min(days, 60), by))


def the_app(shown: views.Views, daemon: Daemon, *, auth: Auth | None = None, views_open: bool = False) -> Any:
    """The daemon's application with a dashboard; without `auth` everybody may see it."""
    ports = daemon.ports(views=shown, views_open=views_open)
    return make_app(ports, auth=auth or Auth(insecure_no_auth=True), metrics=daemon.metrics)
