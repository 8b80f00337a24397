"""Too many of one kind in one place: duplicates, anti-affinity and spread constraints, repaired once and for all."""

from pathlib import Path
from typing import Any

from rebalancer.lab.scenarios.steps import LabelPods
from tests.stories.oracles.violations import HOST, ZONE, crowded, in_conflict, uneven
from tests.stories.scenarios.repairing import NEVER_EVICT, NO_BUDGET, OPTED_OUT, a_repair, strategy
from tests.stories.scenarios.stage import a_machine, a_scenario, service

ONE_AT_A_TIME = {"max_unavailable": 1}
NONE = {"max_unavailable": 0}


# ---- RemoveDuplicates

SMALL, TINY = {"pool": "small"}, {"pool": "tiny"}


def test_duplicates_are_spread_to_a_fair_share_and_stay(tmp_path: Path) -> None:
    cluster = a_scenario(
        [
            *(a_machine(f"n{number}", pool="small" if number > 4 else "large") for number in range(1, 7)),
            *(a_machine(f"x{number}", pool="tiny") for number in range(1, 4)),
        ],
        service("web", {"n1": 4, "n2": 2}, pdb=ONE_AT_A_TIME),
        service("mail", {"n1": 2, "n3": 1}, kind="StatefulSet"),
        # 5 on the 2 nodes that let them in: 3 and 2 is as even as it gets
        service("pair", {"n5": 4, "n6": 1}, node_selector=SMALL),
        service("full", {"n5": 3, "n6": 2}, node_selector=SMALL),
        # 2 on each of 3 would be fair, but one of them is full: 3 and 3, and no changing of places
        service("tight", {"x1": 4, "x2": 2}, node_selector=TINY),
        service("filler", {"x3": 1}, node_selector=TINY, cpu_request="15800m"),
        service("kept", {"n2": 2}, annotations=NEVER_EVICT),
        service("frozen", {"n3": 2}, pdb=NONE),
    )
    with a_repair(cluster, tmp_path, crowded, strategy("RemoveDuplicates")) as repair:
        assert crowded(repair.lab) == {"web", "mail", "pair", "tight", "kept", "frozen"}
        repair.repairs(
            {"web": 4, "mail": 1, "pair": 1, "tight": 1},
            stuck=("tight", "kept", "frozen"),
            unmoved=("full", "kept", "frozen"),
        )
        assert repair.fewest_ready("web") == 5
        assert (repair.refused("kept"), repair.refused("frozen"), repair.refused("full")) == (
            OPTED_OUT,
            NO_BUDGET,
            set(),
        )


# ---- RemovePodsViolatingInterPodAntiAffinity


def apart_from(labels: dict[str, str], key: str = HOST) -> dict[str, Any]:
    """Required anti-affinity against pods with these labels."""
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": key}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


LOUD, SHRILL = {"noise": "loud"}, {"noise": "shrill"}


def test_of_two_pods_that_exclude_each_other_the_one_goes_that_can(tmp_path: Path) -> None:
    cluster = a_scenario(
        [a_machine(f"n{number}", zone="west" if number < 4 else "east") for number in range(1, 7)],
        service("db", {"n1": 3, "n2": 1}, affinity=apart_from({"app.kubernetes.io/name": "db"}), pdb=ONE_AT_A_TIME),
        # n3: the loud one stays, n4: the quiet one stays, n5: both do
        service("quiet", {"n3": 1, "n6": 1}, affinity=apart_from(LOUD)),
        service("blare", {"n3": 1, "n5": 1}, labels=LOUD, annotations=NEVER_EVICT),
        service("still", {"n4": 1, "n5": 1}, affinity=apart_from(LOUD), annotations=NEVER_EVICT),
        service("loud", {"n4": 1, "n1": 1}, labels=LOUD),
        # n6: this one gets loud by its label, while it runs
        service("late", {"n6": 1, "n2": 1}, annotations=NEVER_EVICT),
        # in another node of the zone; the first of the two can't go
        service("hush", {"n1": 1}, affinity=apart_from(SHRILL, ZONE), annotations=NEVER_EVICT),
        service("shrill", {"n2": 1, "n5": 1}, labels=SHRILL),
        # three in two zones: one too many, whichever goes
        service("three", {"n1": 1, "n2": 1, "n4": 1}, affinity=apart_from({"app.kubernetes.io/name": "three"}, ZONE)),
        steps=[LabelPods(at_seconds=60.0, workload="late", namespace="shop", labels={**LOUD})],
    )
    with a_repair(cluster, tmp_path, in_conflict, strategy("RemovePodsViolatingInterPodAntiAffinity")) as repair:
        assert in_conflict(repair.lab) == {
            "db+db",
            "blare+quiet",
            "loud+still",
            "blare+still",
            "hush+shrill",
            "three+three",
        }
        repair.repairs(
            {"db": 2, "quiet": 2, "loud": 1, "shrill": 1},
            stuck=("blare+still", "three+three"),
            unmoved=("blare", "still", "late", "three"),
        )
        assert repair.fewest_ready("db") == 3
        assert repair.refused("blare") == repair.refused("still") == OPTED_OUT
        assert repair.refused("three") == {"NoTargetNode"}


# ---- RemovePodsViolatingTopologySpreadConstraint


def over_zones(name: str, *, hard: bool = True, labels: dict[str, str] | None = None, **fields: Any) -> dict[str, Any]:
    return {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule" if hard else "ScheduleAnyway",
        "labelSelector": {"matchLabels": labels or {"app.kubernetes.io/name": name}},
        **fields,
    }


TEAM = {"team": "red"}


def test_zones_get_as_even_as_they_can_and_no_more_is_moved(tmp_path: Path) -> None:
    def spread(name: str, place: dict[str, int], *, rule: dict[str, Any] | None = None, **fields: Any) -> Any:
        return service(name, place, topology_spread=[rule or over_zones(name)], **fields)

    cluster = a_scenario(
        [a_machine(f"{zone}{number}", zone=zone) for zone in "abc" for number in (1, 2, 3)],
        spread("web", {"a1": 3, "a2": 2, "b1": 2}, pdb=ONE_AT_A_TIME),
        spread("soft", {"b1": 4, "c1": 2}, rule=over_zones("soft", hard=False)),
        # three that stay count, too: b and c can't make up for it, and changing places does not help
        service("rock", {"a3": 3}, labels=TEAM, annotations=NEVER_EVICT),
        spread("team", {"a3": 1, "b3": 1, "c3": 1}, labels=TEAM, rule=over_zones("team", labels=TEAM)),
        # a fourth zone would be needed
        spread("four", {"a1": 3, "b2": 1, "c2": 1}, rule=over_zones("four", minDomains=4)),
        # the other zones count as empty, and can't take it
        spread("tied", {"a1": 3}, rule=over_zones("tied", nodeAffinityPolicy="Ignore"), node_selector={ZONE: "a"}),
        spread("frozen", {"b2": 2}, pdb=NONE),
    )
    name = "RemovePodsViolatingTopologySpreadConstraint"
    zones = strategy(name, constraints=["DoNotSchedule", "ScheduleAnyway"])
    with a_repair(cluster, tmp_path, uneven, zones) as repair:
        assert uneven(repair.lab) == {"web", "soft", "team", "four", "tied", "frozen"}
        repair.repairs(
            {"web": 2, "soft": 2, "team": 1},
            stuck=("team", "four", "tied", "frozen"),
            unmoved=("rock", "four", "tied", "frozen"),
        )
        assert repair.fewest_ready("web") == 6
        assert repair.refused("frozen") == NO_BUDGET
        assert repair.refused("four") == repair.refused("tied") == set()
