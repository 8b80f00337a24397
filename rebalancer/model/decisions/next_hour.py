"""What a cycle does, for its summary: the heat of the next hour, as if loads stayed (a node that is hot now is hot for
all of it), and the evictions that cool no node."""

from collections import Counter
from collections.abc import Iterable

from rebalancer.model.decisions.eviction import DID_NOT_HAPPEN, Eviction
from rebalancer.model.decisions.plan import CycleReport, NodeLine
from rebalancer.model.notation.figures import counted
from rebalancer.model.notation.heat import Heat
from rebalancer.model.notation.resource_names import CPU

NEXT_HOUR = "of the next hour, if loads stay,"


def heat_of_next_hour(report: CycleReport) -> Heat:
    """Of the nodes that the cycle evaluated: without its evictions, and with those of the parts of the policy that act.
    A node that was measured afterwards is as hot as it was then."""
    moves = [each for each in _happened(report.evictions) if each.in_plan.cools]
    not_made = {each.node for each in moves if each.uid in report.not_made}
    over = {(each.name, each.resource) for each in report.remaining}
    hot = [line for line in report.nodes if line.hot]
    stay = [line for line in hot if line.name in not_made or _stays(line, over)]
    made = sum(each.uid not in report.not_made for each in moves)
    return Heat(before=float(len(hot)), after=float(len(stay)), evictions=made)


def others_sentence(report: CycleReport) -> str:
    """Evictions that cool no node, of the parts of the policy that act: `2 evictions make room for 1 pending pod, 10
    evictions by PoolPreference`; empty without any."""
    others = [each for each in _happened(report.evictions) if not each.in_plan.cools and not each.in_plan.room_for]
    by = Counter(each.strategy for each in others if each.uid not in report.not_made)
    made = [f"{counted(count, 'eviction')} by {strategy}" for strategy, count in by.items()]
    return ", ".join(filter(None, [_rooms(report), *made]))


def _rooms(report: CycleReport) -> str:
    moves = [each for each in report.evictions if each.in_plan.room_for and each.uid not in report.not_made]
    made = _happened(moves)
    # room is what all of its moves leave
    short = {each.in_plan.room_for for each in moves if each.answered.outcome in DID_NOT_HAPPEN}
    pods = {each.in_plan.room_for for each in made} - short
    if not pods:
        return ""
    count = sum(each.in_plan.room_for in pods for each in made)
    return f"{counted(count, 'eviction')} make{'s' if count == 1 else ''} room for {counted(len(pods), 'pending pod')}"


def _happened(moves: Iterable[Eviction]) -> list[Eviction]:
    return [each for each in moves if each.answered.outcome not in DID_NOT_HAPPEN]


def _stays(line: NodeLine, over: set[tuple[str, str]]) -> bool:
    """Whether it is hot afterwards; of resources besides CPU it counts what is left over the target. A node that the
    cycle was not for stays as it is."""
    if any((line.name, resource) in over for resource in line.hot_by if resource != CPU):
        return True
    after = line.cpu_planned if line.cpu_after is None else line.cpu_after
    return CPU in line.hot_by and (line.high is None or after is None or after > line.high)
