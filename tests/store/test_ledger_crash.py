"""Killed (`kill -9`) at any step of an eviction, the ledger agrees with the cluster after the next start."""

import signal
import subprocess
import sys
import time

import pytest

from rebalancer.model.decisions.eviction import Outcome
from rebalancer.model.decisions.limits import Denied
from rebalancer.store import SqlLedger, SqlRecords, open_engine
from tests.builders import set_fields
from tests.store.builders import (
    CLUSTER,
    GLOBAL,
    FakeReader,
    PodSeen,
    SteppingClock,
    build_eviction,
    build_report,
    rate,
)
from tests.store.programs.crash import AT_MOST, STEPS
from tests.store.readers import cycle_report, read_rows


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_any_step_the_ledger_agrees_with_the_cluster(url, tmp_path, step):
    pods = tmp_path / "pods"
    pods.mkdir()
    names = [f"web-{number}" for number in range(1, 7)]
    for name in names:
        (pods / name).touch()

    program = [sys.executable, "-m", "tests.store.programs.crash", url, str(pods), step]
    died = subprocess.run(program, check=False, timeout=60)
    assert died.returncode == -signal.SIGKILL

    # before anything is reconciled: whatever may have happened is counted
    gone = {name for name in names if not (pods / name).exists()}
    assert len(counted(url)) >= len(gone)

    engine = open_engine(url)
    # no call can be on its way any more
    clock = SteppingClock(time.time() + 120)
    records, ledger = (made(engine=engine, cluster=CLUSTER, clock=clock) for made in (SqlRecords, SqlLedger))
    alive = {("shop", name): PodSeen(uid=f"uid-{name}") for name in names if name not in gone}
    ledger.reconcile_outcomes(FakeReader(pods=alive))

    assert ledger.unreconciled() == []
    rows = cycle_report(records, "killed")["evictions"]
    assert {row["pod"] for row in rows if row["outcome"] == "evicted"} == gone
    assert counted(url) == {row["id"] for row in rows if row["outcome"] == "evicted"}
    assert {row["pod"]: row["outcome"] for row in rows}["web-1"] == "evicted"
    assert len(SqlLedger(engine=engine, cluster=CLUSTER).open_evictions()) == len(gone)

    # the next leader gets what is left of the limit, not more
    ledger = SqlLedger(engine=engine, cluster=CLUSTER)
    report = build_report(cycle="next")
    records.begin(report)
    for name in names:
        if name in gone:
            continue
        eviction = build_eviction(pod=name)
        answer = ledger.reserve(report, eviction, checks=[rate(GLOBAL, AT_MOST, 3600)], term=2)
        if isinstance(answer, Denied):
            break
        (pods / name).unlink()
        set_fields(eviction, record=answer, outcome=Outcome.EVICTED)
        ledger.outcome(eviction)
    assert sum(not (pods / name).exists() for name in names) == AT_MOST
    engine.dispose()


def counted(url: str) -> set[int]:
    return {row.eviction for row in read_rows(url) if row.counted}
