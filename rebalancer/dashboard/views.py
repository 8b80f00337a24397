"""What the dashboard shows, from the daemon's memory and its database. Reads; changes nothing, and decides nothing."""

import math
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from rebalancer import __version__
from rebalancer.bootstrap.process.paths import newest_replay
from rebalancer.dashboard.limits import limits_page
from rebalancer.dashboard.nodes import NodeView, NodeViewCache, known
from rebalancer.dashboard.overview import OverviewViews
from rebalancer.dashboard.pods import MAX_FOUND, PodViews, found_nodes
from rebalancer.dashboard.snapshot import SharedSnapshot
from rebalancer.dashboard.sources import Sources
from rebalancer.evaluation.reporting import Source, gather
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.decisions.plan import CycleReport
from rebalancer.model.errors import RebalancerError
from rebalancer.model.measured.history import DAY_SECONDS, SLOTS, STEP_SECONDS
from rebalancer.model.measured.usage import Usage
from rebalancer.model.notation.document import Dimension
from rebalancer.model.notation.resource_names import CPU
from rebalancer.model.records.effect import Step
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.effective import effective_values
from rebalancer.policy.modes import modes, parts_in
from rebalancer.policy.source import policy_in
from rebalancer.web.pages import views
from rebalancer.web.pages.views import MOST_TILES, NodeLine, NodeSelection, NodeState

AHEAD_SECONDS = DAY_SECONDS
LOG_INTERVAL_SECONDS = 7 * DAY_SECONDS
"""Findings and refusals of a node are shown for so long."""
EPISODE_SECONDS = 30 * DAY_SECONDS
CYCLES_AT_ONCE = 50
MAX_EVICTIONS = 100
TIMELINE_EVICTIONS = 500
FINDINGS_AT_ONCE = 25
SERVICES_AT_ONCE = 300
STAGES_KEPT = 1000
POLICY_FILE = "policy file"
LIMITS_SECONDS = 10.0
"""A page of limits is reused for so long: on a large cluster it takes a second."""


class LiveViews:
    """Implements `web.pages.views.Views`."""

    def __init__(self, sources: Sources) -> None:
        self._from = sources
        self._snapshot = SharedSnapshot(sources.current, sources.clock)
        self._node_views = NodeViewCache(
            current=sources.current,
            snapshot=self._snapshot.latest,
            leads=sources.leadership.holds,
            kept=sources.archive,
            clock=sources.clock,
        )
        self._pods = PodViews(sources.current, self._snapshot.latest, self._node_views.pod_millicores)
        self._overview = OverviewViews(sources, self._snapshot.latest, self._node_views, self._pods)
        self._stages: OrderedDict[str, Mapping[str, float]] = OrderedDict()
        self._limits: tuple[float, views.LimitsPage] | None = None
        self._lock = threading.Lock()

    # -- input from the daemon ----------------------------------------------------------------------------------------

    def measured(self, snapshot: ClusterSnapshot, usage: Usage) -> None:
        """Store what a cycle has just measured."""
        self._snapshot.measured(snapshot)
        self._node_views.measured(snapshot, usage)

    def done(self, report: CycleReport) -> None:
        """Store a finished cycle's refusals and the duration of its stages; the database does not have all of them."""
        self._pods.done(report)
        if report.evictions:
            self._snapshot.forget()
        with self._lock:
            self._stages[report.id] = dict(report.stages)
            while len(self._stages) > STAGES_KEPT:
                self._stages.popitem(last=False)

    # -- nodes --------------------------------------------------------------------------------------------------------

    def head(self) -> views.Head:
        leadership, policy = self._from.leadership, self._policy
        leads, dry_run = leadership.holds(), self._from.dry_run or modes(policy) == {"DryRun"}
        return views.Head(
            cluster=policy.cluster,
            now=self._now,
            leads=leads,
            leadership=f"since term {leadership.term}" if leads else leadership.waiting_for,
            dry_run=dry_run,
            parts_in={} if dry_run else {"DryRun": parts_in(policy, "DryRun"), "Approve": parts_in(policy, "Approve")},
            version=__version__,
            grafana=self._from.grafana_url,
            docs=self._from.docs_url.rstrip("/"),
            has_replay=bool(self._from.history_dir) and self._replay_page.is_file(),
            failed_parts=tuple(each.sentence for each in self._from.failed_parts()),
            overdue=self._from.overdue(),
        )

    def replay(self) -> bytes | None:
        """The page of the newest replay."""
        try:
            return self._replay_page.read_bytes() if self._from.history_dir else None
        except OSError:
            return None

    @property
    def _replay_page(self) -> Path:
        return newest_replay(self._from.history_dir, self._policy.cluster)

    def map(self, selection: NodeSelection) -> views.Map:
        node_view = self._node_views.latest()
        wanted = [line for line in node_view.lines if _is_selected(line, selection)]
        return views.Map(
            selection=selection,
            at=node_view.measured_at,
            forecast_mode=self._policy.forecast.mode,
            forecast_at=node_view.forecast_at,
            pools=node_view.pools,
            nodes=tuple(wanted[selection.first : selection.first + MOST_TILES]),
            of=len(wanted),
            obstacles=node_view.obstacles,
            problem=node_view.problem,
        )

    def overview(self, selection: NodeSelection) -> views.Overview:
        return self._overview.page(lambda: self.map(selection))

    def node(self, name: str, *, behind: float = DAY_SECONDS) -> views.NodePage | None:
        archive, now = self._from.archive, self._now
        node_view = self._node_views.latest()
        line = node_view.by_name.get(name)
        evictions = tuple(archive.evictions_from(name, limit=MAX_EVICTIONS))
        assessments = self._from.effect.assessments(now - EPISODE_SECONDS, now + 1, node=name)
        episodes = self._from.effect.episodes(now - EPISODE_SECONDS, now + 1, node=name)
        if line is None and not (evictions or assessments or episodes):
            return None
        shown = line or NodeLine(name=name, pool="", state=NodeState.UNKNOWN, share=None)
        findings = archive.findings_of(name, since=now - LOG_INTERVAL_SECONDS, limit=FINDINGS_AT_ONCE)
        return views.NodePage(
            line=shown,
            at=node_view.measured_at,
            plan=next((why for each, why in self._overview.relief() if each.node_name == name), ""),
            curve=self._curve(shown, node_view, behind),
            evictions=evictions,
            findings=tuple(findings),
            refusals=tuple(archive.refusals_of(name, since=now - LOG_INTERVAL_SECONDS)),
            assessments=tuple(reversed(assessments)),
            episodes=tuple(reversed(episodes)),
            gone=line is None,
            pods=self._pods.of_node(name),
            soon=self._pods.soon(name),
        )

    def _curve(self, line: NodeLine, node_view: NodeView, behind: float) -> views.Curve:
        now = self._now
        since = now - behind
        past, source = self._kept(line, since, now), "5-minute means from the usage history"
        if not past:
            seen = self._from.effect.node_observations([line.name], since, now + 1).get(line.name, ())
            past, source = [(each.at, each.share) for each in seen], "measured by cycles"
        if line.share is not None and node_view.measured_at is not None:
            past.append((node_view.measured_at, line.share))
        return views.Curve(
            past=tuple(sorted(past, key=lambda point: point[0])),
            source=source,
            ahead=tuple(node_view.ahead(line.name)),
            now=now,
            since=since,
            until=now + min(behind, AHEAD_SECONDS),
        )

    def _kept(self, line: NodeLine, since: float, until: float) -> list[tuple[float, float | None]]:
        """(time, share) from the day blocks; empty where none is kept here."""
        forecast_loop, room = self._from.current().forecast_loop, line.capacity_millicores
        if forecast_loop is None or not room:
            return []
        out: list[tuple[float, float | None]] = []
        for day in range(int(since // DAY_SECONDS), int(until // DAY_SECONDS) + 1):
            block = forecast_loop.keepers[CPU].nodes_of(day)
            if block is None or line.name not in block[0]:
                continue
            shares = block[1][block[0].index(line.name)] / room
            times = day * DAY_SECONDS + (np.arange(SLOTS) + 0.5) * STEP_SECONDS
            inside = (times >= since) & (times <= until) & np.isfinite(shares)
            out += [(float(at), known(share)) for at, share in zip(times[inside], shares[inside], strict=True)]
        return out

    # -- cycles -------------------------------------------------------------------------------------------------------

    def cycles(
        self, *, before: float | None, after: float | None, acted: bool, behind: float = math.inf
    ) -> views.CyclesPage:
        since = self._now - behind
        # the first page of the range, where the page that asks was opened before
        after = None if after is None else max(after, since)
        recorded = self._from.archive.cycles(CYCLES_AT_ONCE + 1, before=before, after=after, acted=acted)
        rows = [each for each in recorded if each.started_at >= since]
        more = len(rows) > CYCLES_AT_ONCE
        shown = rows[-CYCLES_AT_ONCE:] if after is not None else rows[:CYCLES_AT_ONCE]
        has_older, has_newer = (bool(shown), more) if after is not None else (more, before is not None and bool(shown))
        return views.CyclesPage(
            cycles=tuple(shown),
            older=shown[-1].started_at if has_older else None,
            newer=shown[0].started_at if has_newer else None,
            acted=acted,
        )

    def cycle(self, cycle: str) -> views.CyclePage | None:
        kept = self._from.archive.cycle(cycle)
        if kept is None:
            return None
        line = kept.summary
        with self._lock:
            stages = self._stages.get(cycle, {})
        until = (line.finished_at or line.started_at) + DAY_SECONDS
        assessed = self._from.effect.assessments(line.started_at, until) if line.outcomes else ()
        return views.CyclePage(
            record=kept,
            stages=stages,
            assessments=tuple(each for each in assessed if each.cycle == cycle),
        )

    # -- limits -------------------------------------------------------------------------------------------------------

    def limits(self) -> views.LimitsPage:
        with self._lock:
            kept = self._limits
        if kept is not None and time.monotonic() - kept[0] < LIMITS_SECONDS:
            return kept[1]
        page = limits_page(self._policy, self._snapshot.latest(), self._from.ledger, self._from.effect)
        with self._lock:
            self._limits = (time.monotonic(), page)
        return page

    # -- services and reports -----------------------------------------------------------------------------------------

    def services(self, *, days: int, text: str) -> views.ServicesPage:
        rows = self._from.archive.services(self._now - days * DAY_SECONDS, like=text)
        shown = tuple(rows[:SERVICES_AT_ONCE])
        return views.ServicesPage(services=shown, of=len(rows), days=days, text=text)

    def service(self, name: str) -> views.ServicePage | None:
        evictions = tuple(self._from.archive.evictions_of(name, limit=MAX_EVICTIONS))
        pods = self._pods.of_service(name)
        return views.ServicePage(name=name, evictions=evictions, pods=pods) if evictions or pods else None

    def search(self, text: str) -> views.SearchPage:
        nodes, problem = found_nodes(self._node_views.latest().lines, text), ""
        pods, more_pods, services, more_services = self._pods.search(text)
        evictions: Sequence[Eviction] = ()
        try:
            since = self._now - LOG_INTERVAL_SECONDS
            evictions = self._from.archive.evictions_since(since, like=text, limit=MAX_FOUND)
        except RebalancerError as error:
            problem = str(error)
        return views.SearchPage(
            text=text,
            nodes=tuple(nodes[:MAX_FOUND]),
            more_nodes=max(len(nodes) - MAX_FOUND, 0),
            pods=tuple(pods),
            more_pods=more_pods,
            services=tuple(services),
            more_services=more_services,
            evictions=tuple(evictions),
            problem=problem,
        )

    def timeline(self, seconds: float) -> views.TimelinePage:
        now = self._now
        rows = self._from.archive.evictions_since(now - seconds, limit=TIMELINE_EVICTIONS + 1)
        shown = tuple(rows[:TIMELINE_EVICTIONS])
        counts = Counter((each.reserved.cycle, each.node) for each in shown if each.happened)
        settled = self._from.effect.assessments(now - seconds, now + 1, step=Step.SETTLED)
        return views.TimelinePage(
            since=now - seconds,
            until=now,
            evictions=shown,
            more=len(rows) > TIMELINE_EVICTIONS,
            reliefs=tuple(each for each in reversed(settled) if (each.cycle, each.node) in counts),
            counts=counts,
        )

    def policy(self) -> Sequence[views.PolicyField]:
        data = policy_in(self._from.policy_data(), source=POLICY_FILE)
        values = effective_values(self._policy, data, source=POLICY_FILE)
        return [views.PolicyField(path=each.field, value=each.shown, line=each.line) for each in values]

    def reports(self, *, days: int, by: Dimension | None) -> views.ReportsPage:
        now = self._now
        source = Source(
            cluster=self._policy.cluster,
            effect=self._from.effect,
            forecasts=self._from.forecasts,
            keep_details=self._policy.effect.detail_retention,
            events=self._policy.forecast.events,
        )
        since = (now // DAY_SECONDS - days + 1) * DAY_SECONDS
        report = gather([source], since=since, until=now, by=() if by is None else (by,), now=now)
        return views.ReportsPage(days=days, by=by, report=report)

    @property
    def _policy(self) -> RebalancerPolicy:
        return self._from.current().policy

    @property
    def _now(self) -> float:
        return self._from.clock.now()


def _is_selected(line: NodeLine, selection: NodeSelection) -> bool:
    group = selection.pool in (None, line.pool) and selection.state in (None, line.state)
    return group and selection.text.lower() in line.name.lower()
