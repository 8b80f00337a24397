"""Many processes and several clusters against shared limits: never over, and hardly under.

`REBALANCER_LEDGER_SECONDS` says for how long; 60 is what the limits were proven with. Without it the run is short, and
lenient about what a busy machine leaves unused.
"""

import json
import os
import sys

import pytest

from rebalancer.store import upgrade
from tests.store.programs.load import Load, workers
from tests.store.readers import MICRO, counted_times, fullest_window, read_rows

SECONDS = float(os.environ.get("REBALANCER_LEDGER_SECONDS", "12"))
WINDOW_SECONDS = 2.0
USED_AT_LEAST = 0.95 if "REBALANCER_LEDGER_SECONDS" in os.environ else 0.3
"""Share of what the limit allows. A short run on a busy machine only shows that the limit is used and never passed."""

pytestmark = [pytest.mark.timeout(SECONDS + 120), pytest.mark.quiet]


def check_load(url: str, load: Load, clusters: list[str]) -> None:
    with workers(url, load, clusters) as started:
        found = [json.loads(process.communicate(timeout=load.seconds + 90)[0]) for process in started]
    assert [process.returncode for process in started] == [0] * len(clusters)
    rows = read_rows(url)

    answered = [record for each in found for record in each["records"]]
    assert len(set(answered)) == len(answered)
    assert set(answered) == {row.eviction for row in rows}, "an answer without its row, or a row without its answer"
    refused = {row.eviction for row in rows if row.outcome == "refused"}
    assert {row.eviction for row in rows if not row.counted} == refused
    assert {row.outcome for row in rows} == {"evicted", "unknown", "refused"}

    times, limits = counted_times(rows), load.limits()
    fullest = dict.fromkeys(limits, 0)
    for scope, each in times.items():
        if scope[0] in limits:
            fullest[scope[0]] = max(fullest[scope[0]], fullest_window(each, load.per_seconds))
    assert all(fullest[kind] <= limits[kind] for kind in limits), fullest

    # A limit of N in any window lets the (k * N)-th after the first one through after k windows, not before. How much
    # longer it took is what was left unused.
    everything = times["global", ""]
    windows = (len(everything) - 1) // load.at_most
    took = (everything[windows * load.at_most] - everything[0]) / MICRO
    used = windows * load.per_seconds / took
    denied = sum(each["denied"] for each in found)
    sys.stdout.write(
        f"\n{len(clusters)} processes, {len(set(clusters))} clusters, {load.seconds:g} s: {len(answered)} reserved, "
        f"{denied} denied, {len(refused)} refunded; fullest windows {fullest} of {limits}; "
        f"{windows} windows' worth took {took:.3f} s: {used:.2%} of what the limit allows\n"
    )
    assert windows >= int(load.seconds / load.per_seconds * USED_AT_LEAST) - 1
    assert USED_AT_LEAST <= used <= 1
    assert max(len(each["records"]) for each in found) < len(answered) / 2, "one process took it all"


@pytest.mark.real
def test_sixteen_processes_of_three_clusters_on_postgresql(postgres_url):
    upgrade(postgres_url)
    load = Load(seconds=SECONDS, per_seconds=WINDOW_SECONDS, at_most=120)
    check_load(postgres_url, load, [("blue", "green", "red")[number % 3] for number in range(16)])


def test_four_processes_on_sqlite(sqlite_url):
    upgrade(sqlite_url)
    load = Load(seconds=SECONDS, per_seconds=WINDOW_SECONDS, at_most=60)
    check_load(sqlite_url, load, ["blue", "green", "blue", "green"])
