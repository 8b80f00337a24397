"""Random hot clusters, of any sort that a plan must cope with."""

from typing import Any

from hypothesis import strategies as st

from rebalancer.model.cluster.objects import Taint
from rebalancer.model.cluster.owners import Owner
from rebalancer.model.cluster.pods import FAILED, SUCCEEDED
from rebalancer.model.cluster.snapshot import DisruptionBudget
from tests.builders import GIB, NOW, ANode, APod, a_budget, an_eviction
from tests.planner.scenarios.described_clusters import LIMITS, POD_QUIRKS, SERVICE_QUIRKS, THRESHOLDS, World, key_of

_AVERAGE_QUIRKS = ["plain"] * 90 + sorted(SERVICE_QUIRKS)
_AVERAGE_POD_QUIRKS = ["plain"] * 90 + sorted(POD_QUIRKS)


@st.composite
def hot_clusters(draw: st.DrawFn) -> World:
    """A cluster with at least one node that looks hot, and mostly with room elsewhere."""

    def chance(percent: int) -> bool:
        return draw(st.integers(0, 99)) >= 100 - percent

    nodes = [
        _node(draw, index, hot=index == 0 or (index == 1 and chance(40))) for index in range(draw(st.integers(3, 6)))
    ]
    hot_names = [node.name for node in nodes if node.used is not None and node.used > 0.75 * node.cpu] or [
        nodes[0].name
    ]
    guards = draw(st.sampled_from(["default"] * 4 + ["open", "opt-in", "strict"]))
    pods: list[APod] = []
    owners: dict[tuple[str, str, str], Owner] = {}
    budgets: list[DisruptionBudget] = []
    for index in range(draw(st.integers(3, 7))):
        made, quirk = _service(draw, f"svc{index}", hot_names, [node.name for node in nodes])
        if guards == "opt-in" and chance(60):
            for pod in made:
                pod.labels = {"rebalancer.dev/evict": "true", **pod.labels}
        pods += made
        if made[0].owner:
            counted = len([p for p in made if not p.terminating and p.phase not in (SUCCEEDED, FAILED)])
            missing = quirk.get("missing", 0)
            wanted = counted + missing if missing or chance(50) else None
            kind, namespace, name = key_of(made[0])
            owners[(kind, namespace, name)] = Owner(
                kind=kind,
                namespace=namespace,
                name=name,
                uid=f"uid-{name}",
                desired=wanted,
                rolling_out=quirk.get("rolling_out", False),
                spares_disruptions=quirk.get("spares_disruptions", False),
            )
        for number in range(draw(st.sampled_from([0] * 6 + [1] * 5 + [2]))):
            budgets.append(
                a_budget(
                    f"pdb{index}-{number}",
                    made[0].owner,
                    draw(st.integers(0, 3)),
                    namespace=made[0].namespace,
                    up_to_date=not chance(8),
                )
            )
    for node in nodes:
        if node.name in hot_names and chance(90):
            # requests keep the hot node less attractive to the scheduler
            pods.append(
                APod(
                    name=f"agent-{node.name}",
                    node=node.name,
                    owner="agent",
                    owner_kind="DaemonSet",
                    cpu=node.cpu * 0.6,
                    used=50.0,
                )
            )
    owners.setdefault(
        ("DaemonSet", "shop", "agent"), Owner(kind="DaemonSet", namespace="shop", name="agent", uid="uid-agent")
    )
    recent = [
        an_eviction(node=draw(st.sampled_from(nodes)).name, cpu_millicores=400.0, planned_at=NOW - 150.0)
        for _ in range(chance(12))
    ]
    return World(
        nodes=nodes,
        pods=pods,
        owners=owners,
        budgets=budgets,
        recent=recent,
        thresholds=draw(st.sampled_from(sorted(THRESHOLDS))),
        guards=guards,
        limits=draw(st.sampled_from(sorted(LIMITS))),
        refused_by_server=frozenset(pod.name for pod in pods if len(pods) < 40 and chance(5)),
    )


def _node(draw: st.DrawFn, index: int, *, hot: bool) -> ANode:
    cpu = draw(st.sampled_from([4_000.0, 8_000.0, 16_000.0]))
    share = draw(st.integers(78, 99)) if hot else draw(st.integers(5, 55))
    quirk = (
        "plain"
        if hot
        else draw(
            st.sampled_from(["plain"] * 20 + ["tainted", "softly", "cordoned", "down", "blind", "alone", "leaving"])
        )
    )
    quirks: dict[str, dict[str, Any]] = {
        "plain": {},
        "tainted": {"taints": (Taint(key="dedicated", value="db", effect="NoSchedule"),)},
        "softly": {"taints": (Taint(key="rather", effect="PreferNoSchedule"),)},
        "leaving": {"taints": (Taint(key="DeletionCandidateOfClusterAutoscaler", effect="PreferNoSchedule"),)},
        "cordoned": {"unschedulable": True},
        "down": {"ready": False},
        "blind": {},
        "alone": {},
    }
    labels = {
        "pool": "other" if quirk == "alone" else draw(st.sampled_from(["general", "general", "general", "big"])),
        "disk": draw(st.sampled_from(["ssd", "hdd"])),
    }
    if draw(st.integers(0, 19)) == 19:
        labels["rebalancer.dev/evict"] = draw(st.sampled_from(["true", "false"]))
    used = float("nan") if quirk == "blind" else round(cpu * share / 100 / 10) * 10.0
    # names don't follow the order of listing
    return ANode(
        name=f"{'kfbqxm'[index]}{index}", cpu=cpu, memory=32 * GIB, pods=40, used=used, labels=labels, **quirks[quirk]
    )


def _service(draw: st.DrawFn, name: str, hot: list[str], everywhere: list[str]) -> tuple[list[APod], dict[str, Any]]:
    quirk = SERVICE_QUIRKS[draw(st.sampled_from(_AVERAGE_QUIRKS))]
    kind = quirk.get("kind", draw(st.sampled_from(["ReplicaSet", "ReplicaSet", "StatefulSet"])))
    used, request = 50.0 * draw(st.integers(1, 30)), 50.0 * draw(st.integers(0, 20))
    pods = []
    for index in range(draw(st.sampled_from([1, 2, 2, 3, 3, 4]))):
        extra = POD_QUIRKS[draw(st.sampled_from(_AVERAGE_POD_QUIRKS))]
        fields: dict[str, Any] = {
            "used": used + 10.0 * draw(st.integers(0, 5)),
            "cpu": request,
            "memory": draw(st.sampled_from([0.0, 1 * GIB, 4 * GIB])),
            "priority": quirk.get("priority", 0),
            "age": draw(st.sampled_from([7_200.0, 86_400.0])),
            **extra,
        }
        pods.append(
            APod(
                name=f"{name}-{index}",
                node=draw(st.sampled_from(hot if index < 2 else everywhere)),
                namespace=quirk.get("namespace", "shop"),
                owner=name if kind else "",
                owner_kind=kind or "ReplicaSet",
                labels=quirk.get("labels", {}),
                template={
                    "qos": draw(st.sampled_from(["BestEffort", "Burstable", "Guaranteed"])),
                    **quirk.get("template", {}),
                },
                **fields,
            )
        )
    return pods, quirk
