"""The verdict on the overview."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.model.decisions.limits import Pause, Scope
from rebalancer.model.records.cycles import EvictionTotals
from rebalancer.web.pages.verdict import Facts, Tone, verdict
from tests.web.builders import DAY, HOUR, NOW, a_cycle_line, a_node
from tests.web.fakes import Clients, Daemon
from tests.web.readers import read_page
from tests.web.scenarios import HandMade, the_app

GONE_WELL = EvictionTotals(happened=8, replaced=8)
ALL_REPLACED = "8 evictions in 24 h, all replaced"
WAITING = EvictionTotals(happened=8, replaced=5, in_flight=3, oldest_at=NOW - 40)
CLUSTER = Pause(scope=Scope("cluster", "blue"), reason="load test", created_by="ada", until=NOW + HOUR)
POOL = Pause(scope=Scope("pool", "blue/batch"), reason="a game day", created_by="bob", until=None)
RUNNING = a_cycle_line(id="running", started_at=NOW - 5, finished_at=None)
BY_HAND = a_cycle_line(id="by-hand", trigger="manual", dry_run=True, stopped="no Prometheus here")


def some_facts(**fields: Any) -> Facts:
    """Twelve cool nodes, a cycle a minute ago, eight evictions that went well."""
    given: dict[str, Any] = {
        "now": NOW,
        "nodes": 12,
        "hot": 0,
        "cycles": (a_cycle_line(),),
        "cycle_seconds": 120.0,
        "overdue_seconds": 420.0,
        "totals": GONE_WELL,
    }
    return Facts(**{**given, **fields})


CASES: Mapping[str, tuple[dict[str, Any], Tone, str]] = {
    "works": ({}, Tone.GOOD, f"Working and safe. {ALL_REPLACED}; 0 of 12 nodes hot"),
    "nothing to do": (
        {"totals": EvictionTotals()},
        Tone.GOOD,
        "Working and safe. No evictions in 24 h; 0 of 12 nodes hot",
    ),
    "one eviction": (
        {"totals": EvictionTotals(happened=1, replaced=1), "nodes": 1},
        Tone.GOOD,
        "Working and safe. 1 eviction in 24 h, replaced; 0 of 1 node hot",
    ),
    "in flight without a hot node": (
        {"totals": WAITING},
        Tone.GOOD,
        "Working and safe. 8 evictions in 24 h, 5 replaced, 3 in flight; 0 of 12 nodes hot",
    ),
    "unknown nodes": (
        {"unknown": 2},
        Tone.GOOD,
        f"Working and safe. {ALL_REPLACED}; 0 of 12 nodes hot, 2 unknown",
    ),
    "a late replacement": (
        {"totals": WAITING._replace(late=1)},
        Tone.WARN,
        "Working. 8 evictions in 24 h, 5 replaced, 2 in flight, 1 late; 0 of 12 nodes hot",
    ),
    "closed without a replacement": (
        {"totals": EvictionTotals(happened=8, replaced=7)},
        Tone.WARN,
        "Working. 8 evictions in 24 h, 7 replaced, 1 closed without a Ready replacement; 0 of 12 nodes hot",
    ),
    "waits for replacements": (
        {"hot": 2, "totals": WAITING},
        Tone.WATCH,
        "2 of 12 nodes hot: waiting for 3 replacements, 40s; 8 evictions in 24 h, 5 replaced, 3 in flight",
    ),
    "hot and late": (
        {"hot": 2, "totals": WAITING._replace(late=3)},
        Tone.WARN,
        "2 of 12 nodes hot: waiting for 3 replacements, 40s; 8 evictions in 24 h, 5 replaced, 3 late",
    ),
    "hot with refused pods": (
        {"hot": 2, "refusals": 17},
        Tone.WATCH,
        f"2 of 12 nodes hot: 17 pods stay for the reasons below; {ALL_REPLACED}",
    ),
    "hot and not evaluated yet": (
        {"hot": 1},
        Tone.WATCH,
        f"1 of 12 nodes hot: a cycle is due every 2m; {ALL_REPLACED}",
    ),
    "no database": (
        {"database_problem": "connection refused", "cycles": (), "totals": EvictionTotals(), "hot": 2},
        Tone.ALARM,
        "Not working: the database is not available, so nothing is evicted",
    ),
    "no nodes": (
        {"cluster_problem": "the API server answered 500", "nodes": 0},
        Tone.ALARM,
        "Not working: the nodes are not known: the API server answered 500",
    ),
    "no CPU": (
        {"cluster_problem": "Prometheus answered 500", "unknown": 12},
        Tone.ALARM,
        "Not working: the CPU of no node is known; Prometheus answered 500",
    ),
    "no cycle for long": (
        {"cycles": (a_cycle_line(started_at=NOW - 900, finished_at=NOW - 840),)},
        Tone.ALARM,
        "Not working: no cycle for 14m, and one is due every 2m",
    ),
    "a cycle that does not end": (
        {"cycles": (a_cycle_line(started_at=NOW - 900, finished_at=None), a_cycle_line(finished_at=NOW - 1000))},
        Tone.ALARM,
        "Not working: no cycle for 15m, and one is due every 2m",
    ),
    "no cycle of this leader": (
        {"overdue": "the last one ended 900s ago, one is due every 120s", "cycles": (RUNNING,)},
        Tone.ALARM,
        "Not working: no cycle in time: the last one ended 900s ago, one is due every 120s",
    ),
    "a cycle under way": (
        {"cycles": (RUNNING, a_cycle_line(finished_at=NOW - 1000))},
        Tone.GOOD,
        f"Working and safe. {ALL_REPLACED}; 0 of 12 nodes hot",
    ),
    "no period": (
        {
            "cycles": (a_cycle_line(finished_at=NOW - 9 * DAY),),
            "cycle_seconds": float("inf"),
            "overdue_seconds": float("inf"),
        },
        Tone.GOOD,
        f"Working and safe. {ALL_REPLACED}; 0 of 12 nodes hot",
    ),
    "hot without a period": (
        {"hot": 1, "cycle_seconds": float("inf"), "overdue_seconds": float("inf")},
        Tone.WATCH,
        f"1 of 12 nodes hot: cycles start by alerts alone; {ALL_REPLACED}",
    ),
    "stopped": (
        {"cycles": (a_cycle_line(stopped="34% of the nodes have no fresh sample"),)},
        Tone.ALARM,
        "Not working: the last cycle decided nothing: 34% of the nodes have no fresh sample",
    ),
    "a user's dry run in between": (
        {"cycles": (BY_HAND, a_cycle_line())},
        Tone.GOOD,
        f"Working and safe. {ALL_REPLACED}; 0 of 12 nodes hot",
    ),
    "cycles of a user alone": (
        {"cycles": (BY_HAND,)},
        Tone.ALARM,
        "Not working: the last cycle decided nothing: no Prometheus here",
    ),
    "starting": ({"cycles": ()}, Tone.WATCH, "Starting: no cycle has ended yet"),
    "first cycle": ({"cycles": (RUNNING,)}, Tone.WATCH, "Starting: no cycle has ended yet"),
    "dry run": (
        {"cycles": (a_cycle_line(dry_run=True),), "totals": EvictionTotals(dry=12), "hot": 2},
        Tone.WARN,
        "Dry run: 12 pods would have been evicted in 24 h; 2 of 12 nodes hot",
    ),
    "paused": (
        {"pauses": (POOL, CLUSTER), "hot": 1},
        Tone.WARN,
        f"Paused: by ada until 2026-09-22 14:00 UTC: load test; {ALL_REPLACED}; 1 of 12 nodes hot; paused: pool batch",
    ),
    "a part paused": (
        {"pauses": (POOL,)},
        Tone.GOOD,
        f"Working and safe. {ALL_REPLACED}; 0 of 12 nodes hot; paused: pool batch",
    ),
    "paused for good": (
        {"pauses": (replace(CLUSTER, until=None),)},
        Tone.WARN,
        f"Paused: by ada until resumed: load test; {ALL_REPLACED}; 0 of 12 nodes hot",
    ),
    "circuit breaker": (
        {"stopped_scopes": ("pool general",), "totals": WAITING._replace(late=3)},
        Tone.ALARM,
        "Not evicting in pool general: the circuit breaker is open; "
        "8 evictions in 24 h, 5 replaced, 3 late; 0 of 12 nodes hot",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_verdict_is_one_line(case: str) -> None:
    fields, tone, line = CASES[case]
    found = verdict(some_facts(**fields))
    assert (found.tone, f"{found.title} {found.text}") == (tone, line)


totals = st.tuples(*[st.integers(0, 20)] * 4).map(
    lambda n: EvictionTotals(
        happened=n[0] + n[1] + n[2],
        replaced=n[0],
        in_flight=n[1],
        late=min(n[1], n[3]),
        oldest_at=NOW - 60 if n[1] else None,
    )
)
cycles = st.lists(
    st.builds(
        a_cycle_line,
        finished_at=st.none() | st.just(NOW - 60),
        trigger=st.sampled_from(["periodic", "manual"]),
        dry_run=st.booleans(),
        stopped=st.sampled_from(["", "stale"]),
    ),
    max_size=5,
)
facts = st.builds(
    some_facts,
    hot=st.integers(0, 3),
    cycles=cycles,
    totals=totals,
    pauses=st.lists(st.sampled_from([POOL, CLUSTER])),
    stopped_scopes=st.sampled_from([(), ("pool general",)]),
    database_problem=st.sampled_from(["", "refused"]),
    refusals=st.integers(0, 5),
)


@given(facts)
def test_only_what_works_without_a_blemish_is_called_safe(of: Facts) -> None:
    found = verdict(of)
    assert found.title
    assert found.text
    safe = (
        not (of.hot or of.totals.late or of.totals.closed or of.stopped_scopes or of.database_problem)
        and of.ended is not None
        and not (of.ended.dry_run or of.ended.stopped)
        and CLUSTER not in of.pauses
    )
    assert (found.tone is Tone.GOOD) == safe == (found.title == "Working and safe.")


def overview(clients: Clients, daemon: Daemon, shown: HandMade) -> Any:
    return read_page(clients(the_app(shown, daemon)).get("/").body).one("main")


def test_the_page_begins_with_the_verdict(clients: Clients, daemon: Daemon) -> None:
    shown = HandMade(verdict=verdict(some_facts(hot=2, totals=WAITING)))
    page = overview(clients, daemon, shown)
    line = page.one("p", class_="verdict")
    assert line.attributes["class"].split() == ["verdict", "watch"]
    assert line.text.startswith("2 of 12 nodes hot: waiting for 3 replacements, 40s")
    assert page.text.index(line.text) == len("Overview of blue ")


def test_counters_that_are_zero_are_not_on_the_page(clients: Clients, daemon: Daemon) -> None:
    cool = overview(clients, daemon, HandMade(nodes=[a_node("node-1", 0.4), a_node("node-2", 0.5)]))
    assert cool.all("ul", class_="facts") == []
    nodes = [a_node("node-1", 0.9, soft_tainted="hot"), a_node("node-2", None, cordoned=True)]
    busy = overview(clients, daemon, HandMade(nodes=nodes))
    counters = [each.text for each in busy.one("ul", class_="facts").all("li")]
    assert counters == ["1 hot", "1 soft-tainted", "1 cordoned", "1 unknown"]
