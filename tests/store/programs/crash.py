"""A daemon that is killed at one step of one eviction: `python -m tests.store.programs.crash URL PODS STEP`.

The cluster is a folder with a file for each pod. Before the eviction that is killed, one goes well.
"""

import os
import signal
import sys
import time
from pathlib import Path

import psycopg
from sqlalchemy import event

from rebalancer.model.decisions.eviction import Outcome
from rebalancer.store import SqlLedger, SqlRecords, open_engine
from tests.builders import set_fields
from tests.store.builders import (
    CLUSTER,
    GLOBAL,
    SteppingClock,
    build_eviction,
    build_report,
    rate,
)

STEPS = (
    "before the reservation",
    "with the locks held",
    "with the eviction written",
    "with the entries written",
    "after the reservation",
    "during the call, before it arrived",
    "during the call, after it arrived",
    "before the outcome",
    "with the outcome written",
    "after the outcome",
)
AT_MOST = 3


def main(url: str, pods: Path, step: str) -> None:
    """Evict web-1, then web-2, and die at `step` of the second."""
    engine = open_engine(url)
    ledger = SqlLedger(engine=engine, cluster=CLUSTER)
    report = build_report(cycle="killed")
    SqlRecords(engine=engine, cluster=CLUSTER, clock=SteppingClock(time.time())).begin(report)
    armed = False

    def reached(here: str) -> None:
        if armed and here == step:
            os.kill(os.getpid(), signal.SIGKILL)

    @event.listens_for(engine, "after_cursor_execute")
    def executed(_connection, _cursor, statement, *_):
        for text, here in (
            ("INTO scopes", STEPS[1]),
            ("INSERT INTO evictions", STEPS[2]),
            ("INSERT INTO entries", STEPS[3]),
            ("UPDATE evictions SET outcome", STEPS[8]),
        ):
            if text in statement:
                reached(here)

    def sent(connection, statement, *arguments, **named):
        cursor = execute(connection, statement, *arguments, **named)
        executed(connection, cursor, statement)
        return cursor

    # PostgreSQL's reservation is sent by the driver: what is sent before the commit ends with the process
    execute, psycopg.Connection.execute = psycopg.Connection.execute, sent

    for name in ("web-1", "web-2"):
        armed = name == "web-2"
        eviction = build_eviction(pod=name)
        reached(STEPS[0])
        checks = [rate(GLOBAL, AT_MOST, 3600)]
        set_fields(eviction, record=ledger.reserve(report, eviction, checks=checks, term=1))
        reached(STEPS[4])
        reached(STEPS[5])
        (pods / name).unlink()
        reached(STEPS[6])
        set_fields(eviction, outcome=Outcome.EVICTED)
        reached(STEPS[7])
        ledger.outcome(eviction)
        reached(STEPS[9])
    raise AssertionError(f"was not killed at {step!r}")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
