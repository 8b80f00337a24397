"""One queue for every trigger: what comes together is merged, nothing is lost."""

import threading
import time
from itertools import pairwise

from rebalancer.cycle.triggers.request import CycleRequest, RequestScope
from rebalancer.daemon.serve import StoppableClock
from rebalancer.daemon.triggers import Timer, TriggerQueue
from rebalancer.model.decisions.alerts import ThresholdOverride
from rebalancer.model.decisions.plan import Trigger
from tests.builders import a_policy

POOLS = {"n1": "general", "n2": "general", "n3": "gpu"}


def marks(node: str, high: float = 0.6) -> ThresholdOverride:
    return ThresholdOverride(node=node, strategy="LowNodeUtilization", high=high, target=high - 0.1, source="alert Hot")


def request(*scopes: RequestScope, trigger: Trigger = Trigger.PERIODIC, **fields: object) -> CycleRequest:
    return CycleRequest(trigger=trigger, scopes=frozenset(scopes), **fields)  # type: ignore[arg-type]


def test_a_request_without_a_scope_of_its_own_asks_for_everything() -> None:
    assert CycleRequest().nodes_for("LowNodeUtilization", POOLS) is None


def test_a_scope_asks_for_its_strategy_pools_and_nodes_only() -> None:
    asked = request(
        RequestScope(strategy="A", pools=frozenset({"general"})), RequestScope(strategy="B", nodes=frozenset({"n3"}))
    )
    assert asked.nodes_for("A", POOLS) == {"n1", "n2"}
    assert asked.nodes_for("B", POOLS) == {"n3"}
    assert asked.nodes_for("C", POOLS) == set()


def test_a_node_that_is_in_no_pool_is_not_looked_at() -> None:
    assert request(RequestScope(nodes=frozenset({"n1", "stranger"}))).nodes_for("A", POOLS) == {"n1"}


def test_two_requests_together_ask_for_what_either_asks() -> None:
    one = request(RequestScope(strategy="A", pools=frozenset({"gpu"})))
    two = request(RequestScope(nodes=frozenset({"n1"})), trigger=Trigger.ALERT, thresholds={("n1", "cpu"): marks("n1")})
    both = one.merged(two)
    assert both.nodes_for("A", POOLS) == {"n1", "n3"}
    assert both.nodes_for("B", POOLS) == {"n1"}
    assert both.trigger is Trigger.ALERT
    assert both.thresholds["n1", "cpu"].high == 0.6


def test_the_most_urgent_trigger_names_the_merged_cycle_whatever_the_order() -> None:
    urgent = [Trigger.PERIODIC, Trigger.FORECAST, Trigger.ALERT, Trigger.MANUAL]
    for less, more in pairwise(urgent):
        a, b = CycleRequest(trigger=less), CycleRequest(trigger=more)
        assert a.merged(b).trigger is b.merged(a).trigger is more


def test_what_comes_before_the_next_take_is_one_request() -> None:
    queue = TriggerQueue()
    queue.put(request(RequestScope(nodes=frozenset({"n1"}))))
    queue.put(request(RequestScope(nodes=frozenset({"n3"}))))
    taken = queue.take(0.0, monotonic=time.monotonic)
    assert taken is not None
    assert taken.nodes_for("A", POOLS) == {"n1", "n3"}
    assert queue.take(0.0, monotonic=time.monotonic) is None


def test_a_wake_ends_the_waiting_without_a_request_and_is_not_forgotten() -> None:
    queue = TriggerQueue()
    queue.wake()
    assert queue.take(60.0, monotonic=time.monotonic) is None
    queue.put(CycleRequest())
    assert queue.take(60.0, monotonic=time.monotonic) is not None


def test_a_waiting_thread_gets_what_another_puts() -> None:
    queue, got = TriggerQueue(), []
    waiting = threading.Thread(target=lambda: got.append(queue.take(30.0, monotonic=time.monotonic)))
    waiting.start()
    queue.put(CycleRequest(trigger=Trigger.ALERT))
    waiting.join(10.0)
    assert [each.trigger for each in got if each] == [Trigger.ALERT]


def test_a_clock_that_was_set_back_does_not_stop_the_timer() -> None:
    queue, policy = TriggerQueue(), a_policy()
    timer = Timer(queue)
    timer.start(policy)
    try:
        assert queue.take(10, monotonic=time.monotonic) is not None
        timer.follow_clock(policy, now=10_000.0, monotonic=50.0)
        timer.follow_clock(policy, now=10_005.5, monotonic=55.0)
        assert queue.take(0, monotonic=time.monotonic) is None
        timer.follow_clock(policy, now=9_410.5, monotonic=60.0)
        assert queue.take(0, monotonic=time.monotonic) is not None
    finally:
        timer.stop()


def test_a_wait_of_a_cycle_is_as_long_as_it_was_meant_when_the_clock_is_set_back() -> None:
    class SetBack:
        slept = 0.0

        def now(self) -> float:
            return 1_000.0 - 600.0 * (self.slept > 0)

        def sleep(self, seconds: float) -> None:
            self.slept += seconds

    clock = SetBack()
    StoppableClock(clock, lambda: clock.slept > 100).sleep(2.5)
    assert clock.slept == 2.5
