"""Time that is short is shared: no strategy keeps the others from being asked, cycle after cycle."""

from collections.abc import Callable

from rebalancer.cycle.plan.planning import TimeLimit
from rebalancer.planner import PlanningTime
from rebalancer.strategies import Findings
from tests.builders import a_node
from tests.planner.builders.findings import Scene, scene
from tests.planner.builders.plans import cold, single


class Looks:
    """Time that goes by with each finding that is worked on: so many in all."""

    def __init__(self, looks: int) -> None:
        self.left = looks

    def share(self, parts: int) -> Callable[[], bool]:
        others = self.left - self.left / parts

        def over() -> bool:
            if self.left <= others:
                return True
            self.left -= 1
            return False

        return over


def two_strategies() -> tuple[Scene, list[Findings]]:
    pods = [single(f"p{number}", f"n{number}", used=100.0) for number in range(6)]
    one = scene([*(a_node(f"n{number}") for number in range(6)), cold()], pods)
    first = tuple(one.finding(f"n{number}") for number in range(5))
    return one, [Findings(findings=first), Findings(findings=(one.finding("n5"),))]


def test_what_a_strategy_has_no_time_for_comes_after_the_others() -> None:
    one, found = two_strategies()
    assert one.plan(found=found).pods == ["p0", "p1", "p2", "p3", "p4", "p5"]
    assert one.plan(found=found, time=PlanningTime(share=Looks(4).share)).pods == ["p0", "p1", "p5", "p2", "p3", "p4"]


def test_who_is_alone_has_all_the_time() -> None:
    limit = TimeLimit(1_000.0)
    assert not limit.share(1)()
    assert not limit()
    spent = TimeLimit(-1.0)
    assert spent()
    assert spent.share(1)()
