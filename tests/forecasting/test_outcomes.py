"""Outcomes of forecasts, kept and judged by the loop with a real database and a history of our own making."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rebalancer.forecasting import loop as loop_module
from rebalancer.forecasting import node_forecasts
from rebalancer.forecasting.loop import ForecastLoop
from rebalancer.forecasting.node_forecasts import pooled_forecasts
from rebalancer.forecasting.outcomes import OutcomeKeeper
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.eviction import Outcome, TargetNode
from rebalancer.model.errors import ConnectError
from rebalancer.model.measured.history import DAY_SECONDS, SLOTS, STEP_SECONDS, DayBlock, History
from rebalancer.model.measured.outcomes import KEPT_DAYS, PERIOD_SECONDS, ForecastOutcomes
from rebalancer.store import SqlRecords, open_records, upgrade
from tests.builders import a_node, a_pod, a_policy, set_fields
from tests.forecast.builders import DAYS, MIDNIGHT, world
from tests.store.builders import build_eviction, build_report

TOMORROW = MIDNIGHT + DAY_SECONDS
BEFORE, AFTER = 1600.0, 1700.0
"""Millicores of every node until midnight and from then on."""


@dataclass
class Clock:
    at: float = MIDNIGHT

    def now(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += seconds


@dataclass
class Past:
    """A keeper of history that knows every step until now; `gaps`: node -> (first, end) seconds without samples."""

    clock: Clock
    gaps: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    behind: float = 0.0
    """It ends so many seconds ago."""

    def update(self, _: ClusterSnapshot) -> History:
        end = int((self.clock.at - self.behind) // STEP_SECONDS)
        return History(days=[self._day(day, end) for day in range(end // SLOTS - DAYS, end // SLOTS + 1)])

    def kept(self) -> History:
        return self.update(a_world())

    def _day(self, day: int, end: int) -> DayBlock:
        times = (day * SLOTS + np.arange(SLOTS)) * STEP_SECONDS
        level = np.where(times < MIDNIGHT, BEFORE, AFTER)
        level[times >= end * STEP_SECONDS] = np.nan
        rows = []
        for node in ("n1", "n2"):
            begin, stop = self.gaps.get(node, (0.0, 0.0))
            rows.append(np.where((times >= begin) & (times < stop), np.nan, level))
        grid = np.array(rows, dtype=np.float32)
        complete = end >= (day + 1) * SLOTS
        return DayBlock(
            day=day,
            nodes=("n1", "n2"),
            node_millicores=grid,
            pods=("shop/web-1", "shop/web-2"),
            pod_millicores=grid / 2,
            complete=complete,
            filled=SLOTS if complete else max(end - day * SLOTS, 0),
        )


def a_world() -> ClusterSnapshot:
    pods = [a_pod(f"web-{number}", f"n{number}", owner="web") for number in (1, 2)]
    return world([a_node(name, cpu=4000.0) for name in ("n1", "n2")], pods)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'rebalancer.db'}"
    upgrade(url)
    return url


@pytest.fixture
def records(url: str, clock: Clock) -> Iterator[SqlRecords]:
    with open_records(url=url, cluster="test", clock=clock) as opened:
        yield opened


@dataclass
class Daemon:
    """A loop over a real database; `restart` loses what is only in memory."""

    records: SqlRecords
    clock: Clock
    past: Past
    policy: Any = field(default_factory=a_policy)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self, **fields: Any) -> None:
        given: dict[str, Any] = {
            "policy": self.policy,
            "keepers": {"cpu": self.past},
            "clock": self.clock,
            "records": self.records.forecasts(),
            "outcomes": OutcomeKeeper(records=self.records.outcomes()),
        }
        self.loop = ForecastLoop(**{**given, **fields})

    def look(self, at: float) -> tuple[str, ...]:
        self.clock.at = at
        return self.loop.look(a_world()).notes

    def judged(self) -> list[ForecastOutcomes]:
        return self.records.outcomes().outcomes(0.0)

    def judged_next_day(self) -> ForecastOutcomes:
        self.look(TOMORROW + 900)
        [judged] = self.judged()
        return judged

    def waiting(self) -> list[ForecastOutcomes]:
        return self.records.outcomes().outcomes_due(MIDNIGHT + 999 * DAY_SECONDS)


@pytest.fixture
def daemon(records: SqlRecords, clock: Clock) -> Daemon:
    return Daemon(records, clock, Past(clock))


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[ForecastOutcomes]]:
    """The outcomes that each forecast is made with."""
    seen: list[Sequence[ForecastOutcomes]] = []

    def watched(make: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, outcomes: Sequence[ForecastOutcomes], **fields: Any) -> Any:
            seen.append(outcomes)
            return make(*args, outcomes=outcomes, **fields)

        return wrapper

    monkeypatch.setattr(loop_module, "forecast_nodes", watched(loop_module.forecast_nodes))
    monkeypatch.setattr(node_forecasts, "forecast", watched(node_forecasts.forecast))
    return seen


def test_forecasts_of_a_pool_are_kept_once_a_period(daemon: Daemon) -> None:
    for at in (MIDNIGHT + 10, MIDNIGHT + 910, MIDNIGHT + PERIOD_SECONDS + 10):
        assert daemon.look(at) == ()
    daemon.restart()
    daemon.look(MIDNIGHT + PERIOD_SECONDS + 910)
    kept = daemon.waiting()
    assert [(each.pool, each.period * PERIOD_SECONDS) for each in kept] == [
        ("general", MIDNIGHT),
        ("general", MIDNIGHT + PERIOD_SECONDS),
    ]
    assert kept[0].nodes == ("n1", "n2")
    assert np.isnan(kept[0].actual).all()


def test_a_day_later_forecasts_are_judged_once_and_learned_from(
    daemon: Daemon, received: list[Sequence[ForecastOutcomes]]
) -> None:
    daemon.look(MIDNIGHT)
    daemon.look(TOMORROW - 900)
    assert daemon.judged() == []
    daemon.look(TOMORROW + 900)
    [judged] = daemon.judged()
    assert judged.actual.tolist() == [AFTER, AFTER]
    daemon.look(TOMORROW + 1800)
    assert [len(each) for each in received] == [0, 0, 0, 1]
    assert received[-1][0].actual.tolist() == [AFTER, AFTER]
    [again] = daemon.judged()
    assert again.actual.tolist() == judged.actual.tolist()


def test_a_restarted_daemon_goes_on_with_the_outcomes(
    daemon: Daemon, received: list[Sequence[ForecastOutcomes]]
) -> None:
    for hours in (0, 6, 24.5, 30.5):
        daemon.look(MIDNIGHT + hours * 3600)
    daemon.restart()
    daemon.look(MIDNIGHT + 31 * 3600)
    assert [each.period * PERIOD_SECONDS - MIDNIGHT for each in received[-1]] == [0.0, PERIOD_SECONDS]
    daemon.look(MIDNIGHT + 48.8 * 3600)  # what the earlier process kept at 24.5 and 30.5 h
    daemon.look(MIDNIGHT + 55 * 3600)
    daemon.look(MIDNIGHT + 55.5 * 3600)
    assert [(each.made_at - MIDNIGHT) // 3600 for each in received[-1]] == [0, 6, 24, 30]


def test_commands_learn_from_the_daemons_outcomes_and_write_nothing(
    daemon: Daemon, received: list[Sequence[ForecastOutcomes]]
) -> None:
    daemon.look(MIDNIGHT)
    daemon.look(TOMORROW + 900)
    waiting = len(daemon.waiting())
    daemon.restart(records=None, reads_history=False)
    daemon.look(TOMORROW + PERIOD_SECONDS)
    assert len(received[-1]) == 1

    outcomes = OutcomeKeeper(records=daemon.records.outcomes())
    keeper: Any = daemon.past
    pooled_forecasts(a_world(), keeper, daemon.policy, clock=daemon.clock, outcomes=outcomes)
    assert len(received[-1]) == 1
    pooled_forecasts(a_world(), keeper, daemon.policy, clock=daemon.clock)
    assert received[-1] == ()
    assert len(daemon.waiting()) == waiting


def evict(records: SqlRecords, node: str, outcome: Outcome = Outcome.EVICTED, target: str = "n9") -> None:
    report = build_report(cycle=f"{node}-{outcome.value}")
    records.begin(report)
    eviction = build_eviction(node=node, pod=f"pod-of-{node}-{outcome.value}", target_nodes=(TargetNode(target, 1.0),))
    set_fields(eviction, record=records.planned(report, eviction))
    set_fields(eviction, outcome=outcome)
    records.outcome(eviction)


@pytest.mark.parametrize(
    ("hours", "known"),
    [(-0.1, [True, True]), (0.5, [False, True]), (23.9, [False, True]), (24.1, [True, True])],
    ids=["before", "just after", "at the end", "after it"],
)
def test_evicted_nodes_are_not_learned_from(daemon: Daemon, hours: float, known: list[bool]) -> None:
    daemon.look(MIDNIGHT)
    daemon.clock.at = MIDNIGHT + hours * 3600
    evict(daemon.records, "n1")
    evict(daemon.records, "n2", Outcome.REFUSED)
    assert np.isfinite(daemon.judged_next_day().actual).tolist() == known


def test_nodes_where_replacements_landed_are_not_learned_from(daemon: Daemon) -> None:
    daemon.look(MIDNIGHT)
    daemon.clock.at = MIDNIGHT + 3600
    evict(daemon.records, "n9", target="n2")
    assert np.isfinite(daemon.judged_next_day().actual).tolist() == [True, False]


def test_nodes_with_few_samples_are_not_learned_from(daemon: Daemon) -> None:
    daemon.past.gaps = {"n1": (MIDNIGHT, MIDNIGHT + 11 * 3600), "n2": (MIDNIGHT, MIDNIGHT + 13 * 3600)}
    daemon.look(MIDNIGHT)
    assert daemon.judged_next_day().actual.tolist() == pytest.approx([AFTER, np.nan], nan_ok=True)


def test_samples_that_are_to_come_are_waited_for(daemon: Daemon) -> None:
    daemon.look(MIDNIGHT)
    daemon.past.behind = 3600.0
    daemon.look(TOMORROW + 900)
    assert daemon.judged() == []
    daemon.look(TOMORROW + 4500)
    assert daemon.judged()[0].actual.tolist() == [AFTER, AFTER]


@pytest.mark.parametrize(
    ("pools", "begin", "known"),
    [
        ([], TOMORROW - 600, False),
        (["general"], MIDNIGHT - 600, False),
        (["other"], MIDNIGHT, True),
        ([], TOMORROW, True),
    ],
    ids=["at its end", "at its begin", "another pool", "after it"],
)
def test_days_with_a_declared_event_are_not_learned_from(
    daemon: Daemon, pools: list[str], begin: float, known: bool
) -> None:
    def at(seconds: float) -> str:
        return datetime.fromtimestamp(seconds, UTC).isoformat()

    event = {"name": "sale", "from": at(begin), "to": at(begin + 1800), "uplift": 30, "pools": pools}
    other = {"name": "other", "selector": {"matchLabels": {"pool": "other"}}}
    [pool] = a_policy().model_dump(by_alias=True, exclude_unset=True)["pools"]
    daemon.policy = a_policy(forecast={"events": [event]}, pools=[pool, {**pool, **other}])
    daemon.restart()
    daemon.look(MIDNIGHT)
    assert np.isfinite(daemon.judged_next_day().actual).tolist() == [known, known]


def test_a_database_that_fails_is_a_note_and_the_next_run_goes_on(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert daemon.loop.outcomes is not None

    def fails(*_: object) -> Any:
        raise ConnectError("the database is gone")

    with monkeypatch.context() as patched:
        for name in ("outcomes", "keep_outcomes", "outcomes_due"):
            patched.setattr(type(daemon.loop.outcomes.records), name, fails)
        assert daemon.look(MIDNIGHT) == tuple(
            f"outcomes of forecasts are not {what}: the database is gone" for what in ("read", "kept", "judged")
        )
    assert daemon.look(MIDNIGHT + 900) == ()
    assert len(daemon.waiting()) == 1
    with monkeypatch.context() as patched:
        patched.setattr(type(daemon.loop.outcomes.records), "judge_outcomes", fails)
        assert len(daemon.look(TOMORROW + 1800)) == 1
    assert daemon.look(TOMORROW + 2700) == ()
    assert len(daemon.judged()) == 1


def test_outcomes_that_another_replica_judged_are_read_and_old_ones_dropped(
    daemon: Daemon, url: str, received: list[Sequence[ForecastOutcomes]]
) -> None:
    daemon.look(MIDNIGHT)
    with open_records(url=url, cluster="test", clock=daemon.clock) as theirs:
        other = Daemon(theirs, daemon.clock, daemon.past)
        other.look(TOMORROW + 900)
    received.clear()
    daemon.look(TOMORROW + 1800)
    assert [each.made_at for each in received[-1]] == [MIDNIGHT]
    daemon.look(MIDNIGHT + KEPT_DAYS * DAY_SECONDS)
    assert [each.made_at for each in received[-1]] == [MIDNIGHT]
    daemon.look(MIDNIGHT + KEPT_DAYS * DAY_SECONDS + 1)
    assert MIDNIGHT not in [each.made_at for each in received[-1]]


def test_a_forecast_of_an_old_history_is_not_kept(daemon: Daemon) -> None:
    daemon.past.behind = 7 * 3600.0
    assert any("nothing is decided" in note for note in daemon.look(MIDNIGHT))
    assert daemon.waiting() == []


@dataclass
class MemoryPast(Past):
    """The same figures in MiB, and higher by a half in one step of each day."""

    def _day(self, day: int, end: int) -> DayBlock:
        block = super()._day(day, end)
        grid = block.node_millicores.copy()
        grid[:, 100] *= 1.5
        return replace(block, node_millicores=grid, pod_millicores=grid / 2)


def with_memory(daemon: Daemon, memory: Any) -> None:
    daemon.restart(keepers={"cpu": daemon.past, "memory": memory})


def test_outcomes_of_memory_are_kept_beside_those_of_cpu(daemon: Daemon) -> None:
    with_memory(daemon, MemoryPast(daemon.clock))
    daemon.look(MIDNIGHT)
    kept = sorted((each.resource, each.pool) for each in daemon.waiting())
    assert kept == [("cpu", "general"), ("memory", "general")]
    with_memory(daemon, MemoryPast(daemon.clock))
    daemon.look(MIDNIGHT + 1000.0)
    assert len(daemon.waiting()) == 2, "one of a resource and period, also after a restart"
    daemon.look(TOMORROW + 3600.0)
    came = {each.resource: each for each in daemon.judged() if each.made_at == MIDNIGHT}
    assert came["cpu"].actual.tolist() == pytest.approx([AFTER, AFTER])
    assert came["memory"].actual.tolist() == pytest.approx([1.5 * AFTER, 1.5 * AFTER]), "the highest of the day"


def test_a_forecast_learns_from_outcomes_of_its_own_resource_only(daemon: Daemon) -> None:
    with_memory(daemon, MemoryPast(daemon.clock))
    for hours in range(0, 60, 6):
        daemon.look(MIDNIGHT + hours * 3600.0)
    daemon.clock.at = MIDNIGHT + 60 * 3600.0
    known, _ = OutcomeKeeper(records=daemon.records.outcomes()).known(daemon.clock.at)
    assert {each.resource for each in known} == {"cpu", "memory"}
    keeper: Any = daemon.past
    both, own = (
        pooled_forecasts(a_world(), keeper, daemon.policy, clock=daemon.clock, outcomes=each)[0][0].forecast
        for each in (OutcomeKeeper(records=daemon.records.outcomes()), _Only(known, "cpu"))
    )
    assert both.peak_millicores == own.peak_millicores


@dataclass
class _Only:
    """Outcomes of one resource."""

    outcomes: Sequence[ForecastOutcomes]
    resource: str

    def known(self, _: float) -> Any:
        return tuple(each for each in self.outcomes if each.resource == self.resource), ()


def test_peaks_of_a_loop_have_those_of_memory(daemon: Daemon) -> None:
    with_memory(daemon, MemoryPast(daemon.clock))
    daemon.look(MIDNIGHT)
    peaks = daemon.loop.peaks(a_world(), MIDNIGHT)
    assert peaks is not None
    assert peaks.resources["memory"].node_millicores[0] >= 1.45 * BEFORE
    assert peaks.node_millicores[0] < 1.3 * BEFORE


@pytest.mark.parametrize("behind", [7 * 3600.0, 30 * DAY_SECONDS])
def test_an_old_history_of_memory_leaves_the_forecasts_of_cpu(daemon: Daemon, behind: float) -> None:
    with_memory(daemon, MemoryPast(daemon.clock, behind=behind))
    daemon.look(MIDNIGHT)
    peaks = daemon.loop.peaks(a_world(), MIDNIGHT)
    assert peaks is not None
    assert dict(peaks.resources) == {}


def test_a_history_of_memory_that_fails_is_a_note(daemon: Daemon) -> None:
    class Failing(MemoryPast):
        def update(self, _: ClusterSnapshot) -> History:
            return History(days=_FailingDays(), notes=("its Prometheus answers 503",))

    with_memory(daemon, Failing(daemon.clock))
    notes = daemon.look(MIDNIGHT)
    assert any(note.startswith("memory: ") for note in notes)
    assert daemon.loop.peaks(a_world(), MIDNIGHT) is not None


class _FailingDays(Sequence[DayBlock]):
    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: Any) -> Any:
        raise ConnectError("the folder can't be read")
