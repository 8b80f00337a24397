"""Alerts in the database: written once, never lost, never opened twice."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Engine, func, select

from rebalancer.model.decisions.alerts import Alert, AlertEpisode, EpisodeState, Received
from rebalancer.store import SqlRecords, open_records
from rebalancer.store.db.tables import ALERT_EPISODES
from rebalancer.store.inbox import AT_ONCE, MOST_DUE, PART, SqlInbox
from rebalancer.store.retention.pruning import prune_in
from tests.store.builders import CLUSTER, SteppingClock

HOUR = 3600.0
NEVER = 10 * 365 * 86400.0


@pytest.fixture
def at() -> SteppingClock:
    return SteppingClock(1_800_000_000.0)


@pytest.fixture
def inbox(url: str, at: SteppingClock, clock: SteppingClock) -> Iterator[SqlInbox]:
    with open_records(url=url, cluster=CLUSTER, clock=clock) as records:
        yield records.inbox(clock=at)


def alert(
    at: SteppingClock, fingerprint: str = "f1", *, firing: bool = True, started: float = 60.0, **fields: Any
) -> Alert:
    return Alert(
        fingerprint=fingerprint,
        firing=firing,
        labels=fields.pop("labels", {"alertname": "NodeHot", "node": "n1"}),
        starts_at=at.at - started,
        **fields,
    )


def receive(inbox: SqlInbox, *alerts: Alert) -> Received:
    return inbox.receive(alerts, max_age_seconds=12 * HOUR)


def due(inbox: SqlInbox, expire_after: float = HOUR) -> list[AlertEpisode]:
    return inbox.due(expire_after_seconds=expire_after)


def test_an_alert_is_due_at_once_with_all_of_its_fields(inbox: SqlInbox, at: SteppingClock) -> None:
    one = alert(at, annotations={"rebalancer_high": "60"}, labels={"alertname": "NodeHot", "node": "nö"})
    assert receive(inbox, one) == Received(opened=1)
    [episode] = due(inbox)
    assert episode.alert == one
    assert (episode.attempts, episode.reason, episode.received_at) == (0, "", at.at)
    assert inbox.next_at() == at.at
    assert inbox.open_count() == 1


def test_the_same_delivery_again_changes_nothing(inbox: SqlInbox, at: SteppingClock) -> None:
    one = alert(at)
    receive(inbox, one)
    first = due(inbox)
    assert receive(inbox, one, one) == Received(duplicate=1)
    assert due(inbox) == first


def test_a_start_to_the_nanosecond_is_known_again(inbox: SqlInbox, at: SteppingClock) -> None:
    one = alert(at, started=60.0000001234)
    assert receive(inbox, one).opened == 1
    assert receive(inbox, one) == Received(duplicate=1)


def test_what_was_tried_comes_back_when_its_time_has_come(inbox: SqlInbox, at: SteppingClock) -> None:
    receive(inbox, alert(at))
    [episode] = due(inbox)
    inbox.tried(episode, reason="a window", next_at=at.at + 30)
    assert due(inbox) == []
    assert inbox.next_at() == at.at + 30
    at.at += 30
    [again] = due(inbox)
    assert (again.attempts, again.reason) == (1, "a window")


def test_a_resolved_alert_is_over(inbox: SqlInbox, at: SteppingClock) -> None:
    receive(inbox, alert(at))
    assert receive(inbox, alert(at, firing=False)) == Received(resolved=1)
    assert due(inbox) == []
    assert receive(inbox, alert(at, firing=False)) == Received()


def test_what_is_over_is_not_opened_by_a_replay(inbox: SqlInbox, at: SteppingClock) -> None:
    receive(inbox, alert(at))
    receive(inbox, alert(at, firing=False))
    assert receive(inbox, alert(at)) == Received(duplicate=1)
    assert due(inbox) == []


def test_a_new_start_is_a_new_episode_and_ends_the_one_before(inbox: SqlInbox, at: SteppingClock) -> None:
    receive(inbox, alert(at, started=600))
    assert receive(inbox, alert(at, started=10)) == Received(opened=1, resolved=1)
    [episode] = due(inbox)
    assert episode.alert.starts_at == at.at - 10


def test_an_alert_of_yesterday_that_is_not_known_is_a_replay(inbox: SqlInbox, at: SteppingClock) -> None:
    assert receive(inbox, alert(at, started=13 * HOUR)) == Received(too_old=1)
    assert due(inbox) == []


def test_an_alert_that_fires_since_yesterday_goes_on(inbox: SqlInbox, at: SteppingClock) -> None:
    one = alert(at)
    receive(inbox, one)
    at.at += 13 * HOUR
    assert receive(inbox, one) == Received(duplicate=1)
    assert [each.alert for each in due(inbox)] == [one]


def test_an_episode_that_nothing_is_heard_of_expires(inbox: SqlInbox, at: SteppingClock) -> None:
    receive(inbox, alert(at, "quiet"), alert(at, "loud"))
    at.at += HOUR - 1
    receive(inbox, alert(at, "loud", started=60 + HOUR - 1))
    at.at += 1
    assert [each.alert.fingerprint for each in due(inbox)] == ["loud"]
    assert inbox.open_count() == 1


def test_a_refused_episode_is_over(inbox: SqlInbox, at: SteppingClock) -> None:
    receive(inbox, alert(at))
    [episode] = due(inbox)
    inbox.close(episode, state=EpisodeState.REFUSED, reason="no such node")
    assert due(inbox, NEVER) == []
    inbox.tried(episode, reason="too late", next_at=at.at)
    assert due(inbox, NEVER) == []


@pytest.mark.parametrize("over", ["expired", "refused"])
def test_what_was_given_up_is_open_again_when_the_alert_is_heard_of_again(
    inbox: SqlInbox, at: SteppingClock, over: str
) -> None:
    one = alert(at)
    receive(inbox, one)
    [episode] = due(inbox)
    if over == "refused":
        inbox.close(episode, state=EpisodeState.REFUSED, reason="no rule")
    else:
        at.at += 2 * HOUR
    assert due(inbox) == []
    assert receive(inbox, one) == Received(duplicate=1)
    assert [each.alert for each in due(inbox)] == [one]


def test_changed_annotations_of_a_known_alert_are_taken_over(inbox: SqlInbox, at: SteppingClock) -> None:
    receive(inbox, alert(at, annotations={"rebalancer_high": "60"}))
    receive(inbox, alert(at, annotations={"rebalancer_high": "70"}))
    [episode] = due(inbox)
    assert episode.alert.annotations == {"rebalancer_high": "70"}


def test_clusters_that_share_a_database_have_an_inbox_each(url: str, at: SteppingClock, clock: SteppingClock) -> None:
    with (
        open_records(url=url, cluster="a", clock=clock) as one,
        open_records(url=url, cluster="b", clock=clock) as two,
    ):
        receive(one.inbox(clock=at), alert(at))
        receive(two.inbox(clock=at), alert(at, firing=False))
        assert due(two.inbox(clock=at)) == []
        assert len(due(one.inbox(clock=at))) == 1


def test_what_is_over_is_dropped_after_a_month_and_what_is_open_never(
    inbox: SqlInbox, at: SteppingClock, engine: Engine
) -> None:
    receive(inbox, alert(at, "over"), alert(at, "open"))
    receive(inbox, alert(at, "over", firing=False))
    for days, left in ((29, 2), (32, 1)):
        at.at += days * 86_400.0 if days == 29 else 3 * 86_400.0
        prune_in(engine, clock=at, older_than=0.0, dry_run=False)
        with engine.connect() as connection:
            assert connection.execute(select(func.count()).select_from(ALERT_EPISODES)).scalar_one() == left
    assert inbox.open_count() == 1


def test_a_storm_goes_in_whole(inbox: SqlInbox, at: SteppingClock) -> None:
    storm = [alert(at, f"f{number}") for number in range(PART + 3 * AT_ONCE + 7)]
    assert receive(inbox, *storm) == Received(opened=len(storm))
    assert receive(inbox, *storm) == Received(duplicate=len(storm))
    again = [replace(each, starts_at=each.starts_at + 1) for each in storm]
    assert receive(inbox, *again) == Received(opened=len(storm), resolved=len(storm))
    over = [replace(each, firing=False) for each in again]
    assert receive(inbox, *over) == Received(resolved=len(storm))
    assert inbox.open_count() == 0


def test_a_cycle_gets_some_episodes_of_a_storm_and_the_next_cycle_others(inbox: SqlInbox, at: SteppingClock) -> None:
    storm = [alert(at, f"f{number}") for number in range(2 * MOST_DUE + 7)]
    receive(inbox, *storm)
    seen: list[str] = []
    for count in (MOST_DUE, MOST_DUE, 7):
        episodes = due(inbox)
        assert len(episodes) == count
        for each in episodes:
            inbox.tried(each, reason="", next_at=at.at + 60)
        seen += [each.alert.fingerprint for each in episodes]
        at.sleep(1)
    assert sorted(seen) == sorted(each.fingerprint for each in storm)


def test_what_there_is_no_time_for_is_left_to_the_same_delivery_again(
    url: str, at: SteppingClock, clock: SteppingClock
) -> None:
    seconds = iter(range(1000))
    with open_records(url=url, cluster=CLUSTER, clock=clock) as records:
        slow = SqlInbox(engine=records._engine, cluster=CLUSTER, clock=at, monotonic=lambda: float(next(seconds)))
        storm = [alert(at, f"f{number}") for number in range(3 * PART)]

        def deliver() -> Received:
            return slow.receive(storm, max_age_seconds=HOUR, seconds=2.0)

        assert deliver() == Received(opened=PART, deferred=2 * PART)
        assert deliver() == Received(opened=PART, deferred=2 * PART)
        assert slow.open_count() == 2 * PART
        assert deliver() == Received(opened=PART, deferred=2 * PART)
        assert slow.open_count() == 3 * PART


def test_of_a_delivery_that_says_both_the_end_holds(inbox: SqlInbox, at: SteppingClock) -> None:
    one = alert(at)
    assert receive(inbox, replace(one, firing=False), one) == Received(opened=1, resolved=1)
    assert inbox.open_count() == 0


def test_two_replicas_that_get_the_same_delivery_open_one_episode(
    url: str, at: SteppingClock, clock: SteppingClock
) -> None:
    replicas: list[SqlRecords] = [open_records(url=url, cluster=CLUSTER, clock=clock) for _ in range(4)]
    storm = [alert(at, f"f{number}") for number in range(50)]
    with ThreadPoolExecutor(4) as pool:
        for number, each in enumerate(replicas):
            pool.submit(receive, each.inbox(clock=at), *(storm if number % 2 else reversed(storm)))
    assert len(due(replicas[0].inbox(clock=at))) == len(storm)
    for each in replicas:
        each.close()
