"""Reservations and outcomes of several evictions of a plan: one transaction, each counted by itself."""

import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rebalancer.model.decisions.eviction import Outcome
from rebalancer.model.decisions.limits import Denied, Scope
from rebalancer.model.errors import ConnectError, UnsafeDataError
from rebalancer.store.ledger import outcomes
from tests.builders import set_fields
from tests.store.builders import GLOBAL, build_eviction, build_scopes, in_flight, rate, spacing
from tests.store.readers import counted_times, cycle_report, fullest_window, in_flight_now, read_rows
from tests.store.scenarios.ledger_cluster import Cluster

WEB, DB = Scope("service", "shop/web"), Scope("service", "shop/db")
WINDOW_SECONDS = 3600.0


def reserve_all(cluster, *wanted, term=None):
    """`wanted`: the service and checks of each."""
    evictions = [
        (build_eviction(cluster=cluster.name, service=service, pod=f"{service}-{at}"), checks)
        for at, (service, *checks) in enumerate(wanted)
    ]
    answers = cluster.ledger.reserve_all(cluster.report, evictions, term=term)
    for (eviction, _), answer in zip(evictions, answers, strict=True):
        set_fields(eviction, record=None if isinstance(answer, Denied) else answer)
    return answers, [eviction for eviction, _ in evictions if eviction.reserved.record is not None]


def test_reservations_that_go_together_count_one_after_the_other(url, blue):
    limit, web = rate(GLOBAL, 3), in_flight(WEB, 1)
    answers, made = reserve_all(blue, ("web", limit, web), ("web", limit, web), ("db", limit), ("db", limit), term=4)
    # the second is denied, and takes nothing from those after it
    assert answers[1] == Denied(check=web, used=1, next_at=None)
    assert [isinstance(each, Denied) for each in answers] == [False, True, False, False]
    assert sorted(each.reserved.record for each in made) == [each.reserved.record for each in made]
    rows = read_rows(url)
    assert sorted({row.eviction for row in rows}) == [each.reserved.record for each in made]
    assert len(rows) == 3 * len(build_scopes())
    assert {each["lease_term"] for each in cycle_report(blue.records, blue.report.id)["evictions"]} == {4}
    assert blue.ledger.sequence == 3
    answers, made = reserve_all(blue, ("db", limit), ("db", limit), term=4)
    assert [each.check for each in answers] == [limit, limit]
    assert (made, blue.ledger.sequence) == ([], 3)


def test_spacing_admits_one_of_those_that_go_together(blue):
    answers, made = reserve_all(blue, *[("web", spacing(GLOBAL, 30.0))] * 3)
    assert [isinstance(each, Denied) for each in answers] == [False, True, True]
    assert len(made) == 1


def test_an_older_term_reserves_none_of_those_that_go_together(url, blue):
    blue.ledger.fence(5)
    with pytest.raises(UnsafeDataError, match="stale"):
        reserve_all(blue, ("web", rate(GLOBAL, 9)), ("db", rate(GLOBAL, 9)), term=4)
    assert read_rows(url) == []


def test_outcomes_that_go_together_refund_what_did_not_happen(url, blue):
    _, made = reserve_all(blue, *[("web", rate(GLOBAL, 9))] * 4)
    set_fields(made[0], outcome=Outcome.EVICTED)
    set_fields(made[1], outcome=Outcome.REFUSED)
    set_fields(made[2], outcome=Outcome.UNKNOWN)
    blue.ledger.outcomes([made[2], made[0], made[1]])
    counted = {row.eviction: row.counted for row in read_rows(url)}
    assert counted == {
        made[0].reserved.record: True,
        made[1].reserved.record: False,
        made[2].reserved.record: True,
        made[3].reserved.record: True,
    }
    rows = {row["id"]: row["outcome"] for row in cycle_report(blue.records, blue.report.id)["evictions"]}
    assert [rows[each.reserved.record] for each in made] == ["evicted", "refused", "unknown", "planned"]


def test_outcomes_that_were_not_written_are_still_counted_all_of_them(url, blue, monkeypatch):
    _, made = reserve_all(blue, *[("web", rate(GLOBAL, 9))] * 3)
    change, left = outcomes.change_eviction, iter(range(1))

    def fails(*arguments, **values):
        if next(left, None) is None:
            raise ConnectError("the database is away")
        change(*arguments, **values)

    monkeypatch.setattr(outcomes, "change_eviction", fails)
    for each in made:
        set_fields(each, outcome=Outcome.REFUSED)
    with pytest.raises(ConnectError):
        blue.ledger.outcomes(made)
    assert {row.counted for row in read_rows(url)} == {True}
    assert [each.reserved.record for each in blue.ledger.unreconciled()] == [each.reserved.record for each in made]


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    most=st.fixed_dictionaries({"global": st.integers(1, 12), "service": st.integers(1, 6)}),
    batches=st.lists(st.lists(st.sampled_from(["web", "db"]), min_size=1, max_size=8), min_size=2, max_size=4),
)
def test_batches_of_several_clusters_never_exceed_a_limit_and_use_it_up(engine, url, most, batches):
    """At once, each on a connection of its own. The examples share a database, so each has a scope of its own."""
    shared = Scope("pool", f"shared-{uuid.uuid4().hex}")
    everything, service = rate(shared, most["global"], WINDOW_SECONDS), in_flight(shared, most["service"])
    clusters = [Cluster(engine, None, f"c{at}-{shared.key}") for at in range(2)]

    def some(cluster):
        answers = []
        for batch in batches:
            evictions = [
                (
                    build_eviction(
                        cluster=cluster.name,
                        service=name,
                        scopes=(*build_scopes(cluster=cluster.name, service=name), shared),
                    ),
                    (everything, service),
                )
                for name in batch
            ]
            answers += cluster.ledger.reserve_all(cluster.report, evictions, term=1)
        return answers

    with ThreadPoolExecutor(2) as pool:
        answers = [each for found in pool.map(some, clusters) for each in found]
    rows = [row for row in read_rows(url) if tuple(row.scope) == tuple(shared)]
    reserved = [each for each in answers if not isinstance(each, Denied)]
    assert sorted(reserved) == sorted(row.eviction for row in rows)
    assert fullest_window(counted_times(rows).get(tuple(shared), []), WINDOW_SECONDS) <= most["global"]
    assert in_flight_now(rows).get(tuple(shared), 0) <= most["service"]
    assert len(reserved) == min(len(answers), most["global"], most["service"])
