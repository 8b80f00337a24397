import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import urllib3

from rebalancer.kube.actions.taints import CONFLICT_RETRIES, KubeNodeTaints
from rebalancer.kube.client.auth import find_credentials
from rebalancer.kube.client.client import ApiClient
from rebalancer.kube.snapshot.snapshot import KubeCluster
from rebalancer.lab import Lab, node, scenario
from rebalancer.model.cluster.objects import Taint
from rebalancer.model.cluster.steering import CORDONS, DRAINING, HOT, MAINTENANCE, NO_ROOM, SOFT_TAINT
from rebalancer.model.errors import ConnectError
from tests.kube.builders import Json
from tests.kube.fakes.api import Asked, FakeClock, Reply, client_of, client_of_lab, serving, status
from tests.real.servers.api_server import api_server

NOW = 1_795_230_000.0
SINCE = "2026-11-21T03:00:00Z"
THEIRS: Json = {
    "key": "gpu",
    "value": "yes",
    "effect": "NoSchedule",
    "timeAdded": "2026-01-01T00:00:00Z",
    "new": {"x": 1},
}
LAST: Json = {"key": "last", "effect": "NoExecute"}


def ours(value: str = HOT, since: str = SINCE) -> Json:
    return {"key": SOFT_TAINT, "value": value, "effect": "PreferNoSchedule", "timeAdded": since}


class OneNode:
    """An API server with the node n1; `before_patch` happens between our GET and our PATCH."""

    def __init__(self, *taints: Json) -> None:
        self.taints: list[Json] | None = list(taints)
        self.cordoned = False
        self.version = 1
        self.gone = False
        self.before_patch: list[Any] = []
        self.refuse_get: Reply | None = None
        self.refuse_patch: Reply | None = None

    def set(self, *taints: Json, cordoned: bool | None = None) -> None:
        self.taints, self.version = list(taints), self.version + 1
        self.cordoned = self.cordoned if cordoned is None else cordoned

    def __call__(self, asked: Asked) -> Reply:
        if asked.path != "/api/v1/nodes/n1":
            return status(404, "no such path")
        if asked.method == "GET":
            return self.refuse_get or self._answer()
        if self.before_patch:
            self.before_patch.pop(0)()
        if self.refuse_patch:
            return self.refuse_patch
        assert asked.headers["Content-Type"] == "application/merge-patch+json"
        assert set(asked.body) == {"metadata", "spec"}
        assert {"taints"} <= set(asked.body["spec"]) <= {"taints", "unschedulable"}
        if not self.gone and asked.body["metadata"] != {"resourceVersion": str(self.version)}:
            return status(409, "the object has been modified")
        if not self.gone:
            patched = asked.body["spec"]
            cordoned = bool(patched["unschedulable"]) if "unschedulable" in patched else None
            self.set(*patched["taints"], cordoned=cordoned)
        return self._answer()

    def _answer(self) -> Reply:
        if self.gone:
            return status(404, 'nodes "n1" not found')
        spec: Json = {"podCIDR": "10.0.0.0/24"} | ({"taints": self.taints} if self.taints else {})
        spec |= {"unschedulable": True} if self.cordoned else {}
        return Reply(body={"metadata": {"name": "n1", "resourceVersion": str(self.version)}, "spec": spec})


def put(api: OneNode, value: str = HOT, waits: list[float] | None = None) -> tuple[bool, int]:
    """(answer, patches)"""
    return written(api, lambda taints: taints.put("n1", value=value), waits)


def take(api: OneNode, waits: list[float] | None = None) -> tuple[bool, int]:
    """(answer, patches)"""
    return written(api, lambda taints: taints.take("n1"), waits)


def written(api: OneNode, write: Callable[[KubeNodeTaints], bool], waits: list[float] | None) -> tuple[bool, int]:
    with serving(api) as (fake, client):
        pause = (waits if waits is not None else []).append
        return write(KubeNodeTaints(client=client, clock=FakeClock(NOW), pause=pause)), fake.count("PATCH")


def test_our_taint_is_put_behind_the_others_with_its_time() -> None:
    api = OneNode(THEIRS, LAST)
    assert put(api) == (True, 1)
    assert api.taints == [THEIRS, LAST, ours()]


def test_a_node_without_taints_gets_one_and_loses_it() -> None:
    api = OneNode()
    assert put(api) == (True, 1)
    assert api.taints == [ours()]
    assert take(api) == (True, 1)
    assert api.taints == []


def test_a_new_value_takes_the_old_ones_place_and_gets_a_new_time() -> None:
    api = OneNode(THEIRS, ours(since="2026-01-01T00:00:00Z"), LAST)
    assert put(api, NO_ROOM) == (True, 1)
    assert api.taints == [THEIRS, ours(NO_ROOM), LAST]


def test_nothing_is_written_when_nothing_changes() -> None:
    old = ours(since="2026-01-01T00:00:00Z")
    assert put(OneNode(THEIRS, old)) == (True, 0)
    assert take(OneNode(THEIRS)) == (True, 0)


def test_taking_leaves_all_others_in_their_order() -> None:
    api = OneNode(LAST, ours(), THEIRS)
    assert take(api) == (True, 1)
    assert api.taints == [LAST, THEIRS]


def test_our_key_with_another_effect_is_not_ours() -> None:
    foreign = ours() | {"effect": "NoSchedule"}
    api = OneNode(foreign)
    assert take(api) == (True, 0)
    assert put(api, NO_ROOM) == (True, 1)
    assert api.taints == [foreign, ours(NO_ROOM)]


@pytest.mark.parametrize("wanted", [put, take])
def test_a_taint_that_comes_between_our_read_and_our_write_survives(wanted: Any) -> None:
    api = OneNode(ours("old"), THEIRS)
    api.before_patch = [lambda: api.set(ours("old"), THEIRS, LAST)]
    waits: list[float] = []
    assert wanted(api, waits=waits) == (True, 2)
    assert api.taints == ([ours()] if wanted is put else []) + [THEIRS, LAST]
    assert len(waits) == 1


def test_a_taint_that_was_removed_in_between_stays_removed() -> None:
    api = OneNode(THEIRS, LAST)
    api.before_patch = [lambda: api.set(LAST)]
    assert put(api) == (True, 2)
    assert api.taints == [LAST, ours()]


def test_conflicts_without_end_are_given_up_after_growing_waits() -> None:
    api = OneNode(THEIRS)
    api.before_patch = [lambda: api.set(THEIRS)] * 100
    waits: list[float] = []
    assert put(api, waits=waits) == (False, 1 + CONFLICT_RETRIES)
    assert len(waits) == CONFLICT_RETRIES == 5
    assert all(0.025 * 2**number <= wait <= 0.075 * 2**number for number, wait in enumerate(waits))
    assert api.taints == [THEIRS]


def test_a_conflict_may_end_with_nothing_left_to_do() -> None:
    api = OneNode(ours(), THEIRS)
    api.before_patch = [lambda: api.set(THEIRS)]
    assert take(api) == (True, 1)
    assert api.taints == [THEIRS]


def test_a_node_that_is_gone_can_not_be_tainted_and_needs_no_clearing() -> None:
    api = OneNode(ours())
    api.gone = True
    assert put(api) == (False, 0)
    assert take(api) == (True, 0)


@pytest.mark.parametrize(("wanted", "answer"), [(put, False), (take, True)])
def test_a_node_that_goes_between_our_read_and_our_write(wanted: Any, answer: bool) -> None:
    api = OneNode(ours("old"))
    api.before_patch = [lambda: setattr(api, "gone", True)]
    assert wanted(api) == (answer, 1)


@pytest.mark.parametrize("wanted", [put, take])
@pytest.mark.parametrize("code", [403, 422, 429, 500])
def test_a_refused_patch_is_false_and_not_repeated(wanted: Any, code: int) -> None:
    api = OneNode(ours("old"))
    api.refuse_patch = status(code, "no")
    assert wanted(api) == (False, 1)


@pytest.mark.parametrize("wanted", [put, take])
@pytest.mark.parametrize("reply", [status(403, "no"), status(401, "who?"), Reply(drop=True), Reply(body=b"<html>")])
def test_a_node_that_can_not_be_read_is_false(wanted: Any, reply: Reply) -> None:
    api = OneNode(ours("old"))
    api.refuse_get = reply
    assert wanted(api) == (False, 0)


@pytest.mark.parametrize("wanted", [put, take])
def test_a_lost_answer_is_false(wanted: Any) -> None:
    api = OneNode(ours("old"))
    api.refuse_patch = Reply(drop=True)
    assert wanted(api) == (False, 1)


# --- cordons


FOLLOWS: Json = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
"""The node controller's: it comes with a cordon, and goes with it."""


@pytest.mark.parametrize("value", CORDONS)
def test_a_cordon_of_ours_comes_and_goes_with_its_mark_in_one_patch(value: str) -> None:
    api = OneNode(THEIRS)
    assert put(api, value) == (True, 1)
    assert (api.taints, api.cordoned) == ([THEIRS, ours(value)], True)
    api.set(THEIRS, ours(value), FOLLOWS)
    assert take(api) == (True, 1)
    # what follows the cordon isn't ours to remove
    assert (api.taints, api.cordoned) == ([THEIRS, FOLLOWS], False)


def test_a_cordon_changes_its_reason_and_becomes_a_soft_taint_and_back() -> None:
    api = OneNode(ours(DRAINING))
    api.cordoned = True
    assert put(api, MAINTENANCE) == (True, 1)
    assert (api.taints, api.cordoned) == ([ours(MAINTENANCE)], True)
    assert put(api, MAINTENANCE) == (True, 0)
    assert put(api, HOT) == (True, 1)
    assert (api.taints, api.cordoned) == ([ours(HOT)], False)
    assert put(api, DRAINING) == (True, 1)
    assert (api.taints, api.cordoned) == ([ours(DRAINING)], True)


@pytest.mark.parametrize("there", [(), (ours(HOT),)], ids=["bare", "softly tainted"])
def test_a_cordon_of_others_is_never_marked_nor_lifted(there: tuple[Json, ...]) -> None:
    api = OneNode(*there)
    api.cordoned = True
    assert put(api, DRAINING) == (False, 0)
    assert put(api, NO_ROOM) == (True, 1)
    assert take(api) == (True, 1)
    assert (api.taints, api.cordoned) == ([], True)


def test_who_cordons_between_our_read_and_our_write_keeps_their_cordon() -> None:
    api = OneNode(THEIRS)
    api.before_patch = [lambda: api.set(THEIRS, cordoned=True)]
    assert put(api, DRAINING) == (False, 1)
    assert (api.taints, api.cordoned) == ([THEIRS], True)


def test_who_uncordons_between_our_read_and_our_write_is_not_undone() -> None:
    api = OneNode(THEIRS, ours(DRAINING))
    api.cordoned = True
    api.before_patch = [lambda: api.set(THEIRS, ours(DRAINING), LAST, cordoned=False)]
    assert take(api) == (True, 2)
    assert (api.taints, api.cordoned) == ([THEIRS, LAST], False)


def test_a_mark_without_its_cordon_is_cordoned_again_or_taken() -> None:
    """The node was uncordoned by hand."""
    api = OneNode(ours(MAINTENANCE))
    assert put(api, MAINTENANCE) == (True, 1)
    assert (api.taints, api.cordoned) == ([ours(MAINTENANCE)], True)
    api.set(ours(MAINTENANCE), cordoned=False)
    assert take(api) == (True, 1)
    assert (api.taints, api.cordoned) == ([], False)


def test_a_server_that_is_away_is_false_for_both() -> None:
    client = client_of("http://127.0.0.1:1", attempts=1)
    taints = KubeNodeTaints(client=client, clock=FakeClock(NOW), pause=lambda _: None)
    assert taints.put("n1", value=HOT) is False
    assert taints.take("n1") is False
    with pytest.raises(ConnectError):
        taints.granted()


def granted(script: Any) -> bool:
    with serving(script) as (_, client):
        return KubeNodeTaints(client=client, clock=FakeClock(NOW)).granted()


@pytest.mark.parametrize(
    ("allowed", "expected"), [({"get", "patch"}, True), ({"get"}, False), ({"patch"}, False), (set(), False)]
)
def test_granted_needs_both_verbs(allowed: set[str], expected: bool) -> None:
    def script(asked: Asked) -> Reply:
        attributes = asked.body["spec"]["resourceAttributes"]
        assert attributes["resource"] == "nodes"
        return Reply(status=201, body={"status": {"allowed": attributes["verb"] in allowed}})

    assert granted(script) is expected


def test_a_server_that_can_not_tell_grants_nothing() -> None:
    assert granted(lambda _: status(404)) is False


@pytest.mark.parametrize("reply", [status(500, "no"), Reply(status=201, body=b"<html>"), Reply(drop=True)])
def test_a_right_that_can_not_be_asked_for_is_an_error(reply: Reply) -> None:
    with pytest.raises(ConnectError):
        granted(lambda _: reply)


# --- against servers that were not written for it


@pytest.fixture
def lab() -> Iterator[Lab]:
    tainted = node("b", taints=[{"key": "dedicated", "value": "x", "effect": "NoSchedule"}])
    with Lab.start(scenario(nodes=[node("a"), tainted], workloads=[], history_days=0.01), speed=20) as lab:
        yield lab


@pytest.fixture
def client(lab: Lab, tmp_path: Path) -> Iterator[ApiClient]:
    with client_of_lab(lab, tmp_path) as client:
        yield client


def taints_by_node(client: ApiClient, lab: Lab) -> dict[str, tuple[Taint, ...]]:
    nodes = KubeCluster(client=client, clock=lab.clock).snapshot().nodes
    return dict(zip(nodes.names, nodes.taints, strict=True))


def test_the_lab_shows_what_was_put_and_taken(lab: Lab, client: ApiClient) -> None:
    taints = KubeNodeTaints(client=client, clock=lab.clock)
    assert taints.granted()
    assert taints.put("b", value=HOT)
    theirs, mine = taints_by_node(client, lab)["b"]
    assert theirs == Taint(key="dedicated", value="x", effect="NoSchedule")
    assert (mine.key, mine.value, mine.effect) == (SOFT_TAINT, HOT, "PreferNoSchedule")
    assert mine.time_added
    assert not taints.put("gone", value=HOT)
    assert taints.take("gone")
    assert taints.take("b")
    assert taints_by_node(client, lab) == {"a": (), "b": (theirs,)}


def test_the_lab_cordons_and_uncordons_with_our_mark(lab: Lab, client: ApiClient) -> None:
    taints = KubeNodeTaints(client=client, clock=lab.clock)
    assert taints.put("b", value=DRAINING)
    nodes = KubeCluster(client=client, clock=lab.clock).snapshot().nodes
    assert nodes.unschedulable.tolist() == [False, True]
    assert [(each.key, each.value) for each in nodes.taints[1]] == [
        ("dedicated", "x"),
        (SOFT_TAINT, DRAINING),
        ("node.kubernetes.io/unschedulable", ""),
    ]
    assert taints.take("b")
    nodes = KubeCluster(client=client, clock=lab.clock).snapshot().nodes
    assert not nodes.unschedulable.any()
    assert [each.key for each in nodes.taints[1]] == ["dedicated"]


def test_many_writers_on_one_node_of_the_lab_lose_nothing(lab: Lab, client: ApiClient) -> None:
    KubeNodeTaints(client=client, clock=lab.clock).put("b", value="first")
    barrier = threading.Barrier(3)
    answers: dict[str, bool] = {}

    def write(value: str) -> None:
        barrier.wait()
        answers[value] = KubeNodeTaints(client=client, clock=lab.clock).put("b", value=value)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(write, ("x", "y", "z")))
    assert answers == {"x": True, "y": True, "z": True}
    assert [taint.key for taint in taints_by_node(client, lab)["b"]] == ["dedicated", SOFT_TAINT]


def test_rights_that_the_lab_takes_away_are_seen(lab: Lab, client: ApiClient) -> None:
    taints = KubeNodeTaints(client=client, clock=lab.clock)
    lab.faults.set(denied=(("patch", "nodes"),))
    assert not taints.granted()
    assert not taints.put("a", value=HOT)


class Interrupted(ApiClient):
    """A client whose first write comes too late: another came before."""

    before_send: Callable[[], object] | None = None

    def send(self, *args: Any, **options: Any) -> urllib3.BaseHTTPResponse:
        before, self.before_send = self.before_send, None
        if before is not None:
            before()
        return super().send(*args, **options)


@pytest.mark.real
def test_a_real_api_server_takes_the_taint_and_keeps_anothers(tmp_path: Path) -> None:
    theirs = {"key": "theirs", "value": "v", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}
    with api_server() as server:

        def now() -> list[Json]:
            return list(server.call("GET", "/api/v1/nodes/n1")["spec"].get("taints", []))

        def patch(taints: list[Json]) -> None:
            server.call("PATCH", "/api/v1/nodes/n1", {"spec": {"taints": taints}})

        server.call("POST", "/api/v1/nodes", {"metadata": {"name": "n1"}, "spec": {"taints": [LAST]}})
        credentials = find_credentials(str(server.kubeconfig(tmp_path / "kubeconfig")), None)
        client = Interrupted(credentials=credentials, user_agent="rebalancer/test")
        waits: list[float] = []
        taints = KubeNodeTaints(client=client, clock=FakeClock(NOW), pause=waits.append)
        try:
            assert taints.granted()
            client.before_send = lambda: patch([*now(), theirs])
            assert taints.put("n1", value=HOT)
            assert len(waits) == 1
            assert now() == [LAST, theirs, ours()]
            client.before_send = lambda: patch([theirs, ours()])
            assert taints.take("n1")
            assert len(waits) == 2
            assert now() == [theirs]
            client.before_send = lambda: patch([theirs, LAST])
            assert taints.put("n1", value=DRAINING)
            spec = server.call("GET", "/api/v1/nodes/n1")["spec"]
            assert (spec["taints"], spec["unschedulable"]) == ([theirs, LAST, ours(DRAINING)], True)
            assert taints.take("n1")
            spec = server.call("GET", "/api/v1/nodes/n1")["spec"]
            assert (spec["taints"], spec.get("unschedulable")) == ([theirs, LAST], None)
            server.call("PATCH", "/api/v1/nodes/n1", {"spec": {"unschedulable": True}})
            assert not taints.put("n1", value=DRAINING)
            assert now() == [theirs, LAST]
        finally:
            client.close()
