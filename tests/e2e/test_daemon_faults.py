"""What a daemon does while something around it is ill: no eviction on bad data, and on with the work once it is well.

Each fault gets a warm node of its own. The alert comes while the fault is on, and comes anew once it is over. The three
surroundings (API server, Prometheus, database) are ill in labs of their own, at the same time: most of it is waiting.
"""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rebalancer.lab import Lab
from rebalancer.store import upgrade
from tests.e2e.servers import DaemonProcess, alert_policy, cuttable, delivery, evicted, leading, until, warm_lab
from tests.real.servers.postgres import PostgresServer

API_FAULTS: tuple[Mapping[str, Any], ...] = (
    {"throttled_share": 1.0, "retry_after_seconds": 1},
    {"throttled_share": 1.0},
    {"error_share": 1.0},
    {"garbage_share": 1.0},
    {"cut_share": 1.0},
)
PROMETHEUS_FAULTS: tuple[Mapping[str, Any], ...] = (
    {"partial": "a store is away"},
    {"missing": ("*",)},
    {"nan": ("*",)},
    {"prometheus_down": "error"},
    {"prometheus_down": "closed"},
    {"sides": ("prometheus",), "garbage_share": 1.0},
)
TOGETHER = {
    "latency_seconds": 0.05,
    "throttled_share": 0.05,
    "error_share": 0.05,
    "cut_share": 0.05,
    "garbage_share": 0.05,
    "expire_watches": True,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    lab: Lab
    running: DaemonProcess

    def cycles(self) -> int:
        """How many it has tried."""
        return len(self.running.events("cycle")) + len(self.running.events("cycle failed"))

    def survives(self, node: str, **fault: Any) -> None:
        """Nothing is evicted while the fault is on, and one pod once it is over."""
        before = self.cycles()
        self.lab.faults.set(**fault)
        self.running.alert(node)
        until(lambda: self.cycles() > before, self.running.tail)
        assert evicted(self.lab, node) == [], fault
        self.lab.faults.clear()
        self.moves(node)

    def moves(self, node: str) -> None:
        """An alert does what it should."""
        self.running.alert(node)
        until(lambda: evicted(self.lab, node), self.running.tail)
        until(self.running.ready, self.running.tail)
        assert len(evicted(self.lab, node)) == 1
        assert self.running.process.poll() is None


def with_an_ill_api_server(folder: Path, _: str) -> None:
    with warm_lab(warm=len(API_FAULTS) + 3) as lab, leading(folder, lab) as running:
        cast = Cast(lab=lab, running=running)
        for number, fault in enumerate(API_FAULTS, 1):
            cast.survives(f"warm-{number}", sides=("kubernetes",), **fault)
        # slow is no error, and watches that break off and have to begin anew are none either
        lab.faults.set(latency_seconds=0.3)
        cast.moves(f"warm-{len(API_FAULTS) + 1}")
        lab.faults.set(expire_watches=True, latency_seconds=0.0)
        cast.moves(f"warm-{len(API_FAULTS) + 2}")
        lab.faults.set(**TOGETHER)
        last = f"warm-{len(API_FAULTS) + 3}"
        running.alert(last)
        lab.faults.clear()
        cast.moves(last)


def with_an_ill_prometheus(folder: Path, _: str) -> None:
    with warm_lab(warm=len(PROMETHEUS_FAULTS)) as lab:
        policy = alert_policy(lab.prometheus_url)
        policy["usage"]["maxSampleAge"] = "30s"
        with leading(folder, lab, policy) as running:
            cast = Cast(lab=lab, running=running)
            for number, fault in enumerate(PROMETHEUS_FAULTS, 1):
                cast.survives(f"warm-{number}", **fault)


def with_a_database_that_comes_and_goes(folder: Path, url: str) -> None:
    address = url.rpartition("@")[2].partition("/")[0]
    with warm_lab(warm=3) as lab, cuttable(f"http://{address}") as proxy:
        through = url.replace(address, f"127.0.0.1:{proxy.port}")
        with leading(folder, lab, database=through) as running:
            cast = Cast(lab=lab, running=running)
            cast.moves("warm-1")
            proxy.cut()
            # not taken is not lost: Alertmanager sends again after a 503
            until(lambda: running.post(delivery("warm-2")) == 503, running.tail)
            until(lambda: "[-]database failed" in running.get("/readyz")[1], running.tail)
            assert evicted(lab, "warm-2") == []
            proxy.mend()
            cast.moves("warm-2")
            proxy.cut()
            until(lambda: not running.ready(), running.tail)
            proxy.mend()
            cast.moves("warm-3")


SURROUNDINGS: Mapping[str, Callable[[Path, str], None]] = {
    "API server": with_an_ill_api_server,
    "Prometheus": with_an_ill_prometheus,
    "database": with_a_database_that_comes_and_goes,
}


@pytest.fixture(scope="module")
def stories(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[None]]]:
    url = postgres.create_database("daemon_faults")
    upgrade(url)
    with ThreadPoolExecutor(len(SURROUNDINGS)) as pool:
        yield {
            name: pool.submit(story, tmp_path_factory.mktemp(name.split()[-1]), url)
            for name, story in SURROUNDINGS.items()
        }
    postgres.drop_database("daemon_faults")


@pytest.mark.real
@pytest.mark.parametrize("ill", list(SURROUNDINGS))
def test_nothing_moves_while_it_is_ill_and_everything_does_again_without_a_restart(
    stories: dict[str, Future[None]], ill: str
) -> None:
    stories[ill].result()
