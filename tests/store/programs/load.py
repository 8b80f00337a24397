"""One process that reserves as fast as the limits let it:
`python -m tests.store.programs.load URL CLUSTER NAME OPTIONS`.

It acts as a cluster's daemon does, one eviction after another, each of a random service; some calls are refused, some
time out. On a denial it waits until the ledger says that there is room. Prints one JSON object at the end.
"""

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from rebalancer.model.decisions.eviction import Outcome
from rebalancer.model.decisions.limits import Check, Denied, Scope
from rebalancer.store import SqlLedger, SqlRecords, open_engine
from tests.builders import set_fields
from tests.store.builders import GLOBAL, SteppingClock, build_eviction, build_report

SERVICES = 12
MAY_BE_DOWN = 5
"""Of each service, over all clusters."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """What all processes agree on."""

    seconds: float
    per_seconds: float
    at_most: int
    """Of all clusters, in any window; half as many of each cluster, a sixth of each service."""

    def limits(self) -> dict[str, int]:
        """Kind of scope -> at most so many in `per_seconds`."""
        return {"global": self.at_most, "cluster": self.at_most // 2, "service": self.at_most // 6}

    def checks(self, scopes: Sequence[Scope]) -> list[Check]:
        limits = self.limits()
        found = [
            Check(scope=each, kind="rate", at_most=limits[each.kind], per_seconds=self.per_seconds)
            for each in scopes
            if each.kind in limits
        ]
        services = [each for each in scopes if each.kind == "service"]
        return found + [Check(scope=each, kind="inFlight", at_most=MAY_BE_DOWN) for each in services]


@contextmanager
def workers(url: str, load: Load, clusters: Sequence[str]) -> Iterator[list[subprocess.Popen[str]]]:
    """One process for each of `clusters` (a name may come again); none of them outlives the block."""
    options = json.dumps(asdict(load))
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.store.programs.load", url, cluster, f"{cluster}-{number}", options],
            stdout=subprocess.PIPE,
            stdin=subprocess.PIPE,
            text=True,
        )
        for number, cluster in enumerate(clusters)
    ]
    try:
        # all begin at once: importing takes a while on a busy machine
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in started:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()


def run(url: str, cluster: str, name: str, load: Load) -> dict[str, object]:
    """Reserve for `load.seconds`; what came of it."""
    chance = random.Random(name)
    engine = open_engine(url, busy_timeout_seconds=30.0)
    ledger = SqlLedger(engine=engine, cluster=cluster)
    report = build_report(cycle=f"cycle-of-{name}")
    SqlRecords(engine=engine, cluster=cluster, clock=SteppingClock(time.time())).begin(report)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    records, denied = [], 0
    until = time.monotonic() + load.seconds
    while time.monotonic() < until:
        service, node = f"s{chance.randrange(SERVICES)}", f"n{chance.randrange(50)}"
        scopes = (
            GLOBAL,
            Scope("cluster", cluster),
            Scope("node", f"{cluster}/{node}"),
            Scope("service", f"x/{service}"),
        )
        pod, late_at = f"{name}-{len(records)}", time.time() + 60
        eviction = build_eviction(pod=pod, service=service, node=node, scopes=scopes, deadline_at=late_at)
        answer = ledger.reserve(report, eviction, checks=load.checks(scopes), term=1)
        if isinstance(answer, Denied):
            denied += 1
            if answer.next_at is not None and answer.check.scope.kind != "service":
                time.sleep(min(max(answer.next_at - time.time(), 0.0), load.per_seconds))
            continue
        records.append(answer)
        set_fields(eviction, record=answer)
        set_fields(eviction, outcome=chance.choices((Outcome.EVICTED, Outcome.UNKNOWN, Outcome.REFUSED), (94, 3, 3))[0])
        ledger.outcome(eviction)
        if eviction.answered.outcome is not Outcome.REFUSED:
            ledger.landed(answer, at=time.time())
    engine.dispose()
    return {"records": records, "denied": denied}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run(*sys.argv[1:4], Load(**json.loads(sys.argv[4])))))
