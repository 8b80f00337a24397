"""Recordings from the folder of a daemon: when its journal serves, and what is missing."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rebalancer.bootstrap.process.settings import Settings
from rebalancer.bootstrap.recordings.journal import journal_covers, recording_from_journal, stored_usage
from rebalancer.cycle.context import NullProgress
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.errors import ConfigError, UnsafeDataError
from rebalancer.model.measured.history import DAY_SECONDS, SLOTS, DayBlock
from rebalancer.model.recordings.recording import Recording
from rebalancer.policy import RebalancerPolicy
from rebalancer.store.blocks import BlockStore
from rebalancer.store.journal import DayJournal
from tests.builders import NOW, a_node, a_pod, a_policy, cluster

DAY = int(NOW // DAY_SECONDS)
START = DAY * DAY_SECONDS + 10 * 3600.0


class FixedClock:
    def now(self) -> float:
        return START + 7200.0

    def sleep(self, seconds: float) -> None:
        raise AssertionError


def journal(folder: Path, *times: float) -> None:
    writer = DayJournal(folder, cluster="test")
    snapshot = cluster([a_node("n1")], [a_pod("web-1", "n1")])
    for at in times:
        writer.append(replace(snapshot, taken=at), evictions=(), alerts=())


def collected(folder: Path, *, slots: int) -> None:
    """CPU of a day up to a slot, as it is collected without Prometheus."""
    values = np.full((1, SLOTS), 100.0, dtype=np.float32)
    values[:, slots:] = np.nan
    block = DayBlock(
        day=DAY,
        pods=("shop/web-1",),
        pod_millicores=values,
        nodes=("n1",),
        node_millicores=values * 2,
        complete=False,
        filled=slots,
    )
    BlockStore(folder, cluster="test", source="observed").save(block)


def metrics_server() -> RebalancerPolicy:
    return a_policy(usage={"source": "MetricsServer"}, forecast={"mode": "Off"})


def recorded(folder: Path, today: ClusterSnapshot | None = None) -> Recording:
    policy, settings, today = metrics_server(), Settings(history_dir=str(folder)), today or cluster([a_node("n1")], [])
    usage = stored_usage(policy, settings, today, start=START, clock=FixedClock(), progress=NullProgress())
    return recording_from_journal(policy, settings, start=START, end=START + 3600.0, today=today, usage=usage)


@pytest.mark.parametrize(("begins", "covers"), [(60.0, True), (1700.0, True), (1900.0, False)])
def test_a_journal_serves_when_it_begins_early_enough(tmp_path: Path, begins: float, covers: bool) -> None:
    journal(tmp_path, *np.arange(START + begins, START + 3600.0, 60.0).tolist())
    settings, policy = Settings(history_dir=str(tmp_path)), a_policy()
    assert journal_covers(policy, settings, start=START, end=START + 3600.0) is covers
    assert not journal_covers(policy, settings, start=START, end=START + DAY_SECONDS)
    assert not journal_covers(policy, settings, start=START - DAY_SECONDS, end=START + 3600.0)


@pytest.mark.parametrize("down", [(3600.0, 3 * 3600.0), (3 * 3600.0, 4 * 3600.0)], ids=["between", "at the end"])
def test_a_journal_of_a_daemon_that_was_down_does_not_serve(tmp_path: Path, down: tuple[float, float]) -> None:
    times = np.arange(START, START + 4 * 3600.0, 300.0)
    settings, policy = Settings(history_dir=str(tmp_path)), a_policy()
    journal(tmp_path / "always", *times.tolist())
    journal(tmp_path, *times[(times < START + down[0]) | (times >= START + down[1])].tolist())
    assert not journal_covers(policy, settings, start=START, end=START + 4 * 3600.0)
    always = Settings(history_dir=str(tmp_path / "always"))
    assert journal_covers(policy, always, start=START, end=START + 4 * 3600.0)


def test_a_journal_that_was_full_does_not_serve(tmp_path: Path) -> None:
    writer = DayJournal(tmp_path, cluster="test", max_day_bytes=4000)
    for at in np.arange(START, START + 8 * 3600.0, 300.0).tolist():
        snapshot = cluster([a_node("n1")], [a_pod(f"web-{at}", "n1")])
        writer.append(replace(snapshot, taken=at), evictions=(), alerts=())
    assert any("is full" in note for note in writer.take_notes())
    assert not journal_covers(a_policy(), Settings(history_dir=str(tmp_path)), start=START, end=START + 8 * 3600.0)


def test_with_metrics_server_the_journal_and_the_collected_days_are_the_recording(tmp_path: Path) -> None:
    journal(tmp_path, *(START + 300.0 * step for step in range(13)))
    collected(tmp_path, slots=10 * 12 + 9)
    recording = recorded(tmp_path)
    assert (recording.source, recording.start) == ("the journal", START)
    # as far as CPU is known
    assert recording.end == START + 9 * 300.0
    assert recording.pods.names == ["web-1"]
    assert recording.usage["cpu"].pod_values.tolist() == pytest.approx([100.0] * 9)


def test_jobs_of_a_journal_have_the_failure_policy_of_todays(tmp_path: Path) -> None:
    job = a_pod("calc-1", "n1", owner="calc", owner_kind="Job")
    snapshot = cluster([a_node("n1")], [a_pod("web-1", "n1"), job])
    for step in range(13):
        DayJournal(tmp_path, cluster="test").append(
            replace(snapshot, taken=START + 300.0 * step), evictions=(), alerts=()
        )
    collected(tmp_path, slots=10 * 12 + 9)
    today = replace(
        snapshot, owners=tuple(replace(each, spares_disruptions=each.kind == "Job") for each in snapshot.owners)
    )
    for of, spares in ((today, True), (snapshot, False)):
        found = recorded(tmp_path, of)
        assert [each.spares_disruptions for each in found.owners if each.kind == "Job"] == [spares]


def test_without_any_cpu_or_journal_the_error_names_the_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no journal from .*REBALANCER_HISTORY_DIR"):
        recorded(tmp_path)
    journal(tmp_path, START + 60.0)
    with pytest.raises(UnsafeDataError, match="no CPU of pods is known"):
        recorded(tmp_path)
    collected(tmp_path, slots=5)
    with pytest.raises(UnsafeDataError, match="no CPU is known"):
        recorded(tmp_path)
