"""The history that is kept: what is asked when, what stays on disk, and what is said about it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rebalancer.forecasting.history import HistoryKeeper
from rebalancer.lab import Lab, node, scenario, workload
from rebalancer.model.measured.history import DAY_SECONDS, SLOTS, DayBlock, History, date_of
from rebalancer.prometheus.history.ranges import PrometheusHistory
from rebalancer.store.blocks import BlockStore
from tests.forecasting.builders import Daemon, a_daemon, lines
from tests.prometheus.builders import NoProgress, a_cluster, a_source
from tests.prometheus.fakes import DAY, OWN, START


def days_of(history: History) -> list[int]:
    return [block.day - DAY for block in history.days]


def known_slots(block: DayBlock) -> int:
    return int(np.isfinite(block.node_millicores).all(axis=0).sum())


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[Daemon]:
    """A keeper that has read all days."""
    with a_daemon(tmp_path) as daemon:
        daemon.update()
        yield daemon


def test_the_first_fill_reads_today_and_then_eight_days_newest_first(tmp_path: Path) -> None:
    with a_daemon(tmp_path) as daemon:
        history = daemon.update()
        assert daemon.asked_days == [DAY, *range(DAY - 1, DAY - 9, -1)]
    assert days_of(history) == [-8, -7, -6, -5, -4, -3, -2, -1, 0]
    assert [known_slots(block) for block in history.days] == [SLOTS] * 8 + [144]
    assert [block.complete for block in history.days] == [True] * 8 + [False]
    assert history.days[-1].filled == 144
    assert history.notes == ()
    web = history.days[3].pod_millicores[history.days[3].pod_row["shop/web-0"]]
    np.testing.assert_allclose(web, 250, rtol=1e-4)


def test_then_only_the_steps_since_are_asked(filled: Daemon) -> None:
    filled.clock.at += 3600
    history = filled.update()
    assert {(each["start"], each["end"]) for each in filled.past.ranges} == {
        (f"{START + 145 * 300:.3f}", f"{START + 156 * 300:.3f}")
    }
    assert known_slots(history.days[-1]) == 156


def test_nothing_is_asked_while_no_step_is_over(filled: Daemon) -> None:
    filled.clock.at += 200  # a step has been over for less than a minute
    history = filled.update()
    assert filled.fake.asked == []
    assert known_slots(history.days[-1]) == 144


def test_a_restart_asks_nothing_again(tmp_path: Path) -> None:
    with a_daemon(tmp_path) as daemon:
        first = daemon.update()
        daemon.restart()
        again = daemon.update()
        assert daemon.fake.asked == []
    assert days_of(again) == days_of(first)


def test_at_midnight_yesterdays_rest_is_read_and_the_day_is_closed(filled: Daemon) -> None:
    filled.clock.at = START + DAY_SECONDS + 3700
    history = filled.update()
    assert filled.asked_days == [DAY + 1, DAY]
    assert min(float(each["start"]) for each in filled.past.ranges) == START + 145 * 300
    assert days_of(history) == [-7, -6, -5, -4, -3, -2, -1, 0, 1]
    assert [block.complete for block in history.days] == [True] * 8 + [False]
    assert known_slots(history.days[-2]) == SLOTS


def test_old_days_are_deleted(filled: Daemon) -> None:
    assert filled.file(DAY - 8).exists()
    filled.clock.at += 2 * DAY_SECONDS
    filled.update()
    assert not filled.file(DAY - 8).exists()
    assert filled.file(DAY - 7).exists(), "a margin of a day"


def test_a_first_fill_takes_several_hours_when_queries_are_few(tmp_path: Path) -> None:
    with a_daemon(tmp_path, history={"queriesPerHour": 20}) as daemon:
        history = daemon.update()
        assert len(daemon.fake.asked) == 20
        assert days_of(history) == [-2, -1, 0]
        assert any(note.startswith("6 of 8 days are still to be read, the newest ") for note in history.notes)
        assert any("is only read in part yet" in note for note in history.notes)
        assert len(daemon.update().days) == 3
        assert daemon.fake.asked == []
        for _ in range(4):
            daemon.clock.at += 3601
            history = daemon.update()
    assert days_of(history) == [-8, -7, -6, -5, -4, -3, -2, -1, 0]
    assert [known_slots(block) for block in history.days] == [SLOTS] * 8 + [144 + 48]
    assert history.notes == ()


def test_a_day_that_is_not_there_is_absent_and_not_asked_for_at_once_again(tmp_path: Path) -> None:
    with a_daemon(tmp_path, past={"lines": lines(first=-2 * SLOTS)}) as daemon:
        history = daemon.update()
        assert days_of(history) == [-2, -1, 0]
        (note,) = history.notes
        assert (
            note
            == f"Prometheus has nothing of 6 of 8 days, the last of them {date_of(DAY - 3)}: is its retention shorter?"
        )
        daemon.update()
        assert daemon.fake.asked == []
        daemon.past.lines = lines()
        daemon.clock.at += 6 * 3600
        assert days_of(daemon.update()) == [-8, -7, -6, -5, -4, -3, -2, -1, 0]


def test_where_no_day_has_a_sample_the_queries_are_named_and_not_the_retention(tmp_path: Path) -> None:
    with a_daemon(tmp_path, past={"lines": []}) as daemon:
        (note,) = daemon.update().notes
    assert note == (
        f"Prometheus has nothing of 8 of 8 days, the last of them {date_of(DAY - 1)}: its queries find no series, "
        "check usage.prometheus.nodeCPU and podCPU"
    )


def test_what_prometheus_has_forgotten_since_is_still_known(filled: Daemon) -> None:
    filled.past.lines = lines(first=100)
    filled.restart()
    history = filled.update()
    assert [known_slots(block) for block in history.days] == [SLOTS] * 8 + [144]


def test_a_gap_is_reported_with_its_day(tmp_path: Path) -> None:
    holey = [replace(each, values={s: v for s, v in each.values.items() if not -100 <= s < -90}) for each in lines()]
    with a_daemon(tmp_path, past={"lines": holey}) as daemon:
        history = daemon.update()
        assert history.notes == (f"no samples from {date_of(DAY - 1)} 15:40 UTC to {date_of(DAY - 1)} 16:30 UTC",)
        daemon.restart()
        assert daemon.update().notes == history.notes
    assert known_slots(history.days[-2]) == SLOTS - 10
    assert history.days[-2].complete


def test_a_broken_file_is_read_anew_and_reported(filled: Daemon) -> None:
    data = bytearray(filled.file(DAY - 3).read_bytes())
    data[60] ^= 255
    filled.file(DAY - 3).write_bytes(bytes(data))
    filled.restart()
    history = filled.update()
    assert filled.asked_days == [DAY - 3]
    (note,) = history.notes
    assert "is removed and the day read again: its checksum is wrong" in note
    assert known_slots(history.days[5]) == SLOTS
    assert filled.update().notes == ()


def test_a_file_that_breaks_while_it_is_in_use_is_a_day_without_rows_until_the_next_update(tmp_path: Path) -> None:
    with a_daemon(tmp_path) as daemon:
        history = daemon.update()
        daemon.file(DAY - 3).write_bytes(b"")
        assert history.days[5].pods == ()
        assert not history.days[5].complete
        assert known_slots(daemon.update().days[5]) == SLOTS


def test_todays_broken_file_costs_only_today(filled: Daemon) -> None:
    filled.file(DAY).write_bytes(b"")
    filled.clock.at += 300
    history = filled.update()
    assert filled.asked_days == [DAY]
    assert known_slots(history.days[-1]) == 145


def test_a_day_whose_beginning_is_lost_while_its_rest_is_read_is_read_whole_the_next_time(filled: Daemon) -> None:
    filled.clock.at += 3600

    def answer(asked: Any) -> Any:
        filled.file(DAY).write_bytes(b"")
        return filled.past(asked)

    filled.fake.answer = answer
    assert len(filled.update().days) == 8
    filled.fake.answer = filled.past
    assert known_slots(filled.update().days[-1]) == 156


def test_a_day_in_use_does_not_hide_what_was_added_to_it(tmp_path: Path) -> None:
    with a_daemon(tmp_path) as daemon:
        held = daemon.update().days[-1]
        daemon.clock.at += 3600
        assert known_slots(daemon.update().days[-1]) == 156
        assert known_slots(held) == 144


def test_other_queries_make_another_history(filled: Daemon) -> None:
    filled.restart(nodeCPU={**OWN["nodeCPU"], "unit": "share"})
    history = filled.update()
    assert len(filled.asked_days) == 9
    assert len([note for note in history.notes if "was read with other queries" in note]) == 9


@pytest.mark.parametrize(("ahead", "message"), [(3600.0, "ahead of"), (-3600.0, "behind")])
def test_while_clocks_disagree_nothing_is_added(filled: Daemon, ahead: float, message: str) -> None:
    filled.past.ahead = ahead
    filled.clock.at += 3600
    history = filled.update()
    assert filled.past.ranges == []
    (note,) = history.notes
    assert note.startswith("Prometheus' clock is 3")
    assert f" s {message} ours" in note
    assert len(history.days) == 9
    filled.past.ahead = 0
    assert known_slots(filled.update().days[-1]) == 156


def test_partial_answers_are_used_reported_and_asked_again(tmp_path: Path) -> None:
    with a_daemon(tmp_path, past={"warnings": ("store x is down",)}) as daemon:
        history = daemon.update()
        assert days_of(history) == [-8, -7, -6, -5, -4, -3, -2, -1, 0]
        assert not any(block.complete for block in history.days)
        assert history.notes[0] == f"{date_of(DAY - 8)}: the answers were partial: store x is down"
        daemon.past.warnings = ()
        daemon.update()
        assert daemon.asked_days == [DAY], "closed days wait for an hour"
        daemon.clock.at += 3601
        history = daemon.update()
    assert history.notes == ()
    assert [block.complete for block in history.days] == [True] * 8 + [False]


def test_a_prometheus_that_does_not_answer_leaves_history_as_old_as_it_was(filled: Daemon) -> None:
    filled.fake.answer = lambda _: (500, "out of order")
    filled.clock.at += 3600
    history = filled.update()
    assert len(history.days) == 9
    assert "answered 500 to usage.prometheus.nodeCPU.query: out of order" in history.notes[0]
    filled.fake.answer = filled.past
    assert known_slots(filled.update().days[-1]) == 156


def test_a_folder_that_cannot_be_used_is_reported_and_nothing_breaks(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("a file")
    with a_daemon(tmp_path) as daemon:
        history = daemon.update()
    assert len(history.days) == 0
    assert any("expected a folder that history can be kept in" in note for note in history.notes)


def test_nothing_more_is_asked_when_the_program_is_to_end(tmp_path: Path) -> None:
    with a_daemon(tmp_path) as daemon:
        daemon.stop = True
        assert len(daemon.update().days) == 0
        assert daemon.fake.asked == []


def test_what_is_kept_can_be_had_without_asking(filled: Daemon) -> None:
    filled.fake.asked.clear()
    assert len(filled.keeper.kept().days) == 9
    assert filled.fake.asked == []


def test_days_are_loaded_one_at_a_time(tmp_path: Path) -> None:
    with a_daemon(tmp_path) as daemon:
        history = daemon.update()
    held = history.days[0]
    assert history.days[0] is held, "while somebody holds it, it is not loaded again"
    assert [block.day for block in history.days[2:4]] == [DAY - 6, DAY - 5]


def test_the_practice_clusters_days_are_read_from_its_recording_rules(tmp_path: Path) -> None:
    own = {
        "nodeCPU": {"query": "instance:node_cpu_utilisation:rate5m", "freshness": "timestamp(node_cpu_seconds_total)"},
        "podCPU": {"query": "node_namespace_pod_container:container_cpu_usage_seconds_total:sum_rate5m"},
    }
    web = workload("web", namespace="shop", place={"a": 4}, cpu={"base": 1.5})
    nodes = [node(name, cpu=8, overhead_cores=0.2) for name in "ab"]
    with Lab.start(scenario(nodes=nodes, workloads=(web,)), speed=20.0) as lab:
        source = PrometheusHistory(a_source(f"{lab.url}/prometheus", **own), clock=lab.clock, progress=NoProgress())
        blocks = BlockStore(tmp_path, cluster="lab", source=source.identity)
        snapshot = a_cluster({"a": [], "b": []}, cpu=8000)
        snapshot = replace(snapshot, nodes=replace(snapshot.nodes, created=np.zeros(2)))
        history = HistoryKeeper(source=source, blocks=blocks, clock=lab.clock).update(snapshot)
        source.close()
    assert len([block for block in history.days if block.complete]) == 8
    yesterday = history.days[7]
    assert len(yesterday.pods) == 4
    np.testing.assert_allclose(yesterday.pod_millicores, 1500, rtol=0.01)
    of_node = dict(zip(yesterday.nodes, yesterday.node_millicores.mean(axis=1).tolist(), strict=True))
    assert of_node == {"a": pytest.approx(6200, rel=0.01), "b": pytest.approx(200, rel=0.01)}
