import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from rebalancer.kube.snapshot.records import Namespace
from rebalancer.kube.snapshot.snapshot import NAMESPACES
from rebalancer.kube.watch import watch
from rebalancer.kube.watch.stores import Records
from rebalancer.kube.watch.watch import Backoff, Change, Reflector
from rebalancer.model.errors import ConfigError, UnsafeDataError
from rebalancer.model.parts import FailedParts
from tests.kube.builders import Json, meta
from tests.kube.fakes.api import Asked, FakeApi, Reply, client_of, status
from tests.kube.fakes.watches import WatchedServer, error_line, line, until


class Names(Records[Namespace, str]):
    """Names of namespaces. The store itself fails at `poison`; an object alone is kept as an obstacle."""

    def __init__(self) -> None:
        super().__init__(lambda space: space.metadata.name, "Namespace")

    def apply(self, changes: Sequence[Change[Namespace]], /) -> None:
        if any(space.metadata.name == "poison" for _, space in changes):
            raise TypeError("a mistake of ours")
        super().apply(changes)


def a_space(name: str) -> Json:
    return {"metadata": meta(name)}


class Follower:
    """A reflector of namespaces in its thread, with the waits that it would have made."""

    def __init__(self, api: FakeApi, server: WatchedServer, pause_seconds: float) -> None:
        self.api, self.server = api, server
        self.waits: list[float] = []
        self.pause_seconds = pause_seconds
        self.now = 1000.0
        self.parts = FailedParts(now=lambda: self.now, monotonic=lambda: self.now)
        self.client = client_of(api.url, attempts=2)
        self.reflector: Reflector[Namespace, Names] = Reflector(
            client=self.client,
            resource=NAMESPACES,
            item=Namespace,
            make=Names,
            parts=self.parts,
            monotonic=lambda: self.now,
            pause=self._pause,
            chance=random.Random(1),
        )

    def _pause(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += self.pause_seconds

    def names(self) -> set[str]:
        return set(self.reflector.known.all()) if self.reflector.store is not None else set()

    def watches(self) -> list[str]:
        return self.server.watches(self.api.asked, "namespaces")

    def lists(self) -> int:
        return self.server.lists(self.api.asked, "namespaces")


@contextmanager
def following(server: WatchedServer, *, pause_seconds: float = 0.0) -> Iterator[Follower]:
    """Each of its waits takes `pause_seconds`."""
    with FakeApi(server) as api:
        follower = Follower(api, server, pause_seconds)
        follower.reflector.start()
        try:
            yield follower
        finally:
            server.over.set()
            follower.reflector.stop()
            follower.reflector.join(10)
            follower.client.close()


def spaces(*names: str) -> WatchedServer:
    return WatchedServer(namespaces=[a_space(name) for name in names])


def test_a_list_is_followed_by_a_watch_from_its_version() -> None:
    server = spaces("a", "b")
    server.scripts["namespaces"].append(
        [
            line("ADDED", a_space("c"), 8),
            line("MODIFIED", a_space("a"), 9) + line("DELETED", a_space("b"), 10),
            line("BOOKMARK", {"kind": "Namespace", "spec": None}, 15),
        ]
    )
    with following(server) as follower:
        until(lambda: len(follower.watches()) == 2)
        assert follower.names() == {"a", "c"}
        assert follower.watches() == ["7", "15"]
        assert follower.lists() == 1
        stats = follower.reflector.stats
        assert (stats.events, stats.relists, stats.errors) == (3, 0, 0)
    asked = next(each for each in follower.api.asked if "watch" in each.query)
    assert asked.query["allowWatchBookmarks"] == "true"
    assert 300 <= int(asked.query["timeoutSeconds"]) <= 600


def test_a_store_that_is_asked_for_before_the_first_list_is_an_error_that_says_so() -> None:
    """A snapshot asks for one that another thread's has just begun to watch."""
    server, go_on = spaces("a"), threading.Event()

    def waits(_asked: Asked) -> None:
        go_on.wait(10)

    server.before_list = waits
    with following(server) as follower:
        with pytest.raises(UnsafeDataError, match="namespaces have not been read yet: the list is still being read"):
            follower.reflector.known.all()
        go_on.set()
        until(lambda: follower.names() == {"a"})


def test_an_event_that_comes_in_pieces_is_one_event() -> None:
    server = spaces("a")
    whole = line("ADDED", a_space("b"), 8)
    server.scripts["namespaces"].append([whole[:5], whole[5:20], whole[20:] + line("ADDED", a_space("c"), 9)[:-1]])
    with following(server) as follower:
        until(lambda: len(follower.watches()) == 2)
        assert follower.names() == {"a", "b", "c"}
        assert follower.watches()[-1] == "9"


FAULTS: dict[str, Reply | list[bytes]] = {
    "drop": Reply(drop=True),
    "cut": Reply(stream=[line("ADDED", a_space("x"), 8)], cut=True),
    "cut within a line": Reply(stream=[line("ADDED", a_space("x"), 8)[:20]], cut=True),
    "429": status(429, "slow down"),
    "500": status(500, "ill"),
    "503 that breaks off": Reply(status=503, body=b"x" * 1000, cut=True),
    "garbage": Reply(body=b'{"kind":"List","items":[{"metad'),
    "nested too deeply": [b'{"type":"ADDED","object":{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}}\n"],
    "error event": [error_line(500)],
    "unknown event": [b'{"type":"NONSENSE","object":{}}\n'],
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_watch_that_breaks_goes_on_from_where_it_was(fault: str) -> None:
    server = spaces("a")
    server.scripts["namespaces"] += [[line("ADDED", a_space("b"), 8)], FAULTS[fault], [line("ADDED", a_space("c"), 9)]]
    with following(server) as follower:
        until(lambda: len(follower.watches()) == 4)
        # a watch counts as restarted once the server has answered it, not when it has been asked
        until(lambda: follower.reflector.stats.restarts >= 2)
        assert follower.names() - {"x"} == {"a", "b", "c"}
        assert follower.watches() == ["7", "8", "8", "9"]
        assert follower.lists() == 1
        assert follower.reflector.stats.errors == 1
        assert follower.reflector.trouble == ""
        # an end is no failure the first time; what broke is waited for
        assert [wait > 0 for wait in follower.waits[:2]] == [True, True]
        assert max(follower.waits) <= 4


def test_what_the_server_asks_to_wait_is_waited() -> None:
    server = spaces("a")
    server.scripts["namespaces"].append(status(429, "slow down", headers={"Retry-After": "17"}))
    with following(server) as follower:
        until(lambda: len(follower.watches()) == 2)
        assert follower.waits == [17.0]


@pytest.mark.parametrize("gone", [status(410, "too old"), [error_line(410)]], ids=["answer", "event"])
def test_an_expired_version_is_listed_anew_at_once(gone: Reply | list[bytes]) -> None:
    server = spaces("a", "b")
    server.scripts["namespaces"].append(gone)
    with following(server) as follower:
        until(lambda: len(follower.watches()) == 2)
        assert follower.waits == []
        assert follower.lists() == 2
        assert follower.reflector.stats.relists == 1


def test_versions_that_expire_again_and_again_are_waited_for_longer_and_longer() -> None:
    server = spaces("a")
    server.scripts["namespaces"] += [[error_line(410)] for _ in range(9)]
    with following(server) as follower:
        until(lambda: len(follower.watches()) == 10)
        assert follower.lists() == 10
    assert len(follower.waits) == 8
    assert all(2.0**n / 2 <= wait <= 2.0**n for n, wait in enumerate(follower.waits[:5]))
    assert all(10 <= wait <= 20 for wait in follower.waits[5:])


def test_readers_see_the_old_store_until_the_new_list_is_whole() -> None:
    server = spaces("a", "b")
    server.cluster.page_size = 1
    server.scripts["namespaces"].append([error_line(410)])
    reached, go_on = threading.Event(), threading.Event()

    def second_page_waits(asked: Asked) -> None:
        if asked.query.get("continue") == "1" and server.lists(follower.api.asked, "namespaces") > 2:
            reached.set()
            go_on.wait(10)

    with following(server) as follower:
        until(lambda: follower.names() == {"a", "b"})
        server.before_list = second_page_waits
        server.cluster.lists["namespaces"] = [a_space("c"), a_space("d")]
        server.scripts["namespaces"].append([error_line(410)])
        server.send("namespaces", error_line(410))
        assert reached.wait(10)
        assert follower.names() == {"a", "b"}
        go_on.set()
        until(lambda: follower.names() == {"c", "d"})


def test_an_event_that_can_never_be_read_is_stepped_over_by_a_list() -> None:
    server = spaces("a")
    broken = b'{"type":"ADDED","object":["9"]}\n'
    server.scripts["namespaces"] += [[line("ADDED", a_space("b"), 8) + broken], [broken]]
    with following(server) as follower:
        until(lambda: len(follower.watches()) == 3)
        assert follower.watches() == ["7", "8", "7"]
        assert follower.lists() == 2
        assert "can't be read" in follower.reflector.stats.last_error


def test_an_object_that_cannot_be_read_ends_no_watch() -> None:
    server = spaces("a")
    odd = a_space("odd") | {"spec": {}}
    odd["metadata"]["labels"] = {"team": 5}
    server.scripts["namespaces"] += [[line("ADDED", odd, 8), line("ADDED", a_space("b"), 9)]]
    with following(server) as follower:
        until(lambda: len(follower.watches()) == 2)
        assert follower.watches() == ["7", "9"]
        assert follower.names() == {"a", "odd", "b"}
        assert follower.reflector.stats.errors == 0
        (obstacle,) = follower.reflector.known.obstacles()
        assert str(obstacle) == "Namespace odd: Expected `str`, got `int` - at `$.metadata.labels[...]`"
        server.scripts["namespaces"] += [[line("DELETED", odd, 10)]]
        # asked for is not yet open
        until(lambda: server.opened("namespaces") == 1 and follower.reflector._stream is not None)
        assert follower.reflector._stream is not None
        follower.reflector._stream.cut()
        until(lambda: not follower.reflector.known.obstacles())


def test_an_object_that_is_nested_too_deeply_ends_no_watch() -> None:
    server = spaces("a")
    deep = line("ADDED", a_space("deep"), 8).replace(
        b'"metadata"', b'"x":' + b"[" * 100_000 + b"]" * 100_000 + b',"metadata"', 1
    )
    server.scripts["namespaces"] += [[deep, line("ADDED", a_space("b"), 9)]]
    with following(server) as follower:
        until(lambda: len(follower.watches()) == 2)
        assert follower.watches() == ["7", "9"]
        assert follower.names() == {"a", "deep", "b"}
        assert [each.name for each in follower.reflector.known.obstacles()] == ["deep"]


def test_a_line_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rebalancer.kube.client.stream.LONGEST_LINE_BYTES", 1000)
    server = spaces("a")
    server.scripts["namespaces"].append([b"x" * 600, b"y" * 600])
    with following(server) as follower:
        until(lambda: len(follower.watches()) == 2)
        assert "a line of over" in follower.reflector.stats.last_error


def test_a_silent_watch_is_opened_again_and_then_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "INACTIVITY_SECONDS", 0.05)
    monkeypatch.setattr(watch, "SHORTEST_INACTIVITY_SECONDS", 0.05)
    with following(spaces("a")) as follower:
        until(lambda: follower.lists() == 2)
        assert follower.watches()[:2] == ["7", "7"]
        assert follower.reflector.stats.errors == 0
        assert "no answer within" in follower.reflector.trouble or follower.reflector.trouble == ""


@pytest.mark.parametrize(("age", "lists"), [(79.0, 1), (81.0, 2)])
def test_a_watch_that_could_not_be_opened_for_long_is_listed_again(age: float, lists: int) -> None:
    server = spaces("a")
    server.scripts["namespaces"].append(status(503, "away"))
    with following(server, pause_seconds=age) as follower:
        until(lambda: len(follower.watches()) == 2)
        assert follower.lists() == lists


def test_the_age_counts_from_the_last_sign_of_life() -> None:
    server = spaces("a")
    with following(server) as follower:
        assert follower.reflector.age(5.0) > 1e9 or follower.lists()
        until(lambda: server.opened("namespaces") == 1)
        assert follower.reflector.age(1030.0) == 30.0
        follower.now = 1050.0
        server.send("namespaces", line("BOOKMARK", {}, 20))
        until(lambda: follower.reflector.age(1060.0) == 10.0)


def test_stop_ends_a_read_that_is_under_way() -> None:
    with following(spaces("a")) as follower:
        until(lambda: len(follower.watches()) == 1)
        assert follower.reflector.alive
        follower.reflector.stop()
        follower.reflector.join(5)
        assert not follower.reflector.alive


def test_a_server_that_is_not_there_is_asked_ever_more_seldom() -> None:
    with FakeApi(spaces("a")) as api:
        url = api.url
    waits: list[float] = []
    enough = threading.Event()

    def pause(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 10:
            enough.set()
            reflector.stop()

    reflector: Reflector[Namespace, Names] = Reflector(
        client=client_of(url, attempts=1),
        resource=NAMESPACES,
        item=Namespace,
        make=lambda: Records(lambda space: space.metadata.name, "Namespace"),
        pause=pause,
    )
    reflector.start()
    assert enough.wait(20)
    reflector.join(5)
    assert reflector.stats.errors == 10
    assert sum(waits) > 60
    assert reflector.store is None


def test_a_healthy_minute_forgets_what_was_before() -> None:
    backoff = Backoff(random.Random(1))
    for _ in range(8):
        backoff.seconds(healthy_seconds=0, at_once=False)
    assert backoff.seconds(healthy_seconds=59, at_once=True) >= 10
    assert backoff.seconds(healthy_seconds=60, at_once=True) == 0
    assert 0.5 <= backoff.seconds(healthy_seconds=0, at_once=True) <= 1
    assert backoff.seconds(healthy_seconds=60, at_once=True, retry_after=3) == 3


def test_no_wait_of_a_watch_is_longer_than_20_seconds() -> None:
    for at_once in (True, False):
        assert Backoff(random.Random(1)).seconds(healthy_seconds=0, at_once=at_once, retry_after=3600) == 20
    backoff = Backoff(random.Random(1))
    assert max(backoff.seconds(healthy_seconds=0, at_once=False) for _ in range(40)) <= 20


def test_an_unexpected_error_at_an_event_restarts_the_watch_with_a_list() -> None:
    server = spaces("a")
    server.scripts["namespaces"].append([line("ADDED", a_space("b"), 8), line("ADDED", a_space("poison"), 9)])
    with following(server, pause_seconds=2.0) as follower:
        until(lambda: len(follower.watches()) == 2)
        assert follower.reflector.alive
        assert (follower.lists(), follower.watches()) == (2, ["7", "7"])
        assert follower.reflector.stats.last_error.endswith("an unexpected error: " + follower.parts.current()[0].cause)
        assert [wait >= 0.5 for wait in follower.waits] == [True]
        (failed,) = follower.parts.current()
        assert (failed.name, failed.failures) == ("watch namespaces", 1)
        assert failed.cause.startswith("TypeError: a mistake of ours (test_watch.py:")
        until(lambda: follower.reflector.age(follower.now) == 0.0)
        follower.now += 70.0
        assert follower.parts.current() == [], "a minute without another failure"


def test_an_object_that_fails_in_every_list_is_read_ever_more_seldom_and_the_rest_when_it_is_gone() -> None:
    server = spaces("a", "poison")
    with following(server, pause_seconds=30.0) as follower:
        until(lambda: len(follower.waits) >= 8)
        assert follower.reflector.store is None, "nothing is current meanwhile"
        assert follower.reflector.alive
        (failed,) = follower.parts.current()
        assert failed.failures >= 7
        waits = follower.waits[:8]
        assert all(low <= wait <= high for wait, low, high in zip(waits[:4], (0.5, 1, 2, 4), (1, 2, 4, 8), strict=True))
        assert all(10.0 <= wait <= 20.0 for wait in waits[6:])
        server.cluster.lists["namespaces"] = [a_space("a")]
        until(lambda: follower.names() == {"a"})


def test_after_an_unexpected_error_the_store_is_not_current_until_a_list_has_replaced_it() -> None:
    server = spaces("a")
    refused = threading.Event()
    server.before_list = lambda _: status(500, "ill") if refused.is_set() else None
    with following(server, pause_seconds=1.0) as follower:
        until(lambda: server.opened("namespaces") == 1)
        refused.set()
        server.send("namespaces", line("ADDED", a_space("poison"), 8))
        until(lambda: follower.reflector.stats.errors >= 2)
        assert follower.reflector.age(follower.now) == float("inf")
        refused.clear()
        until(lambda: follower.reflector.age(follower.now) < 60.0)
        assert follower.names() == {"a"}


def test_credentials_that_can_not_be_read_end_no_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    server = spaces("a")
    broken = threading.Event()
    with following(server) as follower:
        until(lambda: server.opened("namespaces") == 1)
        usual = follower.client._credentials.headers

        def headers() -> dict[str, str]:
            if broken.is_set():
                raise ConfigError("credentials can't be refreshed")
            return usual()

        monkeypatch.setattr(follower.client._credentials, "headers", headers)
        broken.set()
        server.send("namespaces", error_line(410))
        until(lambda: follower.reflector.stats.errors >= 3)
        assert follower.reflector.alive
        assert follower.reflector.trouble == "credentials can't be refreshed"
        broken.clear()
        until(lambda: server.opened("namespaces") == 2)
        assert follower.parts.current() == [], "no defect of ours"


def test_a_watch_without_memory_ends() -> None:
    def no_memory(space: Namespace) -> str:
        raise MemoryError

    server = spaces("a")
    with FakeApi(server) as api:
        client = client_of(api.url, attempts=1)
        reflector: Reflector[Namespace, Names] = Reflector(
            client=client, resource=NAMESPACES, item=Namespace, make=lambda: Records(no_memory)
        )
        with pytest.raises(MemoryError):
            reflector.run()
        server.over.set()
        client.close()
