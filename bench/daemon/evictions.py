"""Evictions per second of a plan, from the first reservation to the last outcome: `python -m bench.daemon.evictions`.

A plan of one eviction for each of many hot nodes, with limits that allow all of them, on SQLite and on a real
PostgreSQL that waits for the disk. Each call of the Eviction API answers after 50 ms, so one at a time would be 20 a
second at the most. Planning, reservations, scheduled assessments and outcomes are counted in. Prints one JSON object a
line; exit code 1 when an aim is missed.
"""

import argparse
import json
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from rebalancer.bootstrap.commands.contexts import acting_context
from rebalancer.bootstrap.process.settings import Settings
from rebalancer.cycle.context import NullProgress
from rebalancer.cycle.evict.calls import MAX_CALLS
from rebalancer.cycle.run import run_cycle
from rebalancer.lab import Lab
from rebalancer.model.decisions.eviction import Answer, Eviction, Outcome
from rebalancer.policy import RebalancerPolicy
from rebalancer.store import upgrade
from tests.real.servers.postgres import postgres_server
from tests.stories.scenarios.stage import START, a_machine, a_scenario, burner, service, stories_policy

HOT_NODES, LATENCY_SECONDS = 100, 0.05
AIM_PER_SECOND = 100.0
MANY = [{"max": 10_000, "per": "1h"}]
LIMITS = {
    "perCycle": 1000,
    "cluster": {"inFlight": 1000, "evictions": MANY},
    "service": {"inFlight": 10},
    "replacements": {"perNode": 100},
}


@dataclass(frozen=True)
class Slow:
    """An Eviction API that accepts every call after `LATENCY_SECONDS`."""

    def evict(self, eviction: Eviction, *, server_dry_run: bool = False) -> Answer:
        """Answer the call."""
        time.sleep(LATENCY_SECONDS)
        return Answer(outcome=Outcome.EVICTED)


def measure(url: str, folder: Path, hot_nodes: int) -> tuple[int, float]:
    """(evictions, seconds of the stage that plans and carries them out)"""
    names = [f"hot-{at:03}" for at in range(hot_nodes)]
    cluster = a_scenario(
        [*map(a_machine, names), *(a_machine(f"cool-{at:03}") for at in range(2 * hot_nodes))],
        *(burner(f"burner-{name}", name, 7.5) for name in names),
        *(service(f"s-{name}", {name: 2}, cpu=2.5) for name in names),
    )
    with Lab.start(cluster, stepped=True, start_time=START) as lab:
        policy = RebalancerPolicy.model_validate(stories_policy(lab, limits=LIMITS))
        settings = Settings(database=url, kubeconfig=str(lab.write_kubeconfig(folder / "config")))
        with acting_context(policy, settings, progress=NullProgress(), clock=lab.clock) as world:
            lab.clock.sleep(600.0)
            report = run_cycle(replace(world, evictor=Slow(), max_calls=MAX_CALLS), policy, dry_run=False).report
    return len(report.evictions), report.stages["relieve"]


def main() -> int:
    """Measure and print; 1 when an aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hot", type=int, default=HOT_NODES, help="nodes with an eviction each")
    arguments = parser.parse_args()
    missed = False
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="evictions-bench-")))
        server = stack.enter_context(postgres_server(durable=True))
        urls = {"SQLite": f"sqlite:///{folder / 'ledger.db'}", "PostgreSQL": server.create_database("bench")}
        for name, url in urls.items():
            upgrade(url)
            evictions, seconds = measure(url, folder, arguments.hot)
            holds = evictions / seconds >= AIM_PER_SECOND
            missed |= not holds
            line = {"bench": "evictions", "figure": f"{evictions} evictions of a plan, {name}"}
            line |= {"value": round(evictions / seconds, 1), "unit": "1/s", "aim": AIM_PER_SECOND, "holds": holds}
            print(json.dumps(line), flush=True)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
