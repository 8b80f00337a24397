import gc
import gzip
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from rebalancer.kube.client.client import Resource
from rebalancer.kube.snapshot.lists import MAX_RESTARTS, Gathered, read_list
from rebalancer.kube.snapshot.records import Namespace
from rebalancer.kube.snapshot.snapshot import NAMESPACES
from rebalancer.model.errors import ConnectError, RebalancerError, UnsafeDataError
from tests.kube.fakes.api import Asked, Reply, client_of, serving, status

PAGES = 3


def page(number: int, revision: str, *, remaining: bool = True) -> Reply:
    """Two items a page; names carry the list's revision, so that a mix would show."""
    meta: dict[str, Any] = {"resourceVersion": revision}
    if number < PAGES - 1:
        meta |= {"continue": f"{revision}/{number + 1}"}
        if remaining:
            meta["remainingItemCount"] = 2 * (PAGES - 1 - number)
    items = [{"metadata": {"name": f"{revision}-{number}-{i}"}} for i in range(2)]
    return Reply(body={"metadata": meta, "items": items})


class Server:
    """Pages of a list whose revision is new for each first page; `broken(revision, number)` may answer instead."""

    def __init__(self, broken: Callable[[int, int], Reply | None]) -> None:
        self.revision = 0
        self.broken = broken

    def __call__(self, asked: Asked) -> Reply:
        token = asked.query.get("continue")
        if token is None:
            self.revision += 1
            return self.broken(self.revision, 0) or page(0, str(self.revision))
        revision, number = token.split("/")
        return self.broken(int(revision), int(number)) or page(int(number), revision)


def names(client: Any, **options: Any) -> list[str]:
    found: Gathered[Namespace] = read_list(
        client, NAMESPACES, item=Namespace, collector=Gathered[Namespace], **options
    )[0]
    return [each.metadata.name for each in found]


def all_of(revision: int) -> list[str]:
    return [f"{revision}-{number}-{i}" for number in range(PAGES) for i in range(2)]


def test_a_list_is_read_in_pages_of_500_from_one_moment() -> None:
    with serving(Server(lambda *_: None)) as (api, client):
        assert names(client) == all_of(1)
    assert [asked.query.get("limit") for asked in api.asked] == ["500"] * 3
    assert all("resourceVersion" not in asked.query for asked in api.asked)


@pytest.mark.parametrize(
    "reply",
    [
        status(410, "The provided continue parameter is too old"),
        Reply(status=410, body={"metadata": {"continue": "inconsistent"}, "code": 410, "message": "expired"}),
        Reply(drop=True),
        Reply(body={"items": []}, cut=True),
        Reply(status=503),
    ],
    ids=["410", "410 with an inconsistent token", "dropped", "cut", "503"],
)
@pytest.mark.parametrize("at", [1, 2])
def test_a_list_that_breaks_half_way_is_read_again_and_never_mixed(reply: Reply, at: int) -> None:
    server = Server(lambda revision, number: reply if revision < 3 and number == at else None)
    with serving(server, attempts=2) as (api, client):
        assert names(client) == all_of(3)
    assert not any(asked.query.get("continue") == "inconsistent" for asked in api.asked)


def test_a_page_that_comes_at_the_second_try_belongs_to_the_same_list() -> None:
    tries = iter([Reply(status=503)])
    server = Server(lambda _, number: next(tries, None) if number == 1 else None)
    with serving(server) as (_, client):
        assert names(client) == all_of(1)


def test_a_page_of_another_moment_breaks_the_list() -> None:
    server = Server(lambda revision, number: page(number, "9") if (revision, number) == (1, 1) else None)
    with serving(server) as (_, client):
        assert names(client) == all_of(2)


def test_a_list_that_always_breaks_is_unsafe() -> None:
    server = Server(lambda _, number: status(410, "too old") if number == 2 else None)
    with serving(server) as (_, client), pytest.raises(UnsafeDataError, match=r"namespaces broke half-way.*too old"):
        names(client)
    assert server.revision == 1 + MAX_RESTARTS


def test_a_list_that_is_refused_at_once_is_not_read_again() -> None:
    server = Server(lambda *_: status(403, "forbidden"))
    with serving(server) as (api, client), pytest.raises(ConnectError, match="list namespaces"):
        names(client)
    assert len(api.asked) == 1


def test_an_unreachable_server_is_a_connection_error_not_a_broken_list() -> None:
    with serving(lambda _: Reply()) as (api, _):
        url = api.url
    with pytest.raises(ConnectError, match="can't be reached"):
        names(client_of(url, attempts=1))


def test_a_page_that_is_no_list_is_unsafe_and_the_garbage_collector_runs_again() -> None:
    with serving(lambda _: Reply(body=b"[1]")) as (_, client), pytest.raises(UnsafeDataError, match="can't be read"):
        names(client)
    assert gc.isenabled()


@pytest.mark.parametrize("status", [200, 500])
def test_a_page_nested_100000_deep_is_one_clear_error(status: int) -> None:
    body = b'{"items":[{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}]}"
    with serving(lambda _: Reply(status=status, body=body)) as (_, client), pytest.raises(RebalancerError) as caught:
        names(client)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_progress_tells_how_much_is_left() -> None:
    steps: list[tuple[str, int, int | None]] = []

    class Recorder:
        def event(self, text: str) -> None: ...

        def step(self, label: str, done: int, total: int | None) -> None:
            steps.append((label, done, total))

    with serving(Server(lambda *_: None)) as (_, client):
        names(client, progress=Recorder())
    assert steps == [("namespaces", 2, 6), ("namespaces", 4, 6), ("namespaces", 6, 6)]


def test_an_empty_list_may_be_null() -> None:
    with serving(lambda _: Reply(body={"items": None})) as (_, client):
        assert names(client) == []


def test_paths_follow_the_api() -> None:
    leases = Resource(group="coordination.k8s.io", version="v1", plural="leases")
    assert leases.path(namespace="a", name="b") == "/apis/coordination.k8s.io/v1/namespaces/a/leases/b"
    assert NAMESPACES.path() == "/api/v1/namespaces"


def test_the_next_page_is_under_way_while_one_is_decoded() -> None:
    second_asked = threading.Event()

    def answer(asked: Asked) -> Reply:
        number = int(asked.query.get("continue", "1/0").split("/")[1])
        if number == 1:
            second_asked.set()
        return page(number, "1")

    class Waiting(Gathered[Namespace]):
        def add(self, items: Any, /) -> None:
            assert second_asked.wait(10)
            super().add(items)

    with serving(answer) as (_, client):
        found, _ = read_list(client, NAMESPACES, item=Namespace, collector=Waiting)
    assert [each.metadata.name for each in found] == all_of(1)


@pytest.mark.parametrize("order", ["items first", "items in the head", "token in an item"])
def test_a_page_with_another_order_of_fields_is_read_page_by_page(order: str) -> None:
    def answer(asked: Asked) -> Reply:
        number = int(asked.query.get("continue", "1/0").split("/")[1])
        body = page(number, "1").body
        if order == "items first":
            body = {"items": body["items"], "metadata": body["metadata"]}
        elif order == "items in the head":
            body = {"other": {"items": [1]}, **body}
        else:
            body["items"][0]["metadata"]["continue"] = "another"
            body = {"items": body["items"], "metadata": body["metadata"]}
        return Reply(body=json.dumps(body, separators=(",", ":")).encode())

    with serving(answer) as (api, client):
        assert names(client) == all_of(1)
    assert len(api.asked) == PAGES


def test_what_is_called_at_the_first_page_is_called_for_each_attempt() -> None:
    server = Server(lambda revision, number: status(410, "old") if (revision, number) == (1, 1) else None)
    seen: list[list[str]] = []
    with serving(server) as (_, client):
        names(client, first_page=lambda found: seen.append([each.metadata.name for each in found]))
    assert seen == [["1-0-0", "1-0-1"], ["2-0-0", "2-0-1"]]


def test_a_compressed_answer_is_unpacked() -> None:
    body = gzip.compress(json.dumps(page(PAGES - 1, "1").body).encode())
    with serving(lambda _: Reply(body=body, headers={"Content-Encoding": "gzip"})) as (api, client):
        assert names(client) == [f"1-{PAGES - 1}-{i}" for i in range(2)]
    assert api.asked[0].headers["Accept-Encoding"] == "gzip"


@pytest.mark.parametrize("body", [b"not compressed", gzip.compress(b"{}" * 1000)[:-20]], ids=["plain", "cut"])
def test_an_answer_that_cannot_be_unpacked_is_a_lost_answer(body: bytes) -> None:
    with (
        serving(lambda _: Reply(body=body, headers={"Content-Encoding": "gzip"}), attempts=1) as (_, client),
        pytest.raises(ConnectError, match="can't be reached: the connection was cut"),
    ):
        names(client)


def test_an_empty_answer_that_is_marked_as_compressed_is_empty() -> None:
    refusal = Reply(status=403, body=b"", headers={"Content-Encoding": "gzip"})
    with serving(lambda _: refusal) as (_, client), pytest.raises(ConnectError, match="not allowed to list namespaces"):
        names(client)


def test_answers_to_writes_come_as_they_are() -> None:
    with serving(lambda _: Reply()) as (api, client):
        client.send("POST", "/api/v1/namespaces", b"{}")
    assert "gzip" not in api.asked[0].headers.get("Accept-Encoding", "")
