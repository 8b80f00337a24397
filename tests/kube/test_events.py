import threading

import pytest

from rebalancer.kube.actions.events import BURST, KubeEvents
from rebalancer.kube.client.client import ApiClient
from rebalancer.model.cluster.owners import Owner
from rebalancer.model.decisions.ports import EventSink
from tests.kube.fakes.api import Asked, FakeClock, Reply, serving, status

WEB = Owner(kind="Deployment", namespace="shop", name="web", uid="u-1")
PATH = "/apis/events.k8s.io/v1/namespaces"


class Hands:
    def __init__(self) -> None:
        self.now = 100.0


def events_of(client: ApiClient, hands: Hands) -> KubeEvents:
    return KubeEvents(client=client, clock=FakeClock(), instance="pod-7", monotonic=lambda: hands.now)


def made(_: Asked) -> Reply:
    return Reply(status=201)


def test_an_event_about_a_service_stands_beside_its_owner() -> None:
    with serving(made) as (api, client):
        sink: EventSink = events_of(client, Hands())
        sink.about_service(WEB, reason="Evicted", note="web-1 left n1:\n n1 was at 91%")
    asked = api.asked[0]
    assert (asked.method, asked.path) == ("POST", f"{PATH}/shop/events")
    body = asked.body
    assert body["regarding"] == {
        "apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": "web", "uid": "u-1",
    }  # fmt: skip
    assert (body["type"], body["reason"], body["action"]) == ("Normal", "Evicted", "Rebalance")
    assert body["note"] == "web-1 left n1: n1 was at 91%"
    assert body["eventTime"] == "2027-01-15T08:00:00.000000Z"
    assert (body["reportingController"], body["reportingInstance"]) == ("rebalancer", "pod-7")
    assert body["metadata"]["name"].startswith("web.")


def test_an_event_about_a_node_stands_in_default_with_its_name_as_uid() -> None:
    with serving(made) as (api, client):
        events_of(client, Hands()).about_node("n1", reason="NotEvicted", note="no room", warning=True)
    assert api.asked[0].path == f"{PATH}/default/events"
    assert api.asked[0].body["regarding"] == {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n1"}
    assert api.asked[0].body["type"] == "Warning"


def test_the_version_of_an_unknown_kind_is_left_open() -> None:
    with serving(made) as (api, client):
        for kind in ("Job.batch.volcano.sh", "Rollout", "ReplicationController"):
            owner = Owner(kind=kind, namespace="shop", name="x", uid="u")
            events_of(client, Hands()).about_service(owner, reason="Evicted", note="")
    regarding = [asked.body["regarding"] for asked in api.asked]
    assert [each["kind"] for each in regarding] == ["Job", "Rollout", "ReplicationController"]
    assert [each.get("apiVersion") for each in regarding] == [None, None, "v1"]


def test_a_long_note_is_cut_at_a_kilobyte_of_whole_characters() -> None:
    with serving(made) as (api, client):
        events_of(client, Hands()).about_service(WEB, reason="Evicted", note="ü" * 2000)
    note = api.asked[0].body["note"]
    assert note.endswith("ü...")
    assert 1020 <= len(note.encode()) <= 1024


def test_too_many_at_once_are_left_out_and_counted() -> None:
    hands = Hands()
    with serving(made) as (api, client):
        sink = events_of(client, hands)
        for _ in range(40):
            sink.about_node("n1", reason="Evicted", note="")
        assert len(api.asked) == BURST
        assert sink.stats.left_out == 15
        hands.now += 1.0
        for _ in range(40):
            sink.about_node("n1", reason="Evicted", note="")
        assert sink.stats.written == len(api.asked) == BURST + 5


@pytest.mark.parametrize(
    ("reply", "seconds"),
    [(status(403, "no"), 600), (status(500, "ill"), 30), (Reply(drop=True), 30), (status(422, "bad"), 0)],
    ids=["forbidden", "ill", "gone", "refused"],
)
def test_a_server_that_does_not_want_them_is_left_alone_for_a_while(reply: Reply, seconds: float) -> None:
    hands = Hands()
    with serving(lambda _: reply) as (api, client):
        sink = events_of(client, hands)
        sink.about_service(WEB, reason="Evicted", note="")
        assert sink.stats.failed == 1
        assert sink.stats.last_error
        asked = len(api.asked)
        hands.now += seconds - 0.1
        sink.about_service(WEB, reason="Evicted", note="")
        assert (len(api.asked) == asked) is (seconds > 0)
        hands.now += 0.2
        sink.about_service(WEB, reason="Evicted", note="")
        assert len(api.asked) > asked


def test_a_namespace_that_ends_silences_no_other() -> None:
    ending = status(403, "ending", ("NamespaceTerminating", "namespace shop is being terminated"))
    with serving(lambda asked: ending if "/shop/" in asked.path else made(asked)) as (_, client):
        sink = events_of(client, Hands())
        sink.about_service(WEB, reason="Evicted", note="")
        sink.about_node("n1", reason="Evicted", note="")
        assert (sink.stats.failed, sink.stats.written) == (1, 1)


def test_a_server_that_does_not_answer_raises_nothing() -> None:
    over = threading.Event()
    with serving(lambda _: Reply(hang_until=over)) as (_, client):
        sink = events_of(client, Hands())
        sink.about_service(WEB, reason="Evicted", note="")
        over.set()
        assert sink.stats.failed == 1
        assert "no answer within 2 s" in sink.stats.last_error
