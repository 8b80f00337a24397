"""Records of columns: rows are taken, put and appended for every column, and none can be forgotten."""

from dataclasses import dataclass, fields, replace
from typing import Annotated, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.model.cluster.columns import Columns, Empty
from rebalancer.model.cluster.nodes import NodeImages, Nodes
from rebalancer.model.cluster.pods import Pods
from rebalancer.model.notation.arrays import Floats, Ints
from rebalancer.model.recordings.recording import RecordedPods

RECORDS = (Nodes, Pods, RecordedPods)
IMAGES = ("app:1", "app:2", "web:1")


def distinct(column: Any, seed: int) -> Any:
    """A column of the same type, with other values in every row."""
    if isinstance(column, np.ndarray):
        values = np.arange(len(column)) + seed
        return (values % 2 == 0) if column.dtype == np.bool_ else values.astype(column.dtype)
    made = (f"{seed}-{row}" for row in range(len(column)))
    return type(column)(
        name if isinstance(empty, str) else {name: 1.0} if isinstance(empty, dict) else (name,)
        for name, empty in zip(made, column, strict=True)
    )


def filled(kind: type[Any], count: int, seed: int = 0) -> Any:
    """A record in which no two rows of any column that can differ are equal."""
    blank = kind.blank(count)
    made = replace(blank, **{name: distinct(getattr(blank, name), seed + at) for at, name in enumerate(kind.columns)})
    if kind is Nodes and count:
        pairs = np.array([(image, node) for node in range(count) for image in range(len(IMAGES)) if image != node % 3])
        images = NodeImages({name: at for at, name in enumerate(IMAGES)}, np.arange(3.0), pairs[:, 0], pairs[:, 1])
        made = replace(made, images=images)
    return made


def rows_of(record: Any) -> list[tuple[Any, ...]]:
    """All values of each row, and the images of each node."""
    columns = [each.values(getattr(record, name)) for name, each in record.columns.items()]
    if isinstance(record, Nodes):
        on = [set(record.images.nodes_with(name).tolist()) for name in IMAGES]
        columns.append([[node in each for each in on] for node in range(len(record))])
    return list(zip(*columns, strict=True))


def same(some: list[tuple[Any, ...]], others: list[tuple[Any, ...]]) -> bool:
    return repr(some) == repr(others)  # NaN is equal to NaN here


records = st.builds(filled, st.sampled_from(RECORDS), st.integers(0, 6), st.integers(0, 50))


def test_every_field_but_the_images_is_a_column() -> None:
    for kind in RECORDS:
        assert [each.name for each in fields(kind) if each.name not in kind.columns] == (
            ["images"] if kind is Nodes else []
        )


@given(records, st.data())
def test_rows_that_are_taken_have_the_values_of_every_column(record: Any, data: st.DataObject) -> None:
    rows = data.draw(st.permutations(range(len(record))))[: data.draw(st.integers(0, len(record)))]
    taken = record.take(np.array(rows, dtype=np.int32))
    before = rows_of(record)
    assert same(rows_of(taken), [before[row] for row in rows])
    for name in record.columns:
        assert type(getattr(taken, name)) is type(getattr(record, name))
        assert getattr(getattr(taken, name), "dtype", None) == getattr(getattr(record, name), "dtype", None)


@given(st.sampled_from(RECORDS), st.lists(st.integers(0, 4), min_size=1, max_size=4))
def test_parts_that_are_appended_can_be_taken_apart_again(kind: type[Any], counts: list[int]) -> None:
    parts = [filled(kind, count, seed=10 * at) for at, count in enumerate(counts)]
    first, *others = parts
    whole = first.concat(*others)
    assert same(rows_of(whole), [row for part in parts for row in rows_of(part)])
    ends = np.cumsum(counts)
    for part, end in zip(parts, ends.tolist(), strict=True):
        assert same(rows_of(whole.take(np.arange(end - len(part), end))), rows_of(part))


@given(records, st.data())
def test_rows_that_are_put_replace_those_and_no_others(record: Any, data: st.DataObject) -> None:
    rows = sorted(data.draw(st.sets(st.sampled_from(range(len(record)))))) if len(record) else []
    new = filled(type(record), len(rows), seed=100)
    changed = record.put(rows, new)
    for name, column in record.columns.items():
        expected = column.values(getattr(record, name))[:]
        by_row = dict(zip(rows, column.values(getattr(new, name)), strict=True))
        expected = [by_row.get(row, value) for row, value in enumerate(expected)]
        assert repr(list(column.values(getattr(changed, name)))) == repr(expected)


@given(records)
def test_blank_rows_have_the_empty_value_in_every_column(record: Any) -> None:
    both = record.concat(record.blank(2))
    for name, column in record.columns.items():
        assert all(column.is_empty(value) for value in column.values(getattr(both, name))[len(record) :])
        assert getattr(getattr(both, name), "dtype", None) == getattr(getattr(record, name), "dtype", None)


def test_images_of_an_image_that_only_the_appended_nodes_have_keep_their_size() -> None:
    one = replace(Nodes.blank(1), images=NodeImages({"a:1": 0}, np.array([5.0]), np.array([0]), np.array([0])))
    two = replace(
        Nodes.blank(2),
        images=NodeImages({"b:1": 0, "a:1": 1}, np.array([7.0, 9.0]), np.array([0, 1]), np.array([1, 0])),
    )
    images = one.concat(two).images
    found = {name: (images.size_of(name), images.nodes_with(name).tolist()) for name in ("a:1", "b:1")}
    assert found == {"a:1": (5.0, [0, 1]), "b:1": (7.0, [2])}


@pytest.mark.parametrize("kind", RECORDS)
def test_a_column_that_is_forgotten_or_too_short_is_an_error(kind: type[Any]) -> None:
    whole = {name: getattr(filled(kind, 3), name) for name in kind.columns}
    for name, column in whole.items():
        with pytest.raises(TypeError, match=name):
            kind(**{other: each for other, each in whole.items() if other != name})
        expected = "expected" if name != "names" else "expected 2 rows"
        with pytest.raises(ValueError, match=expected):
            kind(**{**whole, name: column[:2]})


def test_a_column_without_an_empty_value_is_an_error_when_it_is_declared() -> None:
    with pytest.raises(TypeError, match=r"weights: expected Annotated"):

        @dataclass(frozen=True, slots=True, kw_only=True)
        class WithoutEmptyValue(Columns):
            names: Annotated[tuple[str, ...], Empty("")]
            weights: Floats

    with pytest.raises(TypeError, match="an array, a tuple or a list"):

        @dataclass(frozen=True, slots=True, kw_only=True)
        class OfAnotherType(Columns):
            names: Annotated[tuple[str, ...], Empty("")]
            weights: Annotated[float, Empty(0.0)]


def test_a_new_column_is_handled_with_the_others() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Machines(Columns):
        names: Annotated[list[str], Empty("")]
        racks: Annotated[Ints, Empty(-1)]

    machines = Machines(names=["a", "b"], racks=np.array([4, 5], dtype=np.int32)).concat(Machines.blank(1))
    assert machines.racks.tolist() == [4, 5, -1]
    assert machines.take(np.array([2, 0])).racks.tolist() == [-1, 4]
    assert machines.row(1, ["racks"]) == {"racks": 5}
