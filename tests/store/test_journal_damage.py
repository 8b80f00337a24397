"""A journal that was cut, damaged, pruned or can't be written."""

import random
from pathlib import Path

import pytest

from bench.store.journal import ChangingCluster, day_of
from rebalancer.model.errors import ConfigError
from rebalancer.model.measured.history import DAY_SECONDS, date_of, slot_of
from rebalancer.store.journal import DayJournal, journal_days, readings
from tests.faults.scenarios.disks import fill, small_disk
from tests.store.test_journal import MIDNIGHT, START, World, append, file_of, read, state_at


def test_a_torn_tail_loses_the_last_entry_only(tmp_path: Path) -> None:
    journal, world = DayJournal(tmp_path, cluster="one"), World()
    world.add("a", "n0", at=START - 500.0)
    append(journal, world.snapshot(START))
    world.add("b", "n1", at=START + 10.0)
    append(journal, world.snapshot(START + 60.0))
    whole = file_of(tmp_path).stat().st_size
    world.add("c", "n2", at=START + 70.0)
    append(journal, world.snapshot(START + 120.0))
    file = file_of(tmp_path)
    data = file.read_bytes()
    for left in (1, 7, 40, len(data) - whole - 1):
        file.write_bytes(data[: whole + left])
        recording = read(tmp_path, world, end=START + 300.0)
        assert sorted(recording.pods.names) == ["a", "b"]
        assert [gap.text for gap in recording.gaps if "bytes" in gap.text] == [
            f"{left} bytes of the journal of {date_of(slot_of(START)[0])} can't be read and are left out"
        ]
    # the restarted daemon continues behind it
    del world.pods["a"]
    append(DayJournal(tmp_path, cluster="one"), world.snapshot(START + 180.0))
    after = read(tmp_path, world, end=START + 300.0)
    assert set(state_at(after, START + 180.0)) == {"b", "c"}
    assert set(state_at(after, START + 60.0)) == {"a", "b"}


def test_after_a_damaged_entry_nothing_is_guessed_until_the_next_keyframe(tmp_path: Path) -> None:
    journal, world = DayJournal(tmp_path, cluster="one"), World()
    sizes = []
    for number in range(4):
        world.add(f"p{number}", "n0", at=START + 60.0 * number)
        append(journal, world.snapshot(START + 60.0 * number))
        sizes.append(file_of(tmp_path).stat().st_size)
    data = bytearray(file_of(tmp_path).read_bytes())
    data[sizes[0] + 20] ^= 255
    file_of(tmp_path).write_bytes(bytes(data))
    assert read(tmp_path, world, end=START + 300.0).pods.names == ["p0"]
    append(DayJournal(tmp_path, cluster="one"), world.snapshot(START + 270.0))
    assert len(read(tmp_path, world, end=START + 300.0).pods) == 4


def test_a_file_that_others_changed_is_continued_by_a_keyframe(tmp_path: Path) -> None:
    world = World()
    world.add("a", "n0", at=START - 500.0)
    ours, theirs = DayJournal(tmp_path, cluster="one"), DayJournal(tmp_path, cluster="one")
    for number, journal in enumerate((ours, theirs, ours, theirs)):
        world.add(f"p{number}", "n0", at=START + 60.0 * number)
        append(journal, world.snapshot(START + 60.0 * number))
    assert len(read(tmp_path, world, end=START + 300.0).pods) == 5
    file_of(tmp_path).unlink()
    append(theirs, world.snapshot(START + 270.0))
    assert len(read(tmp_path, world, end=START + 300.0).pods) == 5


def test_a_full_day_is_cut_and_the_next_one_is_whole(tmp_path: Path) -> None:
    journal, world = DayJournal(tmp_path, cluster="one", max_day_bytes=20_000), World()
    at = MIDNIGHT + 23 * 3600.0
    for number in range(200):
        world.add(f"p{number}", "n0", at=at)
        append(journal, world.snapshot(at))
        at += 15.0
    assert file_of(tmp_path).stat().st_size <= 20_000
    (note,) = journal.take_notes()
    assert note == f"journal-{date_of(slot_of(START)[0])}.rbj is full (0 MB): the rest of the day is left out"
    assert journal.take_notes() == ()
    texts = [gap.text for gap in read(tmp_path, world, start=at - 3000.0, end=MIDNIGHT + DAY_SECONDS).gaps]
    assert any("was full at 2027-01-15 23:" in text and " UTC" in text for text in texts)
    tomorrow = MIDNIGHT + DAY_SECONDS
    append(journal, world.snapshot(tomorrow + 10.0))
    assert len(read(tmp_path, world, start=tomorrow, end=tomorrow + 300.0).pods) == 200


def test_old_days_are_dropped(tmp_path: Path) -> None:
    journal, world = DayJournal(tmp_path, cluster="one"), World()
    for day in range(20):
        append(journal, world.snapshot(START + day * DAY_SECONDS))
    today = slot_of(START)[0] + 19
    assert journal_days(tmp_path, "one") == list(range(today - 16, today + 1))


def test_gaps_say_from_when_to_when_and_how_many_pods(tmp_path: Path) -> None:
    journal, world = DayJournal(tmp_path, cluster="one"), World()
    for name in "abc":
        world.add(name, "n0", at=START - 500.0)
    append(journal, world.snapshot(START + 10.0))
    del world.pods["a"]
    world.add("d", "n1", at=START + 3000.0)
    append(DayJournal(tmp_path, cluster="one"), world.snapshot(START + 3600.0))
    (gap, tail) = read(tmp_path, world, end=START + 7200.0).gaps[:2]
    assert gap.text.endswith("2027-01-15 10:00 UTC to 2027-01-15 11:00 UTC, so placements are carried on")
    assert gap.pods == 2
    assert "2027-01-15 11:00 UTC to 2027-01-15 12:00 UTC" in tail.text


def test_without_a_journal_the_error_says_what_is_needed(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"no journal from 2027-01-15 10:00 UTC to 2027-01-15 10:05 UTC: .*REBALANCER_HISTORY_DIR"
    ):
        read(tmp_path, World(), end=START + 300.0)


def test_a_folder_that_can_not_be_written_is_an_error_and_the_next_entry_a_keyframe(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("a file")
    journal, world = DayJournal(tmp_path, cluster="one"), World()
    world.add("a", "n0", at=START - 500.0)
    with pytest.raises(ConfigError, match="expected a folder that history can be kept in"):
        append(journal, world.snapshot(START))
    (tmp_path / "one").unlink()
    append(journal, world.snapshot(START + 60.0))
    assert read(tmp_path, world, end=START + 300.0).pods.names == ["a"]


def test_an_entry_that_found_no_room_leaves_nothing_behind(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        journal, world = DayJournal(disk, cluster="one"), World()
        append(journal, world.snapshot(START))
        size, filler = file_of(disk).stat().st_size, fill(disk)
        chance = random.Random(1)
        for _ in range(500):
            world.add(f"{chance.getrandbits(200):x}", "n0", at=START)
        with pytest.raises(ConfigError, match="No space left on device"):
            append(journal, world.snapshot(START + 60.0))
        assert file_of(disk).stat().st_size == size
        filler.unlink()
        append(journal, world.snapshot(START + 120.0))
        assert len(read(disk, world, end=START + 300.0).pods) == 500


def test_a_day_of_5000_nodes_and_150000_pods_takes_at_most_50_mb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a tenth of the cluster, of the pods of a reading and of the day: bytes grow with them
    monkeypatch.setattr(readings, "MOST_PODS", readings.MOST_PODS // 10)
    (_, first), *rest = day_of(ChangingCluster(500), tmp_path, entries=72)
    a_day = 10 * (first + sum(size for _, size in rest) * 1439 / 71)
    assert a_day <= 50e6
    assert first > 15_000 * 16
