"""Two replicas on one PostgreSQL, and a leader that is lost in the middle of an eviction: killed, cut off from the API
server, or frozen past its lease.

The takeover takes as long as a Lease lasts, in real time, so the three stories run at once, each in a lab of its own.
Every story sends three alerts: one before, one that the leader is lost over, one in between. No node loses more than
one pod, and none to a term that is over. What was reserved and never called for stays counted for a minute, because a
call may be on its way for so long; the stories end before that.
"""

import signal
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from rebalancer.lab import Lab
from rebalancer.lab.log import Entry
from rebalancer.store import upgrade
from tests.e2e.servers import (
    Cuttable,
    DaemonProcess,
    alert_policy,
    cuttable,
    daemon,
    evicted,
    held_by,
    kubeconfig_through,
    until,
    warm_lab,
)
from tests.real.servers.postgres import PostgresServer

pytestmark = [pytest.mark.real, pytest.mark.quiet]

BEFORE, OVER, MEANWHILE = "warm-1", "warm-2", "warm-3"
STANDS_BY = "lease lost, standing by"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One eviction, as the ledger has it."""

    node: str
    outcome: str
    term: int
    counted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a story ended."""

    calls: tuple[Entry, ...]
    """Evictions as the API server answered them."""
    rows: tuple[Row, ...]
    open_nodes: frozenset[str]
    """Alerts that no cycle looked at."""
    leader_code: int | None
    """Exit code of the lost leader; None while it runs."""
    stood_by: bool
    holder: tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    """Who plays."""

    lab: Lab
    proxy: Cuttable
    """Between the first replica and the API server."""
    first: DaemonProcess
    second: DaemonProcess
    url: str

    def rows(self) -> tuple[Row, ...]:
        with psycopg.connect(self.url) as connection:
            found = connection.execute(
                "SELECT node, outcome, lease_term, EXISTS (SELECT 1 FROM entries WHERE eviction = evictions.id AND "
                "counted) FROM evictions ORDER BY id"
            ).fetchall()
        return tuple(
            Row(node=node, outcome=outcome, term=term, counted=counted) for node, outcome, term, counted in found
        )

    def untouched(self) -> frozenset[str]:
        with psycopg.connect(self.url) as connection:
            rows = connection.execute("SELECT labels->>'node' FROM alert_episodes WHERE attempts = 0").fetchall()
        return frozenset(str(node) for (node,) in rows)


def play(folder: Path, url: str, lose: Callable[[Cast], None]) -> Ended:
    """A story. `lose` takes the leader away over its second alert."""
    folder.mkdir()
    with warm_lab(warm=3) as lab, cuttable(lab.url) as proxy:
        policy = alert_policy(lab.prometheus_url)
        through, direct = kubeconfig_through(lab, proxy, folder / "through"), lab.write_kubeconfig(folder / "direct")
        with daemon(folder, policy, through, name="first", database=url) as first:
            until(first.leads, first.tail)
            with daemon(folder, policy, direct, name="second", database=url) as second:
                until(second.ready, second.tail)
                cast = Cast(lab=lab, proxy=proxy, first=first, second=second, url=url)
                first.alert(BEFORE)
                until(lambda: evicted(lab, BEFORE), first.tail)
                until(lambda: not cast.untouched(), first.tail)
                lose(cast)
                until(lambda: evicted(lab, MEANWHILE), second.tail)
                until(lambda: not cast.untouched(), second.tail)
                return Ended(
                    calls=lab.log.evictions(),
                    rows=cast.rows(),
                    open_nodes=cast.untouched(),
                    leader_code=first.process.poll(),
                    stood_by=bool(first.events(STANDS_BY)) and not first.leads(),
                    holder=held_by(lab),
                )


def killed(cast: Cast) -> None:
    """With SIGKILL, after its call was carried out and before the answer came."""
    cast.lab.faults.set(eviction_delay_seconds=60.0)
    cast.first.alert(OVER)
    until(lambda: evicted(cast.lab, OVER), cast.first.tail)
    cast.first.signal(signal.SIGKILL)
    cast.lab.faults.clear()
    cast.second.alert(MEANWHILE)
    assert cast.first.ended() == -signal.SIGKILL


def cut_off(cast: Cast) -> None:
    """From the API server, after its call was carried out and before the answer came. The database stays."""
    cast.lab.faults.set(eviction_delay_seconds=60.0)
    cast.first.alert(OVER)
    until(lambda: evicted(cast.lab, OVER), cast.first.tail)
    cast.proxy.cut()
    cast.lab.faults.clear()
    until(lambda: cast.first.events(STANDS_BY), cast.first.tail)
    until(lambda: "planned" not in [row.outcome for row in cast.rows()], cast.first.tail)
    cast.second.alert(MEANWHILE)


def frozen(cast: Cast) -> None:
    """With SIGSTOP between its reservation and the call; it wakes when the other has long taken over."""
    cast.lab.faults.set(sides=("kubernetes",), latency_seconds=1.5)  # the pod is read once more before the call
    cast.first.alert(OVER)
    until(lambda: (OVER, "planned") in [(row.node, row.outcome) for row in cast.rows()], cast.first.tail)
    cast.first.signal(signal.SIGSTOP)
    assert not evicted(cast.lab, OVER)
    cast.lab.faults.clear()
    cast.second.alert(MEANWHILE)
    until(lambda: evicted(cast.lab, MEANWHILE), cast.second.tail)
    cast.first.signal(signal.SIGCONT)
    until(lambda: cast.first.events(STANDS_BY), cast.first.tail)
    until(lambda: "planned" not in [row.outcome for row in cast.rows()], cast.first.tail)


STORIES: Mapping[str, Callable[[Cast], None]] = {"killed": killed, "cut_off": cut_off, "frozen": frozen}


@pytest.fixture(scope="module")
def stories(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[Ended]]]:
    folder = tmp_path_factory.mktemp("replicas")
    urls = {name: postgres.create_database(f"replicas_{name}") for name in STORIES}
    for url in urls.values():
        upgrade(url)
    with ThreadPoolExecutor(len(STORIES)) as pool:
        yield {name: pool.submit(play, folder / name, urls[name], lose) for name, lose in STORIES.items()}
    for name in STORIES:
        postgres.drop_database(f"replicas_{name}")


@pytest.fixture(params=list(STORIES))
def story(request: pytest.FixtureRequest, stories: dict[str, Future[Ended]]) -> tuple[str, Ended]:
    return request.param, stories[request.param].result()


def term_of(call: Entry) -> int:
    return int(call.user_agent.rpartition(" term/")[2])


def test_every_alert_is_looked_at_and_moves_one_pod_at_most(story: tuple[str, Ended]) -> None:
    name, ended = story
    moved = [BEFORE, MEANWHILE] if name == "frozen" else [BEFORE, OVER, MEANWHILE]
    assert [(each.node, each.code) for each in ended.calls] == [(node, 201) for node in moved]
    assert ended.open_nodes == frozenset()


def test_no_term_evicts_once_a_later_one_has(story: tuple[str, Ended]) -> None:
    _, ended = story
    terms = [term_of(each) for each in ended.calls]
    assert terms == sorted(terms)
    assert terms[0] == 1
    assert terms[-1] == 2
    assert ended.holder[0].startswith("second_")
    assert ended.holder[1] == 2
    reserved = [row.term for row in ended.rows]
    assert reserved == sorted(reserved)


def test_what_was_begun_is_settled_and_counted_if_it_happened(story: tuple[str, Ended]) -> None:
    name, ended = story
    # woken up, the old leader saw that it leads no more, sent nothing, and wrote that down
    over = "failed" if name == "frozen" else "evicted"
    assert [(row.node, row.term, row.outcome, row.counted) for row in ended.rows] == [
        (BEFORE, 1, "evicted", True),
        (OVER, 1, over, over == "evicted"),
        (MEANWHILE, 2, "evicted", True),
    ]


def test_a_replica_that_has_lost_the_lease_stands_by(story: tuple[str, Ended]) -> None:
    name, ended = story
    assert (ended.leader_code, ended.stood_by) == ((-signal.SIGKILL, False) if name == "killed" else (None, True))
