"""The verdict on a real cluster: the lab over HTTP, a real database, cycles that evict."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rebalancer.dashboard.heat import HEAT_SECONDS, MeasuredPools
from rebalancer.dashboard.views import LiveViews
from rebalancer.model.decisions.limits import Scope
from rebalancer.model.errors import ConnectError
from rebalancer.model.notation.resource_names import CPU
from rebalancer.web.pages.overview import Evaluated
from rebalancer.web.pages.verdict import Tone
from tests.dashboard.test_views import ANY, Leads, Shown, a_day


@pytest.fixture
def it(tmp_path: Path) -> Iterator[Shown]:
    with a_day(tmp_path) as made:
        yield made


def line_of(views: LiveViews) -> str:
    found = views.overview(ANY).verdict
    return f"{found.title} {found.text}"


def test_the_verdict_follows_the_cluster_from_its_start(it: Shown) -> None:
    assert line_of(it.views) == "Starting: no cycle has ended yet"
    it.cycle("warm-1")
    assert line_of(it.views) == "Working and safe. 1 eviction in 24 h, 1 in flight; 0 of 5 nodes hot"
    it.lab.clock.sleep(700.0)
    assert line_of(it.views) == "Not working: no cycle for 11m40s, and one is due every 2m"
    it.cycle()
    assert line_of(it.views) == "Working and safe. 1 eviction in 24 h, replaced; 0 of 5 nodes hot"
    it.ledger.pause(Scope("cluster", "test"), reason="load test", created_by="ada", until=None)
    assert line_of(it.views).startswith("Paused: by ada until resumed: load test; ")


def test_a_follower_shows_the_line_of_the_leader(it: Shown) -> None:
    it.cycle("warm-1")
    follower = LiveViews(replace(it.sources, leadership=Leads(leads=False)))
    assert line_of(follower) == line_of(it.views)


def test_an_open_circuit_breaker_is_the_verdict(it: Shown) -> None:
    for name in ("warm-1", "warm-2"):
        it.cycle(name)
    it.lab.clock.sleep(480.0)  # after the deadline, before the replacements are Ready
    it.cycle()
    found = it.views.overview(ANY).verdict
    assert (found.tone, found.title) == (Tone.ALARM, "Not evicting in pool all:")


@dataclass
class Silent:
    """Stands for a database behind a network that drops every packet, and counts how often it is waited for."""

    waits: int = 0

    def __getattr__(self, name: str) -> Any:
        def ask(*_: object, **__: object) -> None:
            self.waits += 1
            raise ConnectError("no answer within 10 s")

        return ask


def test_a_database_without_an_answer_is_the_verdict_and_is_waited_for_once(it: Shown) -> None:
    it.cycle("warm-1")
    silent: Any = Silent()
    views = LiveViews(replace(it.sources, archive=silent, ledger=silent, inbox=silent, effect=silent))
    page = views.overview(ANY)
    assert page.verdict.text == "the database is not available, so nothing is evicted"
    assert (page.verdict.tone, page.problem, silent.waits) == (Tone.ALARM, "no answer within 10 s", 1)
    assert len(page.map.nodes) == 5


@pytest.fixture
def hot(tmp_path: Path) -> Iterator[Shown]:
    """Three nodes are over their high, and none of their pods is old enough."""
    pool = {"name": "all", "selector": {}, "thresholds": {"high": 60, "target": 50}}
    with a_day(tmp_path, pools=[pool], guards={"minAge": "30d"}) as made:
        yield made


def test_refused_pods_of_hot_nodes_are_the_reason_why_not_more_is_evicted(hot: Shown) -> None:
    hot.cycle("warm-1", high=0.6)
    page = hot.views.overview(ANY)
    [young] = [each for each in page.why_not if each.code == "TooYoung"]
    assert (young.nodes, young.services) == (("warm-1",), ("shop/svc-warm-1",))
    assert young.pods == 3
    found = page.verdict
    assert found.title == "3 of 5 nodes hot:"
    assert "3 pods stay for the reasons below" in found.text
    assert page.evaluated == Evaluated(nodes=1, pools=("all",))
    follower = LiveViews(replace(hot.sources, leadership=Leads(leads=False)))
    assert follower.overview(ANY).why_not == page.why_not


def test_measurements_of_a_cycle_are_read_once(hot: Shown) -> None:
    hot.cycle("warm-1", high=0.6)
    asked: list[int] = []
    archive = hot.sources.archive

    class Counting:
        def pool_measurements(self, since: float, *, known: Any) -> Any:
            asked.append(len(known))
            return archive.pool_measurements(since, known=known)

    measured = MeasuredPools(Counting())  # type: ignore[arg-type]
    now = hot.lab.clock.now()
    first = measured.latest(now)
    assert len(first) == 1
    hot.cycle("warm-2", high=0.6)
    assert len(measured.latest(now + 60)) == 2
    assert asked == [0, 1]
    assert measured.latest(now + HEAT_SECONDS + 60) == []


def test_a_follower_waits_for_the_database_and_for_its_nodes_at_once(it: Shown) -> None:
    it.cycle("warm-1")
    asked, seen = threading.Event(), []
    archive = it.sources.archive

    class Slow:
        def __getattr__(self, name: str) -> Any:
            return getattr(archive, name)

        def cycles(self, limit: int) -> Any:
            asked.set()
            return archive.cycles(limit)

        def expected_peaks(self, now: float) -> Any:
            seen.append(asked.wait(5.0))
            return archive.expected_peaks(now)

    forecast_loop: Any = SimpleNamespace(last=None, keepers={CPU: SimpleNamespace(nodes_of=lambda day: None)})
    current = it.sources.current()
    slow: Any = Slow()
    views = LiveViews(
        replace(
            it.sources,
            archive=slow,
            leadership=Leads(leads=False),
            current=lambda: replace(current, forecast_loop=forecast_loop),
        )
    )
    assert len(views.overview(ANY).map.nodes) == 5
    assert seen == [True]
