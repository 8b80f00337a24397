import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rebalancer.kube.snapshot.snapshot import KubeCluster
from rebalancer.kube.watch import cache
from rebalancer.kube.watch.cache import WatchedCluster
from rebalancer.kube.watch.stores import Records
from rebalancer.model.errors import UnsafeDataError
from rebalancer.model.parts import FailedParts
from tests.kube.builders import Json, a_node, a_pod, a_workload, meta, owned_by
from tests.kube.fakes.api import Asked, FakeApi, FakeClock, Reply, client_of, status
from tests.kube.fakes.watches import WatchedServer, line, until
from tests.kube.readers import contents

KINDS = {
    "nodes", "pods", "namespaces", "services", "priorityclasses", "poddisruptionbudgets",
    "replicasets", "deployments", "statefulsets", "daemonsets", "jobs", "resourcequotas", "horizontalpodautoscalers",
}  # fmt: skip


class Watched:
    """A watched cluster of a scripted server, on a clock that stands still."""

    def __init__(self, api: FakeApi, server: WatchedServer) -> None:
        self.api, self.server = api, server
        self.now = 500.0
        self.clock = FakeClock()
        self.client = client_of(api.url, attempts=1)
        self.waits = threading.Semaphore(0)
        self.parts = FailedParts(now=lambda: self.now, monotonic=lambda: self.now)
        self.cluster = WatchedCluster(
            client=self.client,
            clock=self.clock,
            parts=self.parts,
            monotonic=lambda: self.now,
            pause=lambda _: self.waits.acquire(),
        )

    def live(self) -> KubeCluster:
        return KubeCluster(client=self.client, clock=self.clock)

    def pods(self) -> list[str]:
        return self.cluster.snapshot().pods.names

    def agrees(self) -> bool:
        """Whether the memory has what a live snapshot has."""
        return contents(self.cluster.snapshot()) == contents(self.live().snapshot())

    def send(self, plural: str, *lines: bytes) -> None:
        """Events, one a line; back when they are counted."""
        before = self.cluster.stats()[plural].events
        until(lambda: self.server.opened(plural) > 0)
        self.server.send(plural, *lines)
        until(lambda: self.cluster.stats()[plural].events == before + len(lines))

    def fails(self, plural: str, times: int = 1) -> None:
        """Wait until a kind has failed so often."""
        until(lambda: plural in self.cluster.stats() and self.cluster.stats()[plural].errors == times)


@contextmanager
def watching(server: WatchedServer, *, synced: bool = True) -> Iterator[Watched]:
    """In sync, unless the test waits for that itself."""
    with FakeApi(server) as api:
        watched = Watched(api, server)
        watched.cluster.start()
        try:
            if synced:
                until(watched.cluster.synced)
            yield watched
        finally:
            server.over.set()
            watched.waits.release(1000)
            watched.cluster.stop()
            watched.client.close()


def a_shop(**more: list[Json]) -> WatchedServer:
    replicas = [a_pod(f"web-{n}", metadata=owned_by("ReplicaSet", "web-1")) for n in range(3)]
    images = [{"names": ["app:1"], "sizeBytes": 5}]
    first, second = a_node("n1"), a_node("n2")
    first["status"]["images"] = images
    lists = {
        "nodes": [first, second],
        "pods": [*replicas, a_pod("bare", node="n2"), a_pod("waits", node="", status={"nominatedNodeName": "n2"})],
        "replicasets": [a_workload("web-1", **owned_by("Deployment", "web"))],
        "deployments": [a_workload("web"), a_workload("empty")],
        "statefulsets": [a_workload("unnamed")],
        "poddisruptionbudgets": [{"metadata": meta("web", "shop"), "spec": {}, "status": {"disruptionsAllowed": 1}}],
        "priorityclasses": [{"metadata": meta("high"), "value": 7}],
    }
    return WatchedServer(**(lists | more))


def test_the_memory_has_what_a_live_snapshot_has() -> None:
    with watching(a_shop()) as watched:
        assert watched.agrees()
        assert set(watched.cluster.ages()) == KINDS
        assert watched.cluster.dead() == []
        assert watched.cluster.stats()["pods"].events == 0


def test_a_snapshot_stays_as_it_was_when_the_cluster_changes() -> None:
    with watching(a_shop()) as watched:
        before = watched.cluster.snapshot()
        then = contents(before)
        new = a_pod("another", node="n2", namespace="new", metadata=owned_by("ReplicaSet", "web-2"))
        moved = a_pod("bare", node="n1", cpu="3", status={"phase": "Failed"})
        until(lambda: watched.server.opened("pods") == 1)
        watched.server.send(
            "pods", line("ADDED", new, 8), line("MODIFIED", moved, 9), line("DELETED", a_pod("web-0"), 10)
        )
        until(lambda: watched.cluster.stats()["pods"].events == 3)
        assert contents(before) == then
        after = watched.cluster.snapshot()
        assert after.pods.names == ["another", "bare", "waits", "web-1", "web-2"]
        assert after.namespaces == ("shop", "new")
        assert after.pods.cpu_request_millicores.tolist() == [250, 3000, 250, 250, 250]
        assert {owner.name for owner in after.owners} == {"web-1", "web", "web-2", "empty"}


def test_pods_are_read_anew_once_the_server_has_been_upgraded() -> None:
    """A resize counts otherwise in the new version."""
    resized = a_pod("a", cpu="500m", metadata={"generation": 2})
    resized["spec"]["containers"].append({"name": "b", "resources": {"requests": {"cpu": "2"}}})
    resized["status"]["containerStatuses"] = [
        {"name": "main", "resources": {"requests": {"cpu": "2"}}, "allocatedResources": {"cpu": "2"}},
        {"name": "b", "resources": {"requests": {"cpu": "500m"}}, "allocatedResources": {"cpu": "500m"}},
    ]
    server, upgraded = WatchedServer(pods=[resized]), threading.Event()

    def until_upgraded() -> Iterator[bytes]:
        upgraded.wait(20.0)
        yield line("BOOKMARK", {}, 8)

    server.scripts["pods"].append(Reply(stream=until_upgraded()))
    with watching(server) as watched:
        before = watched.cluster.snapshot()
        assert (before.minor, before.pods.cpu_request_millicores.tolist()) == (36, [4_000.0])
        server.cluster.version = "v1.37.0"
        upgraded.set()
        until(lambda: watched.cluster.stats()["pods"].relists == 1)
        after = watched.cluster.snapshot()
        assert (after.minor, after.pods.cpu_request_millicores.tolist()) == (37, [2_500.0])
        assert watched.agrees()


def test_a_row_that_was_let_go_serves_another_pod_whole() -> None:
    with watching(WatchedServer(pods=[a_pod("old", metadata=owned_by("Job", "j", api="batch/v1"))])) as watched:
        fresh = a_pod("new", node="", status={"phase": "Pending", "conditions": [], "startTime": None})
        watched.send("pods", line("DELETED", a_pod("old"), 8), line("ADDED", fresh, 9))
        watched.server.cluster.lists["pods"] = [fresh]
        assert watched.agrees()


def test_before_everything_is_read_there_is_no_snapshot() -> None:
    server, go_on = a_shop(), threading.Event()

    def budgets_wait(asked: Asked) -> None:
        if asked.path.endswith("poddisruptionbudgets"):
            go_on.wait(10)

    server.before_list = budgets_wait
    with watching(server, synced=False) as watched:
        until(lambda: sum(age < 1e9 for age in watched.cluster.ages().values()) == len(KINDS) - 1)
        assert not watched.cluster.synced()
        with pytest.raises(
            UnsafeDataError, match="poddisruptionbudgets have not been read yet: the list is still being read"
        ):
            watched.cluster.snapshot()
        go_on.set()
        until(watched.cluster.synced)
        assert len(watched.pods()) == 5


def test_what_had_no_news_for_too_long_is_not_decided_on() -> None:
    with watching(a_shop()) as watched:
        until(lambda: all(watched.server.opened(kind) for kind in KINDS))
        watched.now += 100
        assert watched.cluster.snapshot().taken == watched.clock.now()
        for kind in KINDS - {"jobs"}:
            watched.server.send(kind, line("BOOKMARK", {}, 20))
        until(lambda: sorted(watched.cluster.ages().values())[-2] == 0)
        watched.now += 20.5
        with pytest.raises(UnsafeDataError, match=r"of jobs is 120 s old, at most 120 s .*no event and no bookmark"):
            watched.cluster.snapshot()
        watched.server.send("jobs", line("BOOKMARK", {}, 21))
        until(lambda: watched.cluster.ages()["jobs"] == 0)
        assert watched.cluster.snapshot().taken == watched.clock.now()


def test_the_reason_why_nothing_comes_is_in_the_error() -> None:
    server = a_shop()
    server.scripts["nodes"].append(status(403, "forbidden"))
    with watching(server) as watched:
        watched.fails("nodes")
        watched.now += 500
        with pytest.raises(UnsafeDataError, match="not allowed to watch nodes") as caught:
            watched.cluster.snapshot()
        assert "\n" not in str(caught.value)


CLAIM = {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]}
VOLUME = {
    "metadata": meta("pv"),
    "spec": {"local": {}, "claimRef": {"namespace": "shop", "name": "data"}, "accessModes": ["ReadWriteOncePod"]},
    "status": {"phase": "Bound"},
}


def test_volumes_are_followed_from_when_a_pod_uses_a_claim() -> None:
    with watching(a_shop(persistentvolumes=[VOLUME])) as watched:
        assert watched.server.lists(watched.api.asked, "persistentvolumes") == 0
        pod = a_pod("db", spec=CLAIM)
        watched.server.cluster.lists["pods"].append(pod)
        watched.send("pods", line("ADDED", pod, 8))
        until(watched.cluster.synced)
        assert watched.cluster.snapshot().local_claims == {("shop", "data")}
        assert watched.agrees()
        watched.send("persistentvolumes", line("DELETED", VOLUME, 9))
        assert watched.cluster.snapshot().local_claims == frozenset()


def test_volumes_that_we_may_not_read_leave_claims_unknown_and_stop_nothing() -> None:
    server = a_shop(pods=[a_pod("db", spec=CLAIM)])
    server.cluster.refused["persistentvolumes"] = 403
    with watching(server) as watched:
        watched.fails("persistentvolumes")
        until(watched.cluster.synced)
        assert not watched.cluster.snapshot().claims_known
        watched.now += 100
        assert "persistentvolumes" not in watched.cluster.ages()


def test_limits_and_quotas_follow_their_watches() -> None:
    csi = {"metadata": meta("n1"), "spec": {"drivers": [{"name": "disk", "allocatable": {"count": 5}}]}}
    quota = {"metadata": meta("team", "shop"), "status": {"hard": {"pods": "5"}}}
    with watching(
        a_shop(pods=[a_pod("db", spec=CLAIM)], csinodes=[csi], resourcequotas=[quota]), synced=False
    ) as watched:
        until(lambda: watched.cluster.synced() and "csinodes" in watched.cluster.ages())
        until(watched.cluster.synced)
        before = watched.cluster.snapshot()
        assert before.volume_limits is not None
        assert before.volume_limits["disk"].tolist()[0] == 5.0
        assert [each.free for each in before.quotas] == [{"pods": 5.0}]
        watched.send("resourcequotas", line("DELETED", quota, 9))
        assert watched.cluster.snapshot().quotas == ()


def test_limits_and_quotas_that_we_may_not_read_stop_nothing() -> None:
    server = a_shop(pods=[a_pod("db", spec=CLAIM)])
    server.cluster.refused |= {"csinodes": 403, "resourcequotas": 403}
    with watching(server) as watched:
        watched.fails("csinodes")
        until(watched.cluster.synced)
        snapshot = watched.cluster.snapshot()
        assert (snapshot.volume_limits, snapshot.quotas) == (None, ())


@pytest.mark.parametrize("code", [403, 404])
def test_autoscalers_follow_their_watch_and_stop_nothing_where_they_can_not_be_read(code: int) -> None:
    scaler = {"metadata": meta("hpa", "shop"), "status": {"currentReplicas": 2, "desiredReplicas": 3}}
    with watching(a_shop(horizontalpodautoscalers=[scaler])) as watched:
        assert [each.is_scaling for each in watched.cluster.snapshot().autoscalers] == [True]
        watched.send("horizontalpodautoscalers", line("DELETED", scaler, 9))
        assert watched.cluster.snapshot().autoscalers == ()
    server = a_shop(horizontalpodautoscalers=[scaler])
    server.cluster.refused["horizontalpodautoscalers"] = code
    with watching(server, synced=False) as watched:
        watched.fails("horizontalpodautoscalers")
        until(watched.cluster.synced)
        assert watched.cluster.snapshot().autoscalers == ()


def test_services_and_drivers_follow_their_watches_and_stop_nothing_where_they_can_not_be_read() -> None:
    service = {"metadata": meta("web", "shop"), "spec": {"selector": {"app": "web"}}}
    driver = {"metadata": meta("disk"), "spec": {"preventPodSchedulingIfMissing": True}}
    lists = {"pods": [a_pod("db", spec=CLAIM)], "services": [service], "csidrivers": [driver]}
    with watching(a_shop(**lists), synced=False) as watched:
        until(lambda: watched.cluster.synced() and "csidrivers" in watched.cluster.ages())
        until(watched.cluster.synced)
        snapshot = watched.cluster.snapshot()
        assert snapshot.services == {"shop": ({"app": "web"},)}
        assert list(snapshot.drivers_at or ()) == ["disk"]
        watched.send("services", line("DELETED", service, 9))
        assert watched.cluster.snapshot().services == {}
    server = a_shop(**lists)
    server.cluster.refused |= {"csidrivers": 403, "services": 403}
    with watching(server, synced=False) as watched:
        watched.fails("services")
        until(lambda: watched.cluster.synced() or "csidrivers" in watched.cluster.stats())
        watched.fails("csidrivers")
        until(watched.cluster.synced)
        snapshot = watched.cluster.snapshot()
        assert (snapshot.services, snapshot.drivers_at) == (None, None)


def test_replicasets_are_read_whole_once_one_stands_alone() -> None:
    alone = a_pod("alone-1", metadata=owned_by("ReplicaSet", "alone"))
    server = a_shop()
    server.cluster.lists["replicasets"].append(a_workload("alone", spec={"replicas": 9}))
    with watching(server) as watched:
        accepts = [each.headers["Accept"] for each in watched.api.asked if each.path.endswith("/replicasets")]
        assert all("PartialObjectMetadata" in each for each in accepts)
        server.cluster.lists["pods"].append(alone)
        watched.send("pods", line("ADDED", alone, 8))
        until(watched.cluster.synced)
        assert watched.agrees()
        assert 9 in {owner.desired for owner in watched.cluster.snapshot().owners}


def test_single_pods_are_asked_for_and_not_remembered() -> None:
    with watching(a_shop()) as watched:
        watched.server.cluster.lists["pods"] = [a_pod("bare", metadata={"deletionTimestamp": "2026-11-21T03:00:00Z"})]
        states = watched.cluster.pod_states([("shop", "bare"), ("shop", "web-0")])
        assert list(states) == [("shop", "bare")]
        assert states["shop", "bare"].terminating


def test_a_figure_that_is_no_quantity_is_one_line() -> None:
    server = a_shop()
    server.cluster.lists["nodes"][0]["status"]["capacity"]["cpu"] = "many"
    with watching(server) as watched:
        snapshot = watched.cluster.snapshot()
        (obstacle,) = snapshot.obstacles
        assert str(obstacle) == "Node n1: capacity of cpu: not a Kubernetes quantity: 'many'"
        assert watched.cluster.obstacles() == snapshot.obstacles
        assert dict(zip(snapshot.nodes.names, snapshot.nodes.ready.tolist(), strict=True))["n1"] is False


def test_a_kind_whose_list_fails_is_tried_again() -> None:
    server = a_shop()
    failing = iter([Reply(status=500), Reply(status=500)])
    server.before_list = lambda asked: next(failing, None) if asked.path.endswith("/jobs") else None
    with watching(server, synced=False) as watched:
        watched.waits.release(2)
        until(watched.cluster.synced)
        assert watched.cluster.stats()["jobs"].errors == 2


def test_an_unexpected_error_in_the_snapshot_is_unsafe_data_and_a_failed_part(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(**_: object) -> None:
        raise OverflowError("a mistake of ours")

    with watching(a_shop()) as watched:
        usual = cache.put_together
        monkeypatch.setattr(cache, "put_together", broken)
        with pytest.raises(UnsafeDataError, match="an unexpected error: OverflowError: a mistake of ours"):
            watched.cluster.snapshot()
        assert [each.name for each in watched.parts.current()] == ["snapshot"]
        monkeypatch.setattr(cache, "put_together", usual)
        assert watched.agrees()
        assert watched.parts.current() == []


def test_a_broken_watch_of_budgets_leaves_no_snapshot_until_it_is_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    server = a_shop()
    with watching(server) as watched:
        until(lambda: server.opened("poddisruptionbudgets") == 1)
        usual = Records.apply

        def broken(self: object, changes: object) -> None:
            raise KeyError("a mistake of ours")

        monkeypatch.setattr(Records, "apply", broken)
        server.send("poddisruptionbudgets", line("BOOKMARK", {"metadata": {}}, 8))
        watched.fails("poddisruptionbudgets")
        with pytest.raises(UnsafeDataError, match=r"the cache of poddisruptionbudgets is not current: .*KeyError"):
            watched.cluster.snapshot()
        assert watched.cluster.dead() == []
        assert [each.name for each in watched.parts.current()] == ["watch poddisruptionbudgets"]
        monkeypatch.setattr(Records, "apply", usual)
        watched.waits.release()
        until(lambda: not watched.cluster.problem())
        assert watched.agrees()
