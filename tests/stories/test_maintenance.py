"""NodeMaintenance of a hundred nodes: in waves, no budget broken, empty and cordoned as long as chosen."""

import math
from pathlib import Path
from typing import Any

from rebalancer.lab import Lab, Scenario
from rebalancer.model.cluster.steering import MAINTENANCE
from tests.stories.readers import Log, Watch, annotate, cordoned, ours_on, pods_by_node
from tests.stories.scenarios.stage import GENEROUS, a_machine, a_scenario, a_stage, service

CHOSEN, SPARE, ZONES = 100, 25, 5
PODS, REPLICAS = 2, 4
"""On each node; of each service."""
AT_ONCE = 8
TURN_SECONDS = 90.0
TURNS_AT_MOST = 80
KEY, VALUE = "example.com/upgrade", "kernel"
POLICY: dict[str, Any] = {
    "strategies": [
        {"name": "NodeMaintenance", "args": {"annotation": f"{KEY}={VALUE}", "maxConcurrentNodes": AT_ONCE}}
    ],
    # more of a service may be on its way than its budget allows: it is the budget that holds
    "limits": {**GENEROUS, "service": {"inFlight": 3}},
    # the waves to come would take what leaves the first
    "softTaint": {"maxNodes": "100%", "maxAge": "15m"},
}
BUDGETS: tuple[dict[str, Any], ...] = (
    {"min_available": 3},
    {"max_unavailable": 1},
    {"min_available": "50%"},
    {"max_unavailable": "34%"},
)


def zone_of(number: int) -> str:
    return f"z{number % ZONES}"


def a_large_cluster() -> Scenario:
    """A hundred nodes that are chosen, and some that are not."""
    chosen = [a_machine(f"old-{number:02}", zone=zone_of(number), annotations={KEY: VALUE}) for number in range(CHOSEN)]
    spare = [a_machine(f"new-{number:02}", zone=zone_of(number)) for number in range(SPARE)]
    services = []
    for number in range(CHOSEN // 2):
        # two of the replicas are in the same wave
        place = {f"old-{(number * 2 + step) % CHOSEN:02}": 1 for step in (0, 1, 5, 34)}
        pdb = BUDGETS[number % len(BUDGETS)]
        services.append(service(f"s{number:02}", place, cpu=0.5, cpu_request="300m", pdb=pdb))
    # by requests the spare ones are the fuller: the scheduler would rather take a wave to come
    services.append(service("filler", {each.name: 1 for each in spare}, cpu=2.0, cpu_request="6"))
    return a_scenario([*chosen, *spare], *services)


def wanted_ready(lab: Lab) -> dict[str, int]:
    """Service -> so many of its pods its budget wants ready, by the budget's spec."""
    found = {}
    with lab.cluster.lock:
        for pdb in lab.cluster.store.sorted("poddisruptionbudgets"):
            spec = pdb["spec"]
            least = (
                _pieces(spec["minAvailable"]) if "minAvailable" in spec else REPLICAS - _pieces(spec["maxUnavailable"])
            )
            found[pdb["metadata"]["name"]] = least
    return found


def _pieces(value: int | str) -> int:
    return value if isinstance(value, int) else math.ceil(REPLICAS * float(value.rstrip("%")) / 100)


def emptied_in_waves(log: Log, zones: dict[str, str]) -> list[str]:
    """Zones in the order in which pods left them; one name for each stretch."""
    order: list[str] = []
    for each in log.evicted:
        if zones[each.node] not in order[-1:]:
            order.append(zones[each.node])
    return order


def test_a_hundred_nodes_are_emptied_in_waves_and_no_budget_is_ever_broken(tmp_path: Path) -> None:
    zones = {f"old-{number:02}": zone_of(number) for number in range(CHOSEN)}
    with a_stage(a_large_cluster(), tmp_path, **POLICY) as stage:
        lab = stage.lab
        least = wanted_ready(lab)
        assert sorted(set(least.values())) == [2, 3]
        watch = Watch(least_ready=least, group_of=zones).begin(lab)
        turns = 0
        while any(pods_by_node(lab)[name] for name in zones):
            stage.turn(TURN_SECONDS)
            turns += 1
            assert turns < TURNS_AT_MOST, stage.reports[-1].notes
        log = stage.log
        assert len(log.evicted) == PODS * CHOSEN
        # at no moment a budget was broken, and none was asked for in vain
        assert watch.broken == []
        assert {each.code for each in lab.log.evictions()} == {201}
        # one wave after the other, so many nodes at once
        assert watch.waves == {frozenset(), *(frozenset({zone_of(number)}) for number in range(ZONES))}
        assert emptied_in_waves(log, zones) == sorted(set(zones.values()))
        assert watch.most_in_work == AT_ONCE
        assert log.moved_once
        assert not {each.target for chain in log.chains for each in chain} & zones.keys()
        # they stay cordoned, each for once
        stage.turns(3, TURN_SECONDS)
        assert cordoned(lab) == set(zones)
        assert ours_on(lab) == dict.fromkeys(zones, MAINTENANCE)
        assert sorted(each.node for each in log.cordons) == sorted(zones)
        assert stage.reports[-1].progress == {"drained": CHOSEN, "draining": 0, "pending": 0}
        # until they are no longer chosen
        done = [name for name in zones if name != "old-07"]
        for name in done:
            annotate(lab, "nodes", name, KEY, None)
        stage.turn(TURN_SECONDS)
        assert cordoned(lab) == {"old-07"}
        assert ours_on(lab) == {"old-07": MAINTENANCE}
        # nothing is moved back, nor anywhere
        assert len(stage.log.evicted) == PODS * CHOSEN


def test_a_maintenance_under_the_usual_policy_does_not_stand_still(tmp_path: Path) -> None:
    """Those that stay are the fuller by requests, so a node of a later wave is always a likely landing."""
    chosen = [a_machine(f"old-{number:02}", zone=zone_of(number), annotations={KEY: VALUE}) for number in range(10)]
    spare = [a_machine(f"new-{number}", zone=zone_of(number)) for number in range(5)]
    webs = [service(f"s{at}", {chosen[at].name: 1, chosen[at - 1].name: 1}, cpu=0.5) for at in range(10)]
    filler = service("filler", {each.name: 1 for each in spare}, cpu=2.0, cpu_request="6")
    policy = {key: value for key, value in POLICY.items() if key != "softTaint"}
    with a_stage(a_scenario([*chosen, *spare], *webs, filler), tmp_path, **policy) as stage:
        stage.turns(3, TURN_SECONDS)
        assert len(stage.log.evicted) > 0, stage.reports[-1].refusals
