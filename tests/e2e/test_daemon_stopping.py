"""How a daemon ends: in good order, or at once; and how it is seen to hang."""

import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rebalancer.lab import Lab
from tests.e2e.servers import DaemonProcess, alert_policy, daemon, evicted, held_by, leading, tainted, until, warm_lab

# the command, with a part of it changed beforehand
IMPATIENT = """
from rebalancer.daemon import readiness
from rebalancer.cli.main import main
readiness.DEAD_AFTER_SECONDS = 1.0
main()
"""


@pytest.fixture(scope="module")
def shared_lab() -> Iterator[Lab]:
    with warm_lab(warm=8, full=1) as made:
        yield made


@pytest.fixture
def lab(shared_lab: Lab) -> Iterator[Lab]:
    yield shared_lab
    shared_lab.faults.clear()


def outcomes(folder: Path, name: str = "rebalancer") -> list[tuple[str, str]]:
    """(node, outcome) of every eviction that the database knows."""
    with closing(sqlite3.connect(folder / f"{name}.db")) as connection:
        return connection.execute("SELECT node, outcome FROM evictions").fetchall()


def in_the_call(lab: Lab, running: DaemonProcess, node: str, answered_after: float) -> None:
    """Bring it to where its eviction was carried out and the answer is on its way."""
    lab.faults.set(eviction_delay_seconds=answered_after)
    running.alert(node)
    until(lambda: evicted(lab, node), running.tail)


def test_sigterm_in_the_middle_of_an_eviction_ends_in_good_order(lab: Lab, tmp_path: Path) -> None:
    with leading(tmp_path, lab, lease="one") as running:
        # two alerts, and only what was begun is done
        lab.faults.set(eviction_delay_seconds=3.0)
        running.alert("warm-1", "warm-2")
        until(lambda: evicted(lab, "warm-1", "warm-2"), running.tail)
        assert tainted(lab) == {"cold-1"}
        [begun] = evicted(lab, "warm-1", "warm-2")
        running.signal(signal.SIGTERM)
        until(lambda: "[-]stopping failed" in running.get("/readyz")[1], running.tail)
        assert running.get("/livez")[0] == 200
        assert running.ended(10.0) == 0
        assert outcomes(tmp_path) == [(begun.node, "evicted")]
        assert len(evicted(lab, "warm-1", "warm-2")) == 1
        assert held_by(lab, "one") == ("", 1)
        assert tainted(lab) == set()
        assert running.events("cycle")[-1]["interrupted"]
        assert running.events("stopped")


def test_a_second_signal_ends_at_once(lab: Lab, tmp_path: Path) -> None:
    with leading(tmp_path, lab, lease="two") as running:
        in_the_call(lab, running, "warm-3", 8.0)
        running.signal(signal.SIGTERM)
        until(lambda: "[-]stopping failed" in running.get("/readyz")[1], running.tail)
        running.signal(signal.SIGINT)
        assert running.ended() == 128 + signal.SIGINT
        # how the call ended is not known: it stays counted
        assert outcomes(tmp_path) == [("warm-3", "planned")]


def test_sigterm_ends_the_wait_for_spacing(lab: Lab, tmp_path: Path) -> None:
    policy = alert_policy(lab.prometheus_url, limits={"cluster": {"spacing": "50s"}})
    with leading(tmp_path, lab, policy, lease="three") as running:
        running.alert("warm-4", "warm-5")
        until(lambda: "evicted" in [outcome for _, outcome in outcomes(tmp_path)], running.tail)
        time.sleep(0.3)  # into the wait
        assert tainted(lab) == {"cold-1"}
        running.signal(signal.SIGTERM)
        assert running.ended(10.0) == 0
        assert len(evicted(lab, "warm-4", "warm-5")) == 1
        assert [outcome for _, outcome in outcomes(tmp_path)] == ["evicted"]
        assert held_by(lab, "three") == ("", 1)
        assert tainted(lab) == set()


def test_sigusr1_shows_what_every_thread_is_at_and_ends_nothing(lab: Lab, tmp_path: Path) -> None:
    with leading(tmp_path, lab, lease="four") as running:
        until(lambda: running.events("cycle"), running.tail)  # its worker runs
        running.signal(signal.SIGUSR1)

        def threads() -> int:
            raw = [each["raw"] for each in running.log if "raw" in each]
            return sum(line.startswith(("Thread 0x", "Current thread 0x")) for line in raw)

        # the dump is written while it is read
        until(lambda: "worker.py" in running.log_file.read_text() and threads() > 5, running.tail)
        running.alert("warm-6")
        until(lambda: evicted(lab, "warm-6"), running.tail)


def test_livez_shows_when_the_worker_hangs_and_when_it_goes_on(lab: Lab, tmp_path: Path) -> None:
    with leading(tmp_path, lab, lease="five", program=IMPATIENT) as running:
        until(lambda: running.events("cycle"), running.tail)
        lab.faults.set(sides=("prometheus",), latency_seconds=4.0)
        running.alert("warm-7")
        until(lambda: running.get("/livez")[0] == 503, running.tail)
        assert running.get("/metrics")[0] == 200
        lab.faults.clear()
        until(lambda: evicted(lab, "warm-7"), running.tail)
        until(lambda: running.get("/livez")[0] == 200, running.tail)


def test_an_api_server_that_throttles_everything_at_the_start_is_waited_for(lab: Lab, tmp_path: Path) -> None:
    config = lab.write_kubeconfig(tmp_path / "config")
    lab.faults.set(sides=("kubernetes",), throttled_share=1.0, retry_after_seconds=1)
    with daemon(tmp_path, alert_policy(lab.prometheus_url), config, lease="seven") as running:
        running.alert("warm-8")
        assert not running.ready()
        assert evicted(lab, "warm-8") == []
        lab.faults.clear()
        until(lambda: evicted(lab, "warm-8"), running.tail)
        until(running.ready, running.tail)
