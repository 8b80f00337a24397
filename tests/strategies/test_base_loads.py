"""What every landing is held to, whichever strategies are switched on."""

from typing import Any

import numpy as np
import pytest

from rebalancer.model.decisions.plan import PEAK, Loads
from rebalancer.model.measured.peaks import Peaks
from rebalancer.strategies import strategy_for
from tests.builders import NOW, ANode, APod, a_node, a_pod, a_policy, cluster, usage_of, view_of

NAN = float("nan")
PLAIN = {"high": 75, "target": 65, "low": 50}
DEVIATION = {"high": 10, "target": 5, "low": 10, "relativeToMean": True, "floor": 30}


def pool(name: str, thresholds: dict[str, Any] | None) -> dict[str, Any]:
    return {"name": name, "selector": {"matchLabels": {"pool": name}}} | (
        {} if thresholds is None else {"thresholds": thresholds}
    )


def base_of(
    nodes: list[ANode], pods: list[APod], *pools: dict[str, Any], peaks: dict[str, float] | None = None
) -> tuple[Loads, Loads]:
    """The base, and LowNodeUtilization's own loads over the same pools where all have thresholds."""
    has = [each["name"] for each in pools if "thresholds" in each]
    policy = a_policy(pools=list(pools), strategies=[{"name": "LowNodeUtilization", "pools": has}])
    made = cluster(nodes, pods)
    view = view_of(
        made,
        usage_of(made, nodes, pods),
        policy,
        peaks=None if peaks is None else _peaks([peaks.get(node.name, NAN) for node in nodes], pods),
    )
    own = strategy_for(view.strategy)(view).loads
    assert own is not None
    return view.base, own


def _peaks(node: list[float], pods: list[APod]) -> Peaks:
    usual = np.array([2 * pod.used for pod in pods])
    return Peaks(
        made_at=NOW,
        starts_at=NOW,
        expected=np.array(node, dtype=np.float32)[:, None],
        node_millicores=np.array(node),
        node_at=np.full(len(node), NOW + 3_600.0),
        relief_millicores=usual / 2,
        pod_millicores=usual,
    )


@pytest.mark.parametrize("peaks", [None, {"a": 9_000.0, "b": 13_000.0}], ids=["now", "peaks"])
@pytest.mark.parametrize("thresholds", [PLAIN, DEVIATION], ids=["plain", "around the mean"])
def test_they_are_what_low_node_utilization_goes_by(thresholds: dict[str, Any], peaks: dict[str, float] | None) -> None:
    nodes = [a_node("a", used=4_000.0), a_node("b", used=9_000.0), a_node("hot", used=14_000.0)]
    pods = [a_pod("p", "a", owner="web", used=700.0), a_pod("q", "hot", owner="web", used=300.0)]
    base, own = base_of(nodes, pods, pool("general", thresholds), peaks=peaks)
    assert base.resources == own.resources == (("cpu",) if peaks is None else ("cpu", PEAK))
    for name in ("node", "room", "high", "target", "low", "pod", "relieved"):
        np.testing.assert_array_equal(getattr(base, name), getattr(own, name), err_msg=name)


def test_pools_without_thresholds_are_not_judged() -> None:
    nodes = [a_node("a", used=4_000.0), a_node("b", used=4_000.0, labels={"pool": "free"}), a_node("c", labels={})]
    base, _ = base_of(nodes, [], pool("general", PLAIN), pool("free", None))
    assert np.isfinite(base.target[:, 0]).tolist() == [True, False, False]
    assert np.isfinite(base.high[:, 0]).tolist() == [True, False, False]


def test_a_pod_of_which_nothing_is_known_brings_its_request_and_takes_nothing_away() -> None:
    pods = [a_pod("p", "a", owner="web", cpu=600.0), a_pod("q", "a", owner="web", cpu=100.0, used=50.0)]
    for peaks in (None, {"a": 5_000.0}):
        base, _ = base_of([a_node("a", used=4_000.0)], pods, pool("general", PLAIN), peaks=peaks)
        assert base.pod[0].tolist() == [600.0] * len(base.resources)
        assert np.isnan(base.relieved[0]).all()
        assert base.pod[1, 0] == base.relieved[1, 0] == 50.0


def test_where_the_mean_is_not_known_no_node_is_open() -> None:
    base, _ = base_of([a_node("a", used=NAN), a_node("b", used=NAN)], [], pool("general", DEVIATION))
    assert base.target[:, 0].tolist() == [0.0, 0.0]  # judged, and nobody knows their CPU
    assert np.isnan(base.node).all()
