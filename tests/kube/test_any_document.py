"""Whatever an object or a page holds, the other objects are read as without it."""

import copy
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rebalancer.kube.snapshot import lists, quarantine
from rebalancer.kube.snapshot.quarantine import read_object, read_page, version_of
from rebalancer.kube.snapshot.records import Namespace, Page, Pod
from rebalancer.kube.snapshot.snapshot import KubeCluster
from rebalancer.kube.watch.rows import PodRows
from rebalancer.model.errors import UnsafeDataError
from rebalancer.model.notation.decoding import json_decoder
from tests.kube.builders import Cluster, Json, a_node, a_pod, a_workload, meta, owned_by, read, reading
from tests.kube.fakes.api import Asked, Reply
from tests.kube.test_quarantine import ABSURD, CLEAN, a_budget, a_clean_cluster, facts, with_odd

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([2**31, 2**63, 10**400, -1, 0]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20),
    st.sampled_from([*ABSURD, "2026-11-21T03:00:00Z", "\u0000", "\U0001f600"]),
)


ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


GONE = object()


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all parts of a document but itself."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


@st.composite
def mutated(draw: st.DrawFn, base: Json) -> Json:
    """A document with some parts replaced by anything, or gone."""
    document = copy.deepcopy(base)
    for _ in range(draw(st.integers(1, 4))):
        found = list(places(document))
        if not found:
            break
        *way, last = draw(st.sampled_from(found))
        at: Any = document
        for key in way:
            at = at[key]
        new = draw(ANYTHING | st.just(GONE))
        if new is not GONE:
            at[last] = new
        elif isinstance(at, dict):
            del at[last]
    return document


FULL_POD = a_pod(
    "odd",
    namespace="tenant",
    metadata={
        **owned_by("ReplicaSet", "odd-1", namespace="tenant"),
        "annotations": {"rebalancer.dev/evict": "true", "kubernetes.io/config.source": "api"},
    },
    spec={
        "nodeSelector": {"a": "b"},
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}}
                ],
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "podAffinityTerm": {}}],
            }
        },
        "tolerations": [{"operator": "Exists"}],
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "minDomains": 2}],
        "volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "persistentVolumeClaim": {"claimName": "c"}}],
        "initContainers": [{"name": "i", "image": "x", "restartPolicy": "Always", "ports": [{"hostPort": 80}]}],
        "overhead": {"cpu": "1m"},
    },
    status={
        "containerStatuses": [{"restartCount": 2, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}],
        "nominatedNodeName": "n2",
    },
)


BASES: dict[str, Json] = {
    "pods": FULL_POD,
    "nodes": a_node("odd", taints=[{"key": "a", "effect": "NoSchedule"}]),
    "replicasets": a_workload("odd-1", namespace="tenant", **owned_by("Deployment", "odd", namespace="tenant")),
    "deployments": a_workload("odd", namespace="tenant"),
    "poddisruptionbudgets": a_budget("odd", "tenant"),
    "namespaces": {"metadata": meta("tenant", labels={"a": "b"})},
    "persistentvolumes": {
        "metadata": meta("v", labels={"topology.kubernetes.io/zone": "a__b"}),
        "spec": {
            "claimRef": {"namespace": "tenant", "name": "c"},
            "csi": {"driver": "d"},
            "accessModes": ["ReadWriteOnce"],
        },
    },
    "resourcequotas": {
        "metadata": meta("q", "tenant"),
        "spec": {"scopes": ["BestEffort"]},
        "status": {"hard": {"cpu": "1"}, "used": {"cpu": "1"}},
    },
}


class Server:
    """One server for all examples, with another cluster in each."""

    cluster: Cluster
    reader: KubeCluster

    def __call__(self, asked: Asked) -> Reply:
        return self.cluster(asked)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server()
    with reading(server) as (_, server.reader):
        yield server


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_the_records_of_clean_objects_are_the_same_beside_anything(server: Server, data: st.DataObject) -> None:
    odd: dict[str, list[Json]] = {plural: [base] for plural, base in BASES.items()}
    for plural in data.draw(st.sets(st.sampled_from(sorted(BASES)), min_size=1)):
        odd[plural] = [data.draw(mutated(BASES[plural]))]
    server.cluster = with_odd(odd)
    snapshot = server.reader.snapshot()
    assert facts(snapshot) == CLEAN
    for template in range(len(snapshot.pod_templates)):
        assert snapshot.pod_templates[template] is not None
    for row in range(len(snapshot.pods)):
        snapshot.pod(row)
        snapshot.obstacle_of(row)


@settings(max_examples=300, deadline=None)
@given(odd=mutated(FULL_POD))
def test_a_watch_takes_any_pod(odd: Json) -> None:
    rows, pod = PodRows(), read_object(msgspec.json.encode(odd), Pod)
    clean = read_object(msgspec.json.encode(a_pod("web-0")), Pod)
    rows.add([clean, pod])
    rows.apply([(False, pod), (False, clean), (True, pod)])
    taken = rows.taken()
    assert "web-0" in taken.names


def test_what_is_nested_too_deeply_is_one_object_of_its_page() -> None:
    clean = msgspec.json.encode(a_pod("web-0"))
    deep = msgspec.json.encode(a_pod("odd")).replace(
        b'"spec"', b'"x":' + b"[" * 100_000 + b"]" * 100_000 + b',"spec"', 1
    )
    body = b'{"metadata":{"resourceVersion":"7"},"items":[' + clean + b"," + deep + b"," + clean + b"]}"
    page = read_page(body, json_decoder(Page[Pod]), Pod)
    assert page.metadata.resource_version == "7"
    assert [(each.metadata.name, bool(each.unread)) for each in page.items or ()] == [
        ("web-0", False),
        ("odd", True),
        ("web-0", False),
    ]


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"items":[{"metad', b'{"metadata":{}}', b"null", b'{"metadata":{},"items":[{}', b'"items"']
)
def test_a_page_that_is_none_is_refused(body: bytes) -> None:
    if body == b'{"metadata":{}}':
        assert not read_page(body, json_decoder(Page[Pod]), Pod).items
        return
    with pytest.raises(UnsafeDataError, match="can't be read"):
        read_page(body, json_decoder(Page[Pod]), Pod)


@settings(max_examples=40, deadline=None)
@given(ANYTHING)
def test_documents_are_split_as_a_decoder_splits_them(document: Any) -> None:
    raw = msgspec.json.encode({"a": document, "b": [document, 1]})
    members = quarantine._members(raw)
    assert msgspec.json.decode(members[b"a"]) == msgspec.json.decode(msgspec.json.encode(document))
    assert [msgspec.json.decode(each) for each in quarantine._elements(members[b"b"])] == msgspec.json.decode(
        members[b"b"]
    )
    assert quarantine._elements(b"[ ]") == []


def test_a_version_is_found_whatever_else_is_wrong() -> None:
    assert version_of(b'{"metadata": {"name": 5, "resourceVersion" : "9"}, "spec": [') == ""
    assert version_of(b'{"metadata": {"name": 5, "resourceVersion" : "9"}, "spec": []}') == "9"
    assert version_of(b'{"metadata": {"resourceVersion": 9}}') == ""
    assert version_of(b"[]") == ""


def test_a_good_page_is_decoded_once_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("decoded one by one")

    monkeypatch.setattr(quarantine, "read_object", fail)
    assert len(read(Cluster(page_size=100, **a_clean_cluster())).pods) == 3
    assert lists.read_page is read_page


def test_an_object_cannot_pass_for_one_that_could_not_be_read_elsewhere() -> None:
    space = read_object(b'{"metadata":{"name":"a"},"rebalancer.unread":"mine"}', Namespace)
    assert space.unread == "mine"  # its own loss: an obstacle concerns its own object alone


def test_a_single_pod_that_cannot_be_read_is_there() -> None:
    odd = a_pod("odd", spec={"containers": 5}, metadata={"annotations": {"a": 5}})

    def answer(asked: Asked) -> Reply:
        return Reply(body=odd)

    with reading(answer) as (_, reader):
        states = reader.pod_states([("shop", "odd")])
    assert states["shop", "odd"].uid == "uid-shop-odd"
    assert states["shop", "odd"].node == "n1"
