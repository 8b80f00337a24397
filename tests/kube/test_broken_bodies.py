"""An answer whose body breaks off is one error of ours in every call: of any status, to any verb."""

from collections.abc import Callable
from typing import Any

import pytest

from rebalancer.kube.actions.evict import KubeEvictor
from rebalancer.kube.actions.taints import KubeNodeTaints
from rebalancer.kube.client.client import ApiClient, Retries, StatusError
from rebalancer.kube.client.permissions import Permission, can_i
from rebalancer.kube.leader.lease import LeaseLock
from rebalancer.kube.metrics_server import probe_metrics_server
from rebalancer.kube.probe import list_nodes
from rebalancer.kube.snapshot.snapshot import NODES, KubeCluster
from rebalancer.kube.snapshot.version import server_version
from rebalancer.model.decisions.eviction import Outcome
from rebalancer.model.errors import RebalancerError
from tests.builders import an_eviction
from tests.kube.fakes.api import Reply, serving

LONG = b"x" * 1000


class _Clock:
    def now(self) -> float:
        return 1_790_000_000.0

    def sleep(self, seconds: float) -> None: ...


def a_lock(client: ApiClient) -> LeaseLock:
    return LeaseLock(client=client, namespace="n", name="l", identity="me", ledger_identity="db", pause=lambda _: None)


def a_watch(client: ApiClient) -> None:
    stream = client.stream(NODES.path(), query={"watch": 1})
    if stream.response.status != 200:
        raise client.error(stream.response, verb="watch", resource="nodes")
    list(stream.batches())


CALLS: dict[str, Callable[[ApiClient], Any]] = {
    "list": lambda client: KubeCluster(client=client, clock=_Clock()).snapshot(),
    "watch": a_watch,
    "nodes": list_nodes,
    "pod": lambda client: KubeCluster(client=client, clock=_Clock()).pod_states([("n", "p")]),
    "version": server_version,
    "access review": lambda client: can_i(client, Permission(verb="get", group="", resource="pods")),
    "metrics-server": probe_metrics_server,
    "lease": lambda client: a_lock(client).acquire(),
    "taints": lambda client: KubeNodeTaints(client=client, clock=_Clock()).granted(),
}


@pytest.mark.parametrize("status", [200, 403, 410, 500, 503])
@pytest.mark.parametrize("call", CALLS)
def test_a_body_that_breaks_off_is_one_error_of_ours(call: str, status: int) -> None:
    with serving(lambda _: Reply(status=status, body=LONG, cut=True)) as (_, client), pytest.raises(RebalancerError):
        CALLS[call](client)


def test_a_taint_whose_answer_breaks_off_is_a_taint_that_failed() -> None:
    with serving(lambda _: Reply(status=503, body=LONG, cut=True)) as (_, client):
        taints = KubeNodeTaints(client=client, clock=_Clock())
        assert not taints.put("node-1", value="hot")
        assert not taints.take("node-1")


def test_an_eviction_whose_answer_breaks_off_is_unknown() -> None:
    eviction = an_eviction()

    def script(asked: Any) -> Reply:
        if asked.method == "POST":
            return Reply(status=503, body=LONG, cut=True)
        metadata = {"name": eviction.pod, "namespace": eviction.namespace, "uid": eviction.uid}
        return Reply(body={"metadata": metadata, "spec": {"nodeName": eviction.node, "containers": []}, "status": {}})

    with serving(script) as (api, client):
        assert KubeEvictor(client=client).evict(eviction).outcome is Outcome.UNKNOWN
        assert [each.method for each in api.asked] == ["GET", "POST"]


def test_the_status_of_a_watch_counts_without_its_body() -> None:
    headers = {"Retry-After": "7"}
    with serving(lambda _: Reply(status=503, body=LONG, cut=True, headers=headers)) as (_, client):
        with pytest.raises(StatusError, match="watch nodes: HTTP 503") as caught:
            a_watch(client)
        assert (caught.value.status, caught.value.retry_after_seconds) == (503, 7.0)


def test_a_body_that_breaks_off_is_read_again() -> None:
    answers = iter([Reply(status=503, body=LONG, cut=True), Reply(body={"gitVersion": "v1"})])
    with serving(lambda _: next(answers)) as (_, client):
        assert client.get("/version", retries=Retries(attempts=2, base_seconds=0.01)).status == 200
