import random
import tracemalloc

import msgspec
import pytest

from rebalancer.kube.snapshot.images import ImageNumbers
from rebalancer.kube.snapshot.records import Pod
from rebalancer.kube.watch.rows import FIRST_TIDYING, PodRows
from tests.kube.builders import a_pod, owned_by


def pod(name: str, uid: str, **more: object) -> Pod:
    metadata = {"uid": uid, "labels": {"name": name}} | owned_by("ReplicaSet", f"of-{name}")
    return msgspec.convert(a_pod(name, metadata=metadata, **more), Pod)  # type: ignore[arg-type]


def test_what_no_pod_names_any_more_is_dropped_and_the_others_keep_theirs() -> None:
    rows = PodRows()
    rows.add([pod("stays", "stays", node="n-stays")])
    for number in range(FIRST_TIDYING):
        rows.apply([(False, pod(f"p{number}", "moves", node=f"n{number}"))])
    taken = rows.taken()
    assert len(rows) == 2
    assert len(taken.owners) + len(taken.nodes) + len(taken.pod_templates) < FIRST_TIDYING
    last = f"p{FIRST_TIDYING - 1}"
    names = {f"n{FIRST_TIDYING - 1}": 0, "n-stays": 1}
    columns = taken.columns(nodes=names, namespaces={"shop": 3}, owners={n: n for n in range(len(taken.owners))})
    # the row keeps the name of its first pod: a uid never changes its name
    assert columns.node.tolist() == [0, 1]
    assert columns.namespace.tolist() == [3, 3]
    assert [taken.owners[number][1].name for number in columns.owner] == [f"of-{last}", "of-stays"]
    assert [taken.pod_templates[template].labels["name"] for template in columns.template] == [last, "stays"]


def test_a_pod_takes_300_bytes_besides_its_name_and_uid() -> None:
    pods = [pod("same", f"u{n}") for n in range(20_000)]
    rows = PodRows()
    tracemalloc.start()
    try:
        rows.add(pods)
        rows.taken()
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert taken / len(pods) < 300


def test_an_event_that_comes_twice_changes_nothing_more() -> None:
    rows = PodRows()
    first = pod("a", "a")
    for _ in range(2):
        rows.apply([(False, first), (True, pod("b", "b")), (False, pod("c", "c")), (True, pod("c", "c"))])
    assert rows.taken().names == ["a"]


def test_a_pod_with_a_request_that_is_no_quantity_is_there_and_unreadable() -> None:
    rows = PodRows()
    rows.add([pod("a", "a")])
    rows.apply([(False, pod("a", "a", cpu="lots", node="elsewhere"))])
    taken = rows.taken()
    assert [taken.nodes[number] for number in taken.rows["node"]] == ["elsewhere"]
    columns = taken.columns(nodes={"elsewhere": 0}, namespaces={"shop": 0}, owners={})
    assert columns.unreadable.tolist() == [True]
    assert "lots" in taken.causes[columns.template[0]]
    # over when the object is
    rows.apply([(False, pod("a", "a"))])
    assert not rows.taken().columns(nodes={"n1": 0}, namespaces={"shop": 0}, owners={}).unreadable.any()


def test_rows_grow_and_are_used_again() -> None:
    rows = PodRows()
    rows.add([pod(f"p{n:04}", f"u{n}") for n in range(3000)])
    rows.apply([(True, pod("", f"u{n}")) for n in range(0, 3000, 2)])
    rows.apply([(False, pod(f"q{n}", f"v{n}")) for n in range(10)])
    names = rows.taken().columns(nodes={}, namespaces={"shop": 0}, owners={}).names
    assert names == sorted([f"p{n:04}" for n in range(1, 3000, 2)] + [f"q{n}" for n in range(10)])


def image(size: int, *names: str) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode({"names": names, "sizeBytes": size}))


def test_images_that_no_node_has_any_more_are_dropped() -> None:
    numbers = ImageNumbers()
    stays = numbers.numbers([image(7, "stays:1", "stays@a")])
    for number in range(ImageNumbers.FIRST_TIDYING):
        passing = numbers.numbers([image(number, f"i:{number}")])
    assert numbers.is_tidying_due()
    stays, passing = numbers.tidied([stays, passing])
    assert not numbers.is_tidying_due()
    table = numbers.table([stays, passing, stays])
    assert table.nodes_with("stays@a").tolist() == [0, 2]
    assert table.size_of("stays:1") == 7
    assert table.nodes_with(f"i:{ImageNumbers.FIRST_TIDYING - 1}").tolist() == [1]
    assert table.size_of("i:0") is None


def shown(rows: PodRows) -> list[tuple[object, ...]]:
    """Each pod with the values that its numbers stand for."""
    taken = rows.taken()
    names, uids = taken.names, taken.uids
    return [
        (
            taken.namespaces[row["namespace"]],
            names[at],
            uids[at],
            taken.nodes[row["node"]] if row["node"] >= 0 else "",
            taken.owners[row["owner"]][1].name,
            taken.pod_templates[row["template"]].labels["name"],
            taken.statuses[row["status"]],
            taken.figures.cpu_request_millicores[row["template"]],
            *row[["phase", "ready", "terminating", "created", "started", "alive"]].tolist(),
        )
        for at, row in enumerate(taken.rows)
    ]


@pytest.mark.parametrize("seed", [1, 2])
def test_after_10000_events_the_rows_equal_those_of_a_new_list(seed: int) -> None:
    chance = random.Random(seed)
    rows, live = PodRows(), dict[str, Pod]()

    def some(uid: str) -> Pod:
        # a name comes again with another uid, as a StatefulSet's does
        name = f"p{chance.randrange(300)}" if uid not in live else live[uid].metadata.name
        space = live[uid].metadata.namespace if uid in live else chance.choice(("a", "b", "c"))
        return pod(
            name,
            uid,
            namespace=space,
            node=chance.choice(("", "n1", "n2", "n3")),
            cpu=f"{chance.randrange(1, 9)}00m",
            status={"phase": chance.choice(("Pending", "Running"))},
        )

    first = [some(f"u{number}") for number in range(400)]
    live |= {each.metadata.uid: each for each in first}
    rows.add(first)
    for done in range(1, 10_001):
        uid = f"u{chance.randrange(800)}"
        gone = uid in live and chance.random() < 0.4
        changed = live.pop(uid) if gone else live.setdefault(uid, some(uid))
        if not gone:
            changed = live[uid] = some(uid)
        rows.apply([(gone, changed)])
        if done % 1000 == 0:
            again = PodRows()
            again.add(list(live.values()))
            assert shown(rows) == shown(again)


def test_names_are_the_same_list_until_a_pod_comes_or_goes() -> None:
    rows = PodRows()
    rows.add([pod("b", "2"), pod("a", "1")])
    before = rows.taken()
    rows.apply([(False, pod("a", "1", node="elsewhere"))])
    assert rows.taken().names is before.names
    rows.apply([(False, pod("c", "3"))])
    assert (before.names, rows.taken().names) == (["a", "b"], ["a", "b", "c"])
