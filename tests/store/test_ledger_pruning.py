"""What no limit can see any more is dropped; what one can see, and what is in flight, never."""

import pytest

from rebalancer.model.decisions.eviction import Outcome
from rebalancer.model.decisions.limits import Scope
from rebalancer.model.errors import ConfigError
from rebalancer.store.retention.pruning import (
    BATCH,
    BATCHES_BY_ITSELF,
    EVERY_SECONDS,
    MARGIN_SECONDS,
    SILENT_SECONDS,
    prune_in,
)
from tests.store.builders import CLUSTER, GLOBAL, NOW, build_scopes, rate
from tests.store.readers import cycle_report, raw_connection, read_rows
from tests.store.scenarios.schemas import old_rows

DAY = 86_400.0
HOUR = 3600.0


def states(cluster, seconds):
    cluster.ledger.publish_global_limits(digest="d", text="{}", longest_window_seconds=seconds, nodes=3)


def moves(cluster, **fields):
    """An eviction whose replacement has landed."""
    eviction = cluster.answer(cluster.reserve(**fields), Outcome.EVICTED)
    cluster.ledger.landed(eviction.reserved.record, at=cluster.ledger.now())
    return eviction.reserved.record


def kept(url):
    return {row.eviction for row in read_rows(url)}


def scopes_in(url):
    with raw_connection(url) as connection:
        return {tuple(row) for row in connection.execute("SELECT kind, key FROM scopes").fetchall()}


def test_entries_that_are_older_than_every_window_go_and_the_others_stay(url, engine, blue, clock):
    states(blue, HOUR)
    old = moves(blue)
    clock.sleep(MARGIN_SECONDS + HOUR + 1)
    flying = blue.answer(blue.reserve(), Outcome.EVICTED).reserved.record
    young = moves(blue)
    clock.sleep(MARGIN_SECONDS)
    moved_now = moves(blue)
    assert kept(url) == {old, flying, young, moved_now}

    seen = prune_in(engine, clock=clock, dry_run=True)
    assert kept(url) == {old, flying, young, moved_now}
    done = prune_in(engine, clock=clock, dry_run=False)

    assert seen == done
    assert (done.entries, done.before) == (5, clock.now() - HOUR - MARGIN_SECONDS)
    assert kept(url) == {flying, young, moved_now}
    # rows of evictions are history: they stay
    assert len(cycle_report(blue.records, blue.report.id)["evictions"]) == 4


def test_what_is_in_flight_or_without_an_outcome_stays_however_old(url, engine, blue, clock):
    states(blue, HOUR)
    without, unknown = blue.reserve().reserved.record, blue.answer(blue.reserve(), Outcome.UNKNOWN).reserved.record
    late = blue.answer(blue.reserve(), Outcome.EVICTED).reserved.record
    blue.ledger.late(late)
    refunded = blue.answer(blue.reserve(), Outcome.REFUSED).reserved.record
    clock.sleep(400 * DAY)
    states(blue, HOUR)
    assert prune_in(engine, clock=clock, dry_run=False).entries == 5
    assert kept(url) == {without, unknown, late}
    assert refunded not in kept(url)
    assert len(blue.ledger.open_evictions()) == 3


def test_the_longest_look_of_any_cluster_decides(url, engine, blue, green, clock):
    states(blue, HOUR)
    states(green, 10 * DAY)
    moves(blue)
    clock.sleep(9 * DAY)
    assert prune_in(engine, clock=clock, dry_run=False).entries == 0
    # and the limit that needs it sees it: a service is the same in every cluster
    web = rate(Scope("service", "shop/web"), 1, 10 * DAY)
    assert green.reserve(web).used == 1
    clock.sleep(2 * DAY + 1)
    assert prune_in(engine, clock=clock, dry_run=False).entries == 5
    assert green.reserve(web).reserved.record


def test_older_than_may_be_no_shorter_than_what_a_limit_can_see(engine, blue, green, clock):
    states(blue, HOUR)
    states(green, 2 * DAY)
    moves(blue)
    clock.sleep(3 * DAY - 1)
    with pytest.raises(ConfigError, match="--older-than: the limits of cluster green look back 2d: expected at least"):
        prune_in(engine, clock=clock, older_than=2 * DAY - 1, dry_run=True)
    assert prune_in(engine, clock=clock, dry_run=True).entries == 0
    assert prune_in(engine, clock=clock, older_than=2 * DAY, dry_run=True).entries == 5
    assert prune_in(engine, clock=clock, older_than=90 * DAY, dry_run=True).entries == 0


def test_a_cluster_without_a_published_window_has_to_be_given_one(url, engine, blue, green, clock):
    states(blue, HOUR)
    moves(green)
    clock.sleep(10 * DAY)
    with pytest.raises(ConfigError, match="how far do the limits of green look back"):
        prune_in(engine, clock=clock, dry_run=False)
    blue.records.ledger_identity()
    blue.ledger.prune_at_times()
    assert len(kept(url)) == 1
    assert prune_in(engine, clock=clock, older_than=9 * DAY, dry_run=False).entries == 5


def test_scopes_that_nothing_counts_in_go_and_are_made_anew(url, engine, blue, clock):
    states(blue, HOUR)
    blue.reserve(term=7)
    blue.answer(blue.reserve(term=7, service="db", node="n2"), Outcome.FAILED)
    clock.sleep(3 * DAY)
    assert prune_in(engine, clock=clock, dry_run=True).scopes == 3
    assert prune_in(engine, clock=clock, dry_run=False).scopes == 3
    assert scopes_in(url) == {tuple(each) for each in build_scopes()}
    assert blue.ledger.last_term() == 7
    assert blue.reserve(rate(Scope("service", "shop/db"), 1), term=7, service="db").reserved.record


def test_the_rows_that_hold_a_term_and_the_global_one_stay(url, engine, blue, clock):
    states(blue, HOUR)
    blue.answer(blue.reserve(term=7), Outcome.FAILED)
    clock.sleep(3 * DAY)
    prune_in(engine, clock=clock, dry_run=False)
    assert scopes_in(url) == {tuple(GLOBAL), ("cluster", CLUSTER)}
    assert blue.ledger.last_term() == 7


def test_what_a_silent_cluster_published_is_dropped_after_a_month(engine, blue, green, clock):
    states(green, HOUR)
    green.ledger.publish_readiness({"shop/web": (3, 3)})
    clock.sleep(SILENT_SECONDS)
    states(blue, HOUR)
    blue.ledger.publish_readiness({"shop/web": (2, 2)})
    assert prune_in(engine, clock=clock, dry_run=False).clusters == ()
    clock.sleep(1)
    assert prune_in(engine, clock=clock, dry_run=True).clusters == ("green",)
    assert set(blue.ledger.global_limits()) == {CLUSTER, "green"}
    assert prune_in(engine, clock=clock, dry_run=False).clusters == ("green",)
    assert set(blue.ledger.global_limits()) == {CLUSTER}
    assert blue.ledger.remote_readiness(["shop/web"], max_age_seconds=1) == {}
    assert set(green.ledger.remote_readiness(["shop/web"], max_age_seconds=10)) == {"shop/web"}


def test_a_cluster_whose_limits_look_back_longer_may_be_silent_for_longer(engine, green, clock):
    states(green, 60 * DAY)
    clock.sleep(60 * DAY)
    assert prune_in(engine, clock=clock, dry_run=False).clusters == ()
    clock.sleep(1)
    assert prune_in(engine, clock=clock, dry_run=False).clusters == ("green",)


def test_a_cluster_that_reports_in_any_way_is_not_silent(engine, green, clock):
    states(green, HOUR)
    clock.sleep(SILENT_SECONDS)
    green.ledger.publish_readiness({"shop/web": (3, 3)})
    clock.sleep(1)
    assert prune_in(engine, clock=clock, dry_run=False).clusters == ()


def test_the_ledger_prunes_by_itself_once_an_hour_over_all_clusters(url, blue, green, clock):
    blue.records.ledger_identity()
    for cluster in (blue, green):
        states(cluster, HOUR)
    moves(blue)
    blue.ledger.prune_at_times()
    clock.sleep(EVERY_SECONDS - 1)
    moves(blue)
    # make both old without an hour passing
    with raw_connection(url) as connection:
        connection.execute("UPDATE entries SET at = '2025-01-01 00:00:00.000000'")
    green.ledger.prune_at_times()
    assert len(kept(url)) == 2
    clock.sleep(1)
    green.ledger.prune_at_times()
    assert kept(url) == set()
    moves(blue)
    with raw_connection(url) as connection:
        connection.execute("UPDATE entries SET at = '2025-01-01 00:00:00.000000'")
    blue.ledger.prune_at_times()
    assert len(kept(url)) == 1


def test_by_itself_it_drops_a_bounded_number_and_by_hand_all(url, engine, blue, clock):
    blue.records.ledger_identity()
    states(blue, HOUR)
    record = moves(blue)
    more = BATCH * BATCHES_BY_ITSELF + BATCH + 7
    numbers, old = old_rows(url, more)
    with raw_connection(url) as connection:
        connection.execute(
            "INSERT INTO entries (eviction, kind, key, at, counted, in_flight) "
            f"SELECT {record}, 'node', 'x', {old}, true, false FROM {numbers} AS m"
        )
    blue.ledger.prune_at_times()
    left = len(read_rows(url))
    assert left == more + 5 - BATCH * BATCHES_BY_ITSELF
    assert prune_in(engine, clock=clock, older_than=HOUR, dry_run=False).entries == left - 5


def test_nothing_is_there_nothing_is_dropped(engine, clock):
    done = prune_in(engine, clock=clock, dry_run=False)
    assert (done.entries, done.scopes, done.clusters) == (0, 0, ())
    assert done.before == NOW - MARGIN_SECONDS
