"""What the dashboard shows of a real cluster: the lab over HTTP, a real database, cycles that evict."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from rebalancer.bootstrap.commands.contexts import acting_context
from rebalancer.bootstrap.process.settings import Settings
from rebalancer.bootstrap.wiring.active import Active
from rebalancer.cycle.context import CycleContext, NullProgress
from rebalancer.cycle.run import run_cycle
from rebalancer.cycle.triggers.request import CycleRequest, RequestScope
from rebalancer.dashboard.sources import Sources
from rebalancer.dashboard.views import CYCLES_AT_ONCE, LiveViews
from rebalancer.forecasting.loop import ForecastLoop
from rebalancer.lab import Lab, node, scenario, workload
from rebalancer.model.decisions.alerts import Alert, ThresholdOverride
from rebalancer.model.decisions.limits import Scope as LimitScope
from rebalancer.model.decisions.plan import CycleReport, Trigger
from rebalancer.policy import RebalancerPolicy
from rebalancer.store import SqlInbox, SqlLedger, SqlRecords, open_records
from rebalancer.web.pages.views import NodeSelection, NodeState
from tests.e2e.servers import alert_policy

START = 1_790_000_000.0
ANY = NodeSelection()


@dataclass
class Leads:
    """Says whether we lead."""

    leads: bool = True
    waiting_for: str = "node-a holds the lease"
    term: int | None = 7

    def holds(self, margin_seconds: float = 0.0) -> bool:
        return self.leads


@dataclass
class Shown:
    """Views, and what is behind them."""

    lab: Lab
    policy: RebalancerPolicy
    world: CycleContext
    records: SqlRecords
    ledger: SqlLedger
    inbox: SqlInbox
    leads: Leads
    sources: Sources
    views: LiveViews
    lookout: ForecastLoop | None = None

    def cycle(self, name: str = "", high: float = 0.6, dry_run: bool = False) -> CycleReport:
        """One for a node that an alert calls hot over `high`; without a name one that finds nothing."""
        self.lab.clock.sleep(30)
        request = CycleRequest(trigger=Trigger.PERIODIC)
        if name:
            mark = ThresholdOverride(
                node=name, strategy="LowNodeUtilization", high=high, target=high - 0.1, source="alert NodeHot"
            )
            scope = RequestScope(nodes=frozenset({name}))
            request = CycleRequest(
                trigger=Trigger.ALERT, scopes=frozenset({scope}), thresholds={(name, mark.resource): mark}
            )
        world = replace(self.world, record_usage=self.views.measured)
        report = run_cycle(world, self.policy, request=request, dry_run=dry_run).report
        self.views.done(report)
        return report


@contextmanager
def shown(
    lab: Lab, policy: RebalancerPolicy, world: CycleContext, database: str, lookout: ForecastLoop | None
) -> Iterator[Shown]:
    with ExitStack() as stack:
        records = stack.enter_context(open_records(url=database, cluster=policy.cluster, clock=lab.clock))
        ledger, inbox, leads = records.ledger(clock=lab.clock), records.inbox(clock=lab.clock), Leads()
        sources = Sources(
            current=lambda: Active(policy=policy, context=world, forecast_loop=lookout),
            leadership=leads,
            ledger=ledger,
            inbox=inbox,
            archive=records.reading(),
            effect=records.effect(),
            forecasts=records.forecasts(),
            clock=lab.clock,
        )
        yield Shown(
            lab=lab,
            policy=policy,
            world=world,
            records=records,
            ledger=ledger,
            inbox=inbox,
            leads=leads,
            sources=sources,
            views=LiveViews(sources),
            lookout=lookout,
        )


@contextmanager
def a_day(folder: Path, **sections: Any) -> Iterator[Shown]:
    """Three warm nodes with a service each, and two cold ones; pods take ten minutes to start."""
    names = ("warm-1", "warm-2", "warm-3")
    nodes = [node(name, cpu=8, overhead_cores=0.3) for name in (*names, "cold-1", "cold-2")]
    services = [
        workload(f"svc-{name}", namespace="shop", place={name: 3}, cpu=1.65, cpu_request="500m", memory_request="256Mi")
        for name in names
    ]
    slow = scenario(nodes=nodes, workloads=services, start_seconds=600.0)
    with Lab.start(slow, stepped=True, start_time=START) as lab:
        policy = RebalancerPolicy.model_validate(alert_policy(lab.prometheus_url, **sections))
        settings = Settings(
            database=f"sqlite:///{folder / 'db'}", kubeconfig=str(lab.write_kubeconfig(folder / "config"))
        )
        with (
            acting_context(policy, settings, progress=NullProgress(), clock=lab.clock) as world,
            shown(lab, policy, world, settings.database, None) as made,
        ):
            yield made


@pytest.fixture
def it(tmp_path: Path) -> Iterator[Shown]:
    with a_day(tmp_path) as made:
        yield made


def test_the_map_shows_every_node_with_its_cpu_now(it: Shown) -> None:
    found = it.views.map(ANY)
    truth = it.lab.truth.node_cpu_share()
    assert {line.name: round(line.share or 0, 2) for line in found.nodes} == {
        name: pytest.approx(share, abs=0.02) for name, share in truth.items()
    }
    assert [pool.name for pool in found.pools] == ["all"]
    assert (found.of, found.forecast_mode, found.forecast_at, found.problem) == (5, "Off", None, "")


def test_what_a_cycle_has_measured_is_shown_without_asking_prometheus_again(it: Shown) -> None:
    it.cycle()
    it.lab.faults.set(prometheus_down="error")
    found = it.views.map(ANY)
    assert found.problem == ""
    assert {line.state for line in found.nodes} == {NodeState.COOL}


def test_without_prometheus_the_map_says_that_cpu_is_not_known(it: Shown) -> None:
    it.lab.faults.set(prometheus_down="error")
    found = it.views.map(ANY)
    assert "Prometheus" in found.problem
    assert {line.state for line in found.nodes} == {NodeState.UNKNOWN}


def test_before_the_cluster_can_be_read_the_map_is_empty_and_says_why(it: Shown) -> None:
    it.lab.faults.set(sides=("kubernetes",), error_share=1.0)
    found = it.views.map(ANY)
    assert (found.nodes, found.pools, found.at) == ((), (), None)
    assert "500" in found.problem


def test_nodes_are_chosen_by_pool_state_and_part_of_their_name(it: Shown) -> None:
    def names(**selection: Any) -> set[str]:
        return {line.name for line in it.views.map(NodeSelection(**selection)).nodes}

    assert names(text="OLD-") == {"cold-1", "cold-2"}
    assert names(pool="none") == set()
    assert names(state=NodeState.COOL, pool="all", text="warm-2") == {"warm-2"}
    assert names(state=NodeState.HOT) == set()
    assert len(names(first=3)) == 2


def test_a_nodes_page_tells_what_was_evicted_what_stayed_and_why(it: Shown) -> None:
    report = it.cycle("warm-2")
    page = it.views.node("warm-2")
    assert page is not None
    [move] = page.evictions
    assert (move.reserved.cycle, move.reserved.trigger, move.answered.outcome, move.node) == (
        report.id,
        "alert",
        "evicted",
        "warm-2",
    )
    assert str(move.service) == "shop/svc-warm-2"
    assert sum(each.probability for each in move.target_nodes) == pytest.approx(1.0)
    assert [(each.cycle, each.strategy) for each in page.findings] == [(report.id, "LowNodeUtilization")]
    assert "over high 60% (alert NodeHot)" in page.findings[0].reason
    refused = {each.code: each for each in page.refusals}
    assert set(refused) == {str(each.code) for each in report.refusals if each.node == "warm-2"}
    assert all(each.cycle == report.id and each.sentence for each in refused.values())


def test_the_curve_of_a_node_is_what_cycles_measured_where_no_day_is_kept(it: Shown) -> None:
    for _ in range(3):
        it.cycle()
    page = it.views.node("warm-1")
    assert page is not None
    assert page.curve.source == "measured by cycles"
    known = [share for _, share in page.curve.past]
    assert len(known) == 4  # and the newest, as the map has it
    assert all(share == pytest.approx(0.656, abs=0.01) for share in known)
    assert page.curve.ahead == ()
    assert page.curve.until - page.curve.since == 2 * 86_400


def test_a_node_that_only_one_of_two_cycles_of_one_time_measured_has_a_curve(it: Shown) -> None:
    report = it.cycle()
    without = replace(report, id=f"{report.id}-2", nodes=[], findings=[], refusals=[], evictions=[])
    it.records.begin(without)
    it.records.finish(without)
    page = it.views.node("warm-1")
    assert page is not None
    assert [share is None for _, share in page.curve.past].count(True) == 1


def test_a_node_that_is_gone_is_known_by_its_past_and_one_without_a_past_not_at_all(it: Shown) -> None:
    it.cycle("warm-1")
    with it.lab.cluster.lock:
        it.lab.cluster.store.remove("nodes", "", "warm-1")
    page = it.views.node("warm-1")
    assert page is not None
    assert (page.gone, page.line.share, len(page.evictions)) == (True, None, 1)
    assert it.views.node("nobody") is None


def test_a_cycles_page_holds_everything_that_was_decided(it: Shown) -> None:
    report = it.cycle("warm-3")
    page = it.views.cycle(report.id)
    assert page is not None
    record = page.record
    line = record.summary
    assert (line.trigger, line.outcomes, line.findings) == ("alert", {"evicted": 1}, 1)
    assert line.refusals == len(report.refusals) == sum(each.count for each in record.refusals)
    assert list(page.stages) == ["observe", "find", "steer", "relieve"]
    assert {each.node for each in record.nodes} >= {"warm-3"}
    assert it.views.cycle("none") is None


def test_how_long_stages_took_is_known_only_by_who_ran_the_cycle(it: Shown) -> None:
    report = it.cycle()
    other = LiveViews(it.sources)
    page = other.cycle(report.id)
    assert page is not None
    assert page.stages == {}


def test_a_page_of_cycles_ends_where_its_time_range_begins(it: Shown) -> None:
    now = it.views._now
    for number in range(5):
        report = CycleReport(
            id=f"c{number}", cluster="test", trigger=Trigger.PERIODIC, dry_run=False, started_at=now - 3600.0 * number
        )
        it.records.begin(report)
        it.records.finish(report)
    page = it.views.cycles(before=None, after=None, acted=False, behind=2.5 * 3600.0)
    assert ([line.id for line in page.cycles], page.older, page.newer) == (["c0", "c1", "c2"], None, None)


def test_cycles_are_paged_both_ways(it: Shown) -> None:
    for number in range(2 * CYCLES_AT_ONCE + 2):
        report = CycleReport(
            id=f"c{number:03}", cluster="test", trigger=Trigger.PERIODIC, dry_run=False, started_at=START + number
        )
        it.records.begin(report)
        it.records.finish(report)
    newest = it.views.cycles(before=None, after=None, acted=False)
    assert (len(newest.cycles), newest.newer) == (CYCLES_AT_ONCE, None)
    assert newest.older is not None
    middle = it.views.cycles(before=newest.older, after=None, acted=False)
    oldest = it.views.cycles(before=middle.older, after=None, acted=False)
    assert ([line.id for line in oldest.cycles], oldest.older) == (["c001", "c000"], None)
    pages = [middle, newest]
    at = oldest
    while at.newer is not None:
        at = it.views.cycles(before=None, after=at.newer, acted=False)
        wanted = pages.pop(0)
        assert [line.id for line in at.cycles] == [line.id for line in wanted.cycles]
        assert at.older == wanted.older
    assert pages == []
    assert it.views.cycles(before=None, after=None, acted=True).cycles == ()


def test_the_overview_tells_the_last_cycle_pauses_alerts_and_who_leads(it: Shown) -> None:
    report = it.cycle("warm-1")
    it.ledger.pause(LimitScope("pool", "test/all"), reason="load test", created_by="ada", until=None)
    now = it.lab.clock.now()
    alert = Alert(fingerprint="a", firing=True, labels={"alertname": "NodeHot"}, annotations={}, starts_at=now)
    it.inbox.receive([alert], max_age_seconds=60)
    page = it.views.overview(ANY)
    assert page.last_cycle is not None
    assert (page.last_cycle.id, page.last_cycle.outcomes) == (report.id, {"evicted": 1})
    assert [str(each.scope) for each in page.pauses] == ["pool all"]
    assert [each.what for each in page.due] == [
        "an open alert is retried",
        "LowNodeUtilization evaluates all every 2m",
    ]
    assert (page.problem, page.open_breakers) == ("", ())
    assert it.views.head().leadership == "since term 7"
    it.leads.leads = False
    assert (it.views.head().leads, it.views.head().leadership) == (False, "node-a holds the lease")


def test_late_replacements_show_the_brake(it: Shown) -> None:
    for name in ("warm-1", "warm-2"):
        it.cycle(name)
    it.lab.clock.sleep(500.0)  # after the deadline, before the replacements are Ready
    [said] = it.views.overview(ANY).open_breakers
    assert "2 late in pool all, 2 stop it" in said
    assert it.views.limits().open_breakers == (said,)


def test_the_page_of_limits_tells_what_is_left_on_its_way_and_cooling_down(tmp_path: Path) -> None:
    windows = {"cluster": [{"name": "day", "kind": "Allow", "schedule": "0 0 * * *", "duration": "24h"}]}
    with a_day(tmp_path, windows=windows) as it:
        it.cycle("warm-1")
        page = it.views.limits()
        assert any(str(line.scope) == "node warm-1" and line.used == 1 for line in page.limits)
        assert [(each.scope, each.open, each.because) for each in page.windows] == [
            ("cluster test", True, "in the allow window day")
        ]
        assert [(each.node, each.replaced.late) for each in page.open_evictions] == [("warm-1", False)]
        cooling = {each.scope: each for each in page.cooldowns}
        assert set(cooling) == {"node warm-1", "service shop/svc-warm-1", "serviceNode warm-1/shop/svc-warm-1"}
        node_cooling = cooling["node warm-1"]
        assert node_cooling.until - node_cooling.last_at == it.policy.safety.cooldowns.node
        assert page.backoffs == ()


def test_services_and_reports_count_what_was_moved(it: Shown) -> None:
    it.cycle("warm-1")
    it.cycle("warm-2", dry_run=True)
    page = it.views.services(days=1, text="")
    assert [(each.service, each.evictions, each.triggers) for each in page.services] == [
        ("shop/svc-warm-1", 1, {"alert": 1})
    ]
    assert it.views.services(days=1, text="svc-warm-2").services == ()
    one = it.views.service("shop/svc-warm-2")
    assert one is not None
    assert [each.reserved.dry_run for each in one.evictions] == [True]
    assert it.views.service("shop/none") is None
    report = it.views.reports(days=7, by="pool").report
    assert [each.service for each in report.services] == ["shop/svc-warm-1"]
