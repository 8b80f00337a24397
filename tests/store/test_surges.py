"""The rows of surges: one at a time of each Deployment, changed only from the state that was read."""

from dataclasses import replace

import pytest

from rebalancer.model.decisions.eviction import Outcome
from rebalancer.model.decisions.surges import Surge, SurgeState
from rebalancer.store.ledger.reconcile import CALL_GRACE_SECONDS
from tests.cycle.test_surge_steps import a_surge
from tests.store.builders import NOW, FakeReader, PodSeen


def begun(blue, eviction, **fields) -> Surge | None:
    rows = blue.records.surges(clock=blue.ledger._clock)
    return rows.begin(a_surge(eviction=eviction.reserved.record, deadline_at=NOW + 60, quiet_at=NOW, **fields))


def test_a_surge_is_read_as_it_was_written(blue, green):
    surge = begun(blue, blue.reserve())
    assert surge is not None
    rows = blue.records.surges()
    assert (surge.state, surge.deadline_at, surge.quiet_at) == (SurgeState.STARTED, NOW + 60, NOW)
    assert rows.open() == [rows.get(surge.id)] == [surge]
    # another cluster's are not ours
    assert green.records.surges().open() == []


def test_a_deployment_has_one_at_a_time(blue, green):
    first, second = blue.reserve(), blue.reserve(pod="web-2")
    surge = begun(blue, first)
    assert begun(blue, second) is None
    assert begun(blue, second, deployment_uid="uid-other") is not None
    assert begun(green, green.reserve()) is not None
    assert blue.records.surges().change(surge, replace(surge, state=SurgeState.MOVED))
    assert begun(blue, second) is not None


def test_a_change_from_another_state_than_the_rows_changes_nothing(blue):
    surge, rows = begun(blue, blue.reserve()), blue.records.surges()
    grown = replace(surge, state=SurgeState.GROWN, quiet_at=NOW + 100)
    assert rows.change(surge, grown)
    assert not rows.change(surge, replace(surge, state=SurgeState.UNDOING, reason="late"))
    assert rows.get(surge.id) == grown


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (SurgeState.GROWN, ""),
        (SurgeState.UNDOING, ""),
        (SurgeState.MOVED, ""),
        (SurgeState.UNDONE, "late"),
        (SurgeState.LEFT, "late"),
    ],
)
def test_the_ledger_knows_which_evictions_in_flight_have_one_and_why_it_ended_in_vain(blue, state, reason):
    eviction, other = blue.reserve(), blue.reserve(pod="web-2")
    surge = begun(blue, eviction)
    blue.records.surges().change(surge, replace(surge, state=state, reason="late"))
    assert blue.ledger.surges() == {eviction.reserved.record: reason}
    blue.answer(eviction, Outcome.FAILED)
    assert blue.ledger.surges() == {}
    assert other.reserved.record


@pytest.mark.parametrize("over", [False, True])
@pytest.mark.parametrize("closed", [False, True])
def test_the_ledger_knows_which_deployments_may_show_one_pod_more(blue, green, over, closed):
    eviction = blue.reserve()
    surge = begun(blue, eviction)
    if over:
        blue.records.surges().change(surge, replace(surge, state=SurgeState.MOVED))
    if closed:
        blue.ledger.close(eviction.reserved.record, by="ann", reason="")
    assert blue.ledger.surging() == (set() if over and closed else {surge.deployment_uid})
    assert green.ledger.surging() == set()


@pytest.mark.parametrize("over", [False, True])
def test_an_eviction_without_an_answer_whose_surge_is_open_goes_on_in_the_background(blue, clock, over):
    eviction = blue.reserve()
    surge = begun(blue, eviction)
    if over:
        blue.records.surges().change(surge, replace(surge, state=SurgeState.UNDONE, reason="late"))
        clock.sleep(CALL_GRACE_SECONDS + 1)
    alive = FakeReader(pods={("shop", "web-1"): PodSeen(uid="uid-web-1")})
    (known,) = blue.ledger.reconcile_outcomes(alive)
    expected = (Outcome.FAILED, False) if over else (Outcome.EVICTED, True)
    assert (known.answered.outcome, known.answered.in_background) == expected
