"""When the daemon notifies of a cycle and of circuit breakers, and when it is silent."""

from dataclasses import replace

import pytest

from rebalancer.daemon.notifying import BREAKERS_EVERY_SECONDS, Notifier
from rebalancer.model.records.notifications import Notification
from rebalancer.notifications.outbox import Outbox
from rebalancer.policy.schema.notifications import Notifications
from tests.dashboard.test_views import Shown, it

__all__ = ["it"]


class Kept(Outbox):
    """An outbox that keeps what it is given."""

    def __init__(self) -> None:
        self.found: list[Notification] = []

    def put(self, notifications: object) -> None:
        self.found += notifications  # type: ignore[operator]


def notifier_of(shown: Shown, outbox: Kept, *, receivers: bool = True, dry_run: bool = False) -> Notifier:
    given = [{"name": "team", "slack": {"urlFile": "/unused"}}] if receivers else []
    notifications = Notifications.model_validate({"receivers": given})
    policy = shown.policy.model_copy(update={"notifications": notifications})
    active = replace(shown.sources.current(), policy=policy)
    sources = shown.sources
    return Notifier(outbox=outbox, active=lambda: active, ledger=sources.ledger, effect=sources.effect, dry_run=dry_run)


@pytest.mark.parametrize(("receivers", "dry_run"), [(False, False), (True, True)])
def test_without_receivers_and_in_a_dry_run_nothing_is_notified(it: Shown, receivers: bool, dry_run: bool) -> None:
    outbox = Kept()
    notifier = notifier_of(it, outbox, receivers=receivers, dry_run=dry_run)
    notifier.cycle_done(it.cycle("warm-1"))
    notifier.look(0.0)
    assert outbox.found == []


def test_the_evictions_of_a_cycle_are_notified_and_closed_breakers_are_not(it: Shown) -> None:
    outbox = Kept()
    notifier = notifier_of(it, outbox)
    notifier.cycle_done(it.cycle("warm-1"))
    notifier.look(0.0)
    [found] = outbox.found
    assert found.title == "test: 1 pod evicted from 1 node"


def test_a_breaker_is_repeated_while_it_is_open_and_new_again_to_a_new_leader(
    it: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox = Kept()
    notifier = notifier_of(it, outbox)
    breakers = {"pool a": "2 late"}
    monkeypatch.setattr("rebalancer.daemon.notifying.open_breakers_now", lambda *_: dict(breakers))
    for at in range(3):
        notifier.look(at * BREAKERS_EVERY_SECONDS / 2)  # the second is too early
    notifier.forget()
    notifier.look(10 * BREAKERS_EVERY_SECONDS)
    breakers["the cluster"] = "3 late"
    notifier.look(20 * BREAKERS_EVERY_SECONDS)
    breakers.clear()
    notifier.look(30 * BREAKERS_EVERY_SECONDS)
    found = [(each.labels["scope"], each.resolved, each.repeated) for each in outbox.found]
    assert found[:3] == [("pool a", False, False), ("pool a", False, True), ("pool a", False, False)]
    assert found[3:5] == [("pool a", False, True), ("the cluster", False, False)]
    assert sorted(found[5:]) == [("pool a", True, False), ("the cluster", True, False)]
