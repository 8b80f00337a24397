"""What cycles read of CPU, from the journal."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.measured.history import DAY_SECONDS
from rebalancer.model.measured.usage import Usage
from rebalancer.model.recordings.journal import ReadUsage
from rebalancer.model.recordings.recording import RecordedReadings, Recording
from rebalancer.store.journal import DayJournal, readings, recording_of
from rebalancer.store.journal.files import READINGS_SHARE
from rebalancer.store.journal.readings import packed, unpacked
from tests.builders import NOW, a_node, a_pod, cluster

MIDNIGHT = NOW - NOW % DAY_SECONDS
START = MIDNIGHT + 10 * 3600.0
NODES, PODS, SAMPLES = 4, 12, 3


def snapshot_at(at: float, *, pods: int = PODS) -> ClusterSnapshot:
    rows = [a_pod(f"p{row}", f"n{row % NODES}", owner="web", ready=True, age=9_000.0) for row in range(pods)]
    return replace(cluster([a_node(f"n{row}") for row in range(NODES)], rows), taken=at)


def usage_at(snapshot: ClusterSnapshot, random: np.random.Generator) -> Usage:
    node = random.uniform(1_000.0, 9_000.0, NODES)
    samples = node + random.normal(0.0, 20.0, (SAMPLES, NODES))
    samples[-1] = node
    return Usage(
        source="test",
        at=snapshot.taken,
        window_seconds=300.0,
        node_cpu_millicores=node,
        pod_cpu_millicores=random.uniform(0.0, 800.0, len(snapshot.pods)),
        sample_times=np.full((SAMPLES, NODES), snapshot.taken),
        samples=samples,
        sample_seconds=20.0,
        departed_millicores=np.where(np.arange(NODES) == 2, 300.25, 0.0),
        problems={},
    )


def recorded(folder: Path) -> Recording:
    end = START + 3600.0
    return recording_of(folder, cluster="one", start=START, end=end, today=snapshot_at(end), usage={})


def one(of: RecordedReadings, reading: int) -> tuple[dict[int, float], dict[int, float]]:
    """Nodes and pods of a reading, with their millicores."""
    nodes = slice(int(of.node_start[reading]), int(of.node_start[reading + 1]))
    pods = slice(int(of.pod_start[reading]), int(of.pod_start[reading + 1]))
    return (
        dict(zip(of.node[nodes].tolist(), of.node_millicores[nodes].tolist(), strict=True)),
        dict(zip(of.pod[pods].tolist(), of.pod_millicores[pods].tolist(), strict=True)),
    )


@pytest.mark.parametrize("restarted", [False, True])
def test_what_cycles_read_comes_back_to_a_tenth_of_a_millicore(tmp_path: Path, restarted: bool) -> None:
    random, journal, read = np.random.default_rng(1), DayJournal(tmp_path, cluster="one"), []
    for cycle in range(4):
        if restarted:
            journal = DayJournal(tmp_path, cluster="one")
        snapshot = snapshot_at(START + 120.0 * cycle + 60.0, pods=PODS - cycle)
        read.append((snapshot, usage_at(snapshot, random)))
        journal.append(snapshot, evictions=(), alerts=(), read=ReadUsage(*read[-1]))
        journal.append(snapshot_at(snapshot.taken + 60.0, pods=PODS - cycle), evictions=(), alerts=())
    found = recorded(tmp_path)
    back = found.readings
    assert back is not None
    assert back.at[back.cycle].tolist() == [usage.at for _, usage in read]
    assert len(back) == 4 * SAMPLES
    for cycle, (snapshot, usage) in enumerate(read):
        last = cycle * SAMPLES + SAMPLES - 1
        nodes, pods = one(back, last)
        assert nodes == pytest.approx(dict(enumerate(usage.node_cpu_millicores.tolist())), abs=0.051)
        named = {found.pods.names[row]: value for row, value in pods.items()}
        shown = dict(zip(snapshot.pods.names, usage.pod_cpu_millicores.tolist(), strict=True))
        assert named == pytest.approx(shown, abs=0.051)
        for row in range(SAMPLES - 1):
            assert back.at[last - SAMPLES + 1 + row] == usage.at - 20.0 * (SAMPLES - 1 - row)
            earlier, none = one(back, last - SAMPLES + 1 + row)
            assert earlier == pytest.approx(dict(enumerate(usage.samples[row].tolist())), abs=0.051)
            assert not none
        of_nodes = slice(int(back.node_start[last]), int(back.node_start[last + 1]))
        np.testing.assert_allclose(back.departed_millicores[of_nodes], [0.0, 0.0, 300.25, 0.0], atol=0.051)


def test_of_a_large_cluster_pods_and_samples_of_the_hottest_nodes_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readings, "MOST_PODS", 2 * PODS // NODES)
    snapshot = snapshot_at(START + 60.0)
    usage = usage_at(snapshot, np.random.default_rng(2))
    DayJournal(tmp_path, cluster="one").append(snapshot, evictions=(), alerts=(), read=ReadUsage(snapshot, usage))
    found = recorded(tmp_path)
    assert found.readings is not None
    hottest = set(np.argsort(-usage.node_cpu_millicores)[:2].tolist())
    nodes, pods = one(found.readings, SAMPLES - 1)
    assert set(nodes) == set(range(NODES))
    assert {int(found.pods.node[row]) for row in pods} == hottest
    assert set(one(found.readings, 0)[0]) == hottest


def test_what_a_cycle_could_not_read_is_left_out(tmp_path: Path) -> None:
    snapshot = snapshot_at(START + 60.0)
    usage = usage_at(snapshot, np.random.default_rng(3))
    usage.node_cpu_millicores[1] = usage.samples[:, 1] = usage.pod_cpu_millicores[0] = np.nan
    DayJournal(tmp_path, cluster="one").append(snapshot, evictions=(), alerts=(), read=ReadUsage(snapshot, usage))
    found = recorded(tmp_path)
    assert found.readings is not None
    nodes, pods = one(found.readings, SAMPLES - 1)
    assert set(nodes) == {0, 2, 3}
    assert {found.pods.names[row] for row in pods} == {f"p{row}" for row in range(1, PODS) if row % NODES != 1}


def test_a_cycle_that_read_before_the_last_entry_is_kept_with_what_is_still_there(tmp_path: Path) -> None:
    journal, before = DayJournal(tmp_path, cluster="one"), snapshot_at(START + 60.0)
    journal.append(snapshot_at(START + 120.0, pods=PODS - 2), evictions=(), alerts=())
    now = snapshot_at(START + 150.0, pods=PODS - 2)
    read = ReadUsage(before, usage_at(before, np.random.default_rng(4)))
    journal.append(now, evictions=(), alerts=(), read=read)
    found = recorded(tmp_path)
    assert found.readings is not None
    assert found.readings.at[-1] == START + 60.0
    nodes, pods = one(found.readings, SAMPLES - 1)
    assert set(nodes) == set(range(NODES))
    assert {found.pods.names[row] for row in pods} == {f"p{row}" for row in range(PODS - 2)}


def test_a_journal_without_cycles_has_no_readings(tmp_path: Path) -> None:
    DayJournal(tmp_path, cluster="one").append(snapshot_at(START + 60.0), evictions=(), alerts=())
    assert recorded(tmp_path).readings is None


@pytest.mark.parametrize("numbers", [[], [0], [0, -1, 1, 127, -128, 128], [2**40, -(2**40), 3]])
def test_whole_numbers_are_packed_and_unpacked(numbers: list[int]) -> None:
    given = np.array(numbers, dtype=np.int64)
    assert unpacked(packed(given), len(given)).tolist() == numbers


def test_small_numbers_take_a_byte() -> None:
    assert len(packed(np.arange(-100, 100, dtype=np.int64))) == 200


def test_of_cycles_seconds_apart_a_reading_a_minute_is_kept(tmp_path: Path) -> None:
    random, journal, read = np.random.default_rng(5), DayJournal(tmp_path, cluster="one"), []
    for cycle in range(31):
        snapshot = snapshot_at(START + 10.0 * cycle)
        read.append(usage_at(snapshot, random))
        journal.append(snapshot, evictions=(), alerts=(), read=ReadUsage(snapshot, read[-1]))
    back = recorded(tmp_path).readings
    assert back is not None
    kept = np.flatnonzero(back.cycle)
    assert back.at[kept].tolist() == [START + 50.0 * each for each in range(7)]
    for at, each in zip(range(0, 31, 5), kept.tolist(), strict=True):
        nodes, pods = one(back, each)
        # differences are from the last reading that was kept
        assert nodes == pytest.approx(dict(enumerate(read[at].node_cpu_millicores.tolist())), abs=0.051)
        assert sorted(pods.values()) == pytest.approx(sorted(read[at].pod_cpu_millicores.tolist()), abs=0.051)


def test_a_clock_that_was_set_back_ends_no_readings(tmp_path: Path) -> None:
    random, journal = np.random.default_rng(6), DayJournal(tmp_path, cluster="one")
    for at in (START + 1800.0, START + 600.0, START + 660.0):
        snapshot = snapshot_at(at)
        journal.append(snapshot, evictions=(), alerts=(), read=ReadUsage(snapshot, usage_at(snapshot, random)))
    back = recorded(tmp_path).readings
    assert back is not None
    assert back.at[back.cycle].tolist() == [START + 600.0, START + 660.0, START + 1800.0]


def test_readings_leave_room_for_the_changes_of_the_rest_of_the_day(tmp_path: Path) -> None:
    random, most = np.random.default_rng(7), 30_000
    journal = DayJournal(tmp_path, cluster="one", max_day_bytes=most)
    sizes, last = [], START
    for minute in range(59):
        last = START + 60.0 * minute
        snapshot = snapshot_at(last)
        many = replace(usage_at(snapshot, random), samples=random.uniform(0.0, 9_000.0, (60, NODES)))
        journal.append(snapshot, evictions=(), alerts=(), read=ReadUsage(snapshot, many))
        sizes.append(next((tmp_path / "one").iterdir()).stat().st_size)
    journal.append(snapshot_at(last + 30.0, pods=PODS - 2), evictions=(), alerts=())
    found = recorded(tmp_path)
    assert found.readings is not None
    over = np.flatnonzero(np.array(sizes) > READINGS_SHARE * most)
    assert 10 < over[0] < 50
    assert np.count_nonzero(found.readings.cycle) == over[0] + 1
    assert max(sizes) < 0.7 * most
    assert np.isfinite(found.pods.ended).sum() == 2
    (note,) = journal.take_notes()
    assert note.endswith(".rbj is 60% full: the CPU that cycles read is left out for the rest of the day")


def test_a_reading_without_a_sample_interval_has_no_samples(tmp_path: Path) -> None:
    snapshot = snapshot_at(START + 60.0)
    usage = replace(usage_at(snapshot, np.random.default_rng(8)), sample_seconds=0.0)
    DayJournal(tmp_path, cluster="one").append(snapshot, evictions=(), alerts=(), read=ReadUsage(snapshot, usage))
    back = recorded(tmp_path).readings
    assert back is not None
    assert back.at.tolist() == [START + 60.0]
    assert back.cycle.all()
