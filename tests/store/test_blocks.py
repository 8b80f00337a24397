"""Days on disk."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rebalancer.model.errors import ConfigError
from rebalancer.model.measured.history import SLOTS, DayBlock, StoredDay, date_of
from rebalancer.store.blocks import BlockStore
from tests.faults.scenarios.disks import fill, small_disk

DAY = 20_000


def a_block(day: int = DAY, *, pods: int = 3, nodes: int = 2, seed: int = 1, **fields: object) -> DayBlock:
    random = np.random.default_rng(seed)

    def grid(rows: int) -> np.ndarray:
        values = random.gamma(1.2, 150.0, (rows, SLOTS)).astype(np.float32)
        values[random.random((rows, SLOTS)) < 0.1] = np.nan
        return values

    return DayBlock(
        day=day,
        pods=tuple(f"shop/wéb-{index}" for index in range(pods)),
        pod_millicores=grid(pods),
        nodes=tuple(f"node-{index}" for index in range(nodes)),
        node_millicores=grid(nodes),
        **fields,  # type: ignore[arg-type]
    )


def a_store(folder: Path, *, cluster: str = "one", source: str = "s") -> BlockStore:
    return BlockStore(folder, cluster=cluster, source=source)


def file_of(folder: Path, day: int = DAY) -> Path:
    return folder / "one" / f"{date_of(day)}.day"


def test_a_day_comes_back_as_it_was_kept_to_a_hundred_thousandth(tmp_path: Path) -> None:
    block = a_block(pods=9000, nodes=5, notes=("a gap",), complete=False, filled=17)
    a_store(tmp_path).save(block)
    back = a_store(tmp_path).load(DAY)
    assert back is not None
    assert (back.pods, back.nodes, back.notes) == (block.pods, block.nodes, ("a gap",))
    assert (back.complete, back.filled) == (False, 17)
    for ours, theirs in ((back.pod_millicores, block.pod_millicores), (back.node_millicores, block.node_millicores)):
        assert ours.dtype == np.float32
        np.testing.assert_array_equal(np.isnan(ours), np.isnan(theirs))
        largest = np.nanmax(theirs, axis=1, keepdims=True)
        assert np.nanmax(np.abs(ours - theirs) / largest) < 1e-5


def test_zero_is_zero_and_unknown_is_unknown(tmp_path: Path) -> None:
    block = a_block()
    block.pod_millicores[0] = 0.0
    block.pod_millicores[1] = np.nan
    block.node_millicores[0, :2] = [250_000.0, np.inf]
    a_store(tmp_path).save(block)
    back = a_store(tmp_path).load(DAY)
    assert back is not None
    assert (back.pod_millicores[0] == 0).all()
    assert np.isnan(back.pod_millicores[1]).all()
    assert back.node_millicores[0, 0] == 250_000.0
    assert np.isnan(back.node_millicores[0, 1])


def test_a_day_without_pods_or_nodes_is_kept_too(tmp_path: Path) -> None:
    a_store(tmp_path).save(a_block(pods=0, nodes=0))
    back = a_store(tmp_path).load(DAY)
    assert back is not None
    assert back.pod_millicores.shape == back.node_millicores.shape == (0, SLOTS)


def test_what_is_kept_is_known_without_loading_it(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    assert store.days() == {}
    assert store.load(DAY) is None
    store.save(a_block(DAY))
    store.save(a_block(DAY + 1, complete=False, filled=12, notes=("x",)))
    assert store.days() == {
        DAY: StoredDay(day=DAY, complete=True, filled=SLOTS, notes=()),
        DAY + 1: StoredDay(day=DAY + 1, complete=False, filled=12, notes=("x",)),
    }
    store.save(a_block(DAY + 1))
    assert store.days()[DAY + 1].complete


def broken(data: bytes, how: str) -> bytes:
    middle = len(data) // 2
    match how:
        case "a byte is changed":
            return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
        case "cut off in the middle":
            return data[:middle]
        case "cut off at the start":
            return data[:5]
        case "empty":
            return b""
        case "something else":
            return b"<html>" + data
        case "a later version":
            return data[:7] + b"\x02" + data[8:]
        case "more behind it":
            return data + b"x"
    raise AssertionError(how)


@pytest.mark.parametrize("first", ["days", "load"])
@pytest.mark.parametrize(
    "how",
    [
        "a byte is changed",
        "cut off in the middle",
        "cut off at the start",
        "empty",
        "something else",
        "a later version",
        "more behind it",
    ],
)
def test_a_broken_file_is_removed_and_noted(tmp_path: Path, how: str, first: str) -> None:
    a_store(tmp_path).save(a_block())
    path = file_of(tmp_path)
    path.write_bytes(broken(path.read_bytes(), how))
    store = a_store(tmp_path)
    assert not (store.days() if first == "days" else store.load(DAY))
    assert not path.exists()
    (note,) = store.take_notes()
    assert note.startswith(f"{path.name} is removed and the day read again: ")
    assert store.take_notes() == ()
    store.save(a_block())
    assert list(store.days()) == [DAY]


def test_every_flipped_bit_of_a_file_is_noticed(tmp_path: Path) -> None:
    a_store(tmp_path).save(a_block(pods=1, nodes=1))
    path = file_of(tmp_path)
    whole = path.read_bytes()
    for at in range(0, len(whole), 7):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        assert a_store(tmp_path).load(DAY) is None, f"byte {at}"


def test_a_file_that_breaks_later_is_noticed_by_the_same_store(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    store.save(a_block())
    assert store.days()
    file_of(tmp_path).write_bytes(b"")
    assert store.days() == {}


def test_a_file_of_another_day_or_cluster_is_not_believed(tmp_path: Path) -> None:
    a_store(tmp_path).save(a_block())
    os.replace(file_of(tmp_path), file_of(tmp_path, DAY + 1))
    store = a_store(tmp_path)
    assert store.days() == {}
    assert "it is of one, 2024-10-04" in store.take_notes()[0]


def test_days_of_other_queries_do_not_count_and_are_replaced(tmp_path: Path) -> None:
    a_store(tmp_path, source="old").save(a_block(seed=1))
    store = a_store(tmp_path, source="new")
    assert store.days() == {}
    assert store.load(DAY) is None
    assert store.take_notes() == ("2024-10-04.day was read with other queries, so the day is read again",)
    assert list(a_store(tmp_path, source="old").days()) == [DAY], "it is still there for the other queries"
    store.save(a_block(seed=2))
    assert list(store.days()) == [DAY]


def test_clusters_do_not_see_each_others_days(tmp_path: Path) -> None:
    a_store(tmp_path, cluster="one").save(a_block())
    assert a_store(tmp_path, cluster="two").days() == {}


def test_old_days_and_what_a_killed_process_left_are_dropped(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    for day in (DAY, DAY + 1, DAY + 2):
        store.save(a_block(day))
    left = file_of(tmp_path).with_suffix(".tmp")
    left.write_bytes(b"half")
    store.drop(before=DAY + 1)
    assert sorted(store.days()) == [DAY + 1, DAY + 2]
    assert not left.exists()


def test_a_half_written_day_does_not_replace_a_whole_one(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    store.save(a_block())

    class Halts(tuple[str, ...]):
        def __iter__(self):  # type: ignore[no-untyped-def]
            raise OSError(28, "No space left on device")

    with pytest.raises(ConfigError, match=r"2024-10-04\.day: No space left on device: expected a folder"):
        store.save(replace(a_block(seed=2), pods=Halts(("a", "b", "c"))))
    back = a_store(tmp_path).load(DAY)
    assert back is not None
    np.testing.assert_allclose(back.pod_millicores, a_block().pod_millicores, rtol=0, atol=0.1)


def test_a_day_that_found_no_room_is_one_line_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        store, day = a_store(disk), a_block(pods=100)
        filler = fill(disk)
        os.truncate(filler, filler.stat().st_size - 16384)
        with pytest.raises(ConfigError, match="No space left on device"):
            store.save(day)
        assert [path for path in disk.rglob("*") if path.is_file()] == [filler]
        filler.unlink()
        store.save(day)
        assert set(store.days()) == {DAY}


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("a file")
    with pytest.raises(ConfigError, match="expected a folder that history can be kept in"):
        a_store(tmp_path).save(a_block())


def test_eight_days_of_a_large_cluster_stay_under_a_gibibyte(tmp_path: Path) -> None:
    pods = 8192
    a_store(tmp_path).save(a_block(pods=pods, nodes=280))
    assert file_of(tmp_path).stat().st_size / pods * 150_000 * 8 < 0.75 * 2**30


def test_the_nodes_of_a_day_can_be_read_without_its_pods(tmp_path: Path) -> None:
    block = a_block(pods=9000, nodes=5, complete=False, filled=17)
    a_store(tmp_path).save(block)
    found = a_store(tmp_path).nodes(DAY)
    whole = a_store(tmp_path).load(DAY)
    assert found is not None
    assert whole is not None
    assert found[0] == block.nodes
    np.testing.assert_array_equal(found[1], whole.node_millicores)


def test_nodes_of_a_day_that_is_not_there_or_broken_or_of_other_queries_are_not_known(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    assert store.nodes(DAY) is None
    store.save(a_block())
    assert a_store(tmp_path, source="other").nodes(DAY) is None
    data = file_of(tmp_path).read_bytes()
    for length in range(0, len(data), 7):
        file_of(tmp_path).write_bytes(data[:length])
        assert store.nodes(DAY) is None
        assert file_of(tmp_path).exists()
