"""A leader whose lease is lost stands by: the same process, with its caches, leads again in a later term.

In front of the lab's API server, and of a real one.
"""

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import pytest

from rebalancer.kube.client.client import connect
from rebalancer.kube.snapshot.times import rfc3339_micro
from tests.e2e.servers import until
from tests.faults.scenarios.live import KINDS, Lane, a_lane
from tests.faults.servers.proxy import ProxyFault
from tests.real.servers.api_server import api_server

pytestmark = pytest.mark.quiet

LIST = re.compile(r"^GET /apis?/(?!.*watch=1)[^?]*/(pods|nodes|replicasets|poddisruptionbudgets)(\?|$)")
STANDBY_SECONDS = 40.0
RECOVERY_SECONDS = 45.0
"""A lease lives for 15 s without a renewal, and is observed for so long before it is acquired."""


@pytest.fixture(params=["lab", pytest.param("real", marks=pytest.mark.real)])
def lane(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lane]:
    """A daemon that leads, and watches everything."""
    if request.param == "lab":
        with a_lane(tmp_path / "lane", "lab", alerts=4) as made:
            yield healthy(made)
        return
    with api_server() as server, a_lane(tmp_path / "lane", "real", real=server, alerts=4) as made:
        yield healthy(made)


def healthy(lane: Lane) -> Lane:
    until(lambda: lane.clean_since(0.0) and lane.watches(), lane.running.tail, 90.0)
    return lane


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """What must not change while it stands by."""

    pid: int
    lists: int
    relists: float
    evicted: set[str]


def before(lane: Lane) -> Before:
    return Before(
        pid=lane.running.process.pid,
        lists=lists_of(lane),
        relists=lane.running.metric("rebalancer_watch_relists_total"),
        evicted=lane.evictions(),
    )


def lists_of(lane: Lane) -> int:
    return sum(LIST.search(each) is not None for each in lane.api.asked)


def stands_by(lane: Lane) -> bool:
    lost = lane.running.events("lease lost, standing by")
    return bool(lost) and not lane.running.leads() and lane.running.metric("rebalancer_lease_held") == 0.0


def term_of(lane: Lane) -> int:
    return int(lane.running.events("leading")[-1]["term"])


def goes_on(lane: Lane, was: Before) -> None:
    """It leads again, evicts what an alert asks for, and is the same process with the same caches."""
    began = time.time()
    until(lambda: lane.clean_since(began), lane.running.tail, RECOVERY_SECONDS)
    until(lambda: lane.evictions() - was.evicted, lane.running.tail)
    assert lane.starts == 1
    assert lane.running.process.poll() is None
    assert before(lane).pid == was.pid
    assert lane.running.metric("rebalancer_watch_relists_total") == was.relists
    assert lists_of(lane) == was.lists, "nothing was listed again"
    assert not lane.running.events("thread died")
    assert "Traceback" not in lane.running.log_file.read_text()


def test_an_api_server_that_answers_in_6_s_makes_the_leader_stand_by(lane: Lane) -> None:
    was, term = before(lane), term_of(lane)
    lane.api.begin(ProxyFault(delay_seconds=6.0))
    until(lambda: stands_by(lane), lane.running.tail, STANDBY_SECONDS)
    lane.alert()
    end = time.monotonic() + 20.0
    while time.monotonic() < end:
        assert lane.running.process.poll() is None, lane.running.tail()
        assert lane.evictions() == was.evicted
        assert not lane.running.leads()
        time.sleep(0.5)
    lane.api.end()
    goes_on(lane, was)
    assert term_of(lane) > term


def test_a_stolen_lease_makes_the_leader_stand_by_until_it_is_free(lane: Lane) -> None:
    was, term = before(lane), term_of(lane)
    hold = holder_of(lane)
    hold("thief", term + 1)
    until(lambda: stands_by(lane), lane.running.tail, STANDBY_SECONDS)
    lane.alert()
    for _ in range(10):
        hold("thief", term + 1)
        time.sleep(1.0)
        assert lane.evictions() == was.evicted
        assert "held by thief" in lane.running.get("/readyz?verbose")[1]
    hold("", term + 1)
    goes_on(lane, was)
    assert term_of(lane) == term + 2


def holder_of(lane: Lane) -> Callable[[str, int], None]:
    """Writes another holder into the Lease; the empty one frees it."""
    client = connect(str(lane.kubeconfig), None, "thief")

    def hold(name: str, term: int) -> None:
        while True:
            paths = [each for each in lane.api.asked if "/leases/" in each]
            path = paths[-1].split(" ")[1].partition("?")[0]
            lease = msgspec.json.decode(client.get(path).data)
            lease["spec"] |= {
                "holderIdentity": name,
                "leaseTransitions": term,
                "renewTime": rfc3339_micro(time.time()),
            }
            if client.send("PUT", path, msgspec.json.encode(lease)).status == 200:
                return

    return hold


def test_watches_that_are_answered_with_an_error_that_breaks_off_end_nothing(lane: Lane) -> None:
    was = before(lane)
    lane.api.begin(replace(KINDS["an error whose body breaks off"], requests="watch=1"))
    until(lambda: lane.api.hits >= 20, lane.running.tail)
    assert lane.running.process.poll() is None, lane.running.tail()
    lane.api.end()
    lane.alert()
    until(lambda: lane.evictions() - was.evicted and lane.watches(), lane.running.tail)
    assert lane.starts == 1
    assert not lane.running.events("part failed")
    assert "Traceback" not in lane.running.log_file.read_text()
