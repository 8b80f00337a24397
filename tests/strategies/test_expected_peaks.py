"""LowNodeUtilization beside a forecast. A node has 16,000 millicores; high 12,000, target 10,400, low 8,000."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.alerts import ThresholdOverride
from rebalancer.model.decisions.plan import PEAK
from rebalancer.model.measured.peaks import Peaks
from rebalancer.model.reason import Reason
from rebalancer.strategies import Findings
from rebalancer.strategies.utilization.low_node_utilization import find
from tests.builders import NOW, ANode, a_node, a_pod, a_policy, cluster, usage_of, view_of

NAN = float("nan")


def peaks_of(made: ClusterSnapshot, nodes: Mapping[str, float], pods: Mapping[str, float] | None = None) -> Peaks:
    """Nodes' peaks, all at ten o'clock after NOW; pods' by name, for both sides, 0 where absent."""
    node = np.array([nodes.get(name, NAN) for name in made.nodes.names])
    pod = np.array([(pods or {}).get(name, 0.0) for name in made.pods.names])
    return Peaks(
        made_at=NOW,
        starts_at=NOW,
        expected=np.repeat(node[:, None], 2, axis=1).astype(np.float32),
        node_millicores=node,
        node_at=np.full(len(node), 36_000.0),
        relief_millicores=pod,
        pod_millicores=pod * 1.25,
    )


def seen(
    nodes: Sequence[ANode],
    peaks: Mapping[str, float],
    *,
    due: Sequence[str] = (),
    marks: Mapping[str, ThresholdOverride] | None = None,
    usage: Mapping[str, Any] | None = None,
    **policy: Any,
) -> tuple[Findings, ClusterSnapshot]:
    pods = [a_pod(f"p-{each.name}", each.name, owner="web") for each in nodes]
    made, message = cluster(nodes, pods), a_policy(**policy)
    index = made.node_index
    view = view_of(
        made,
        usage_of(made, nodes, pods, **(usage or {})),
        message,
        peaks=peaks_of(made, peaks, {f"p-{each.name}": 1_000.0 for each in nodes}),
        due=frozenset((index[name], "cpu") for name in due),
        overrides={(index[name], mark.resource): mark for name, mark in (marks or {}).items()},
    )
    return find(view), made


def test_a_cool_node_is_found_when_it_is_due_and_left_alone_until_then() -> None:
    found, _ = seen([a_node("n", used=2_000.0)], {"n": 14_560.0}, due=["n"])
    (finding,) = found.findings
    assert finding.reason == "peak of 91% expected at 1970-01-01 10:00 UTC, over high 75%, to be cooled to 65%"
    assert (finding.cpu_share, finding.high, finding.target) == (0.91, 0.75, 0.65)
    assert found.loads.over.tolist() == [True]
    assert found.loads.hot.tolist() == [False]
    found, _ = seen([a_node("n", used=2_000.0)], {"n": 14_560.0})
    assert found.findings == ()
    assert not found.loads.over.any()


@pytest.mark.parametrize("peak", [11_900.0, NAN])
def test_a_node_that_is_due_but_not_expected_hot_any_more_is_left_alone(peak: float) -> None:
    assert seen([a_node("n", used=2_000.0)], {"n": peak}, due=["n"])[0].findings == ()


def test_a_node_that_is_hot_now_and_due_is_relieved_of_both() -> None:
    found, _ = seen([a_node("n", used=13_000.0)], {"n": 14_560.0}, due=["n"])
    assert found.loads.high[0].tolist() == [12_000.0, 12_000.0]
    assert found.loads.target[0].tolist() == [10_400.0, 10_400.0]
    (finding,) = found.findings
    assert finding.reason == (
        "real CPU 81.2% is over high 75%, to be cooled to 65%; a peak of 91% is expected at 1970-01-01 10:00 UTC"
    )
    assert finding.cpu_share == 0.8125


@pytest.mark.parametrize(
    ("used", "peaks", "due", "judged"),
    [
        (13_000.0, {"n": 11_000.0}, [], [True, False]),
        (13_000.0, {"n": 14_560.0}, [], [True, False]),
        (11_000.0, {"n": 13_000.0}, ["n"], [False, True]),
    ],
    ids=["only now", "now, with a peak that isn't due", "for its peak alone"],
)
def test_a_node_is_relieved_of_that_alone_by_which_it_is_hot(
    used: float, peaks: dict[str, float], due: list[str], judged: list[bool]
) -> None:
    found, _ = seen([a_node("n", used=used)], peaks, due=due)
    assert np.isfinite(found.loads.target[0]).tolist() == judged
    assert found.loads.target[0, judged.index(True)] == 10_400.0
    assert judged[1] or np.isnan(found.loads.high[0, 1])


def test_a_landing_is_judged_by_its_peak_too() -> None:
    found, _ = seen([a_node("cool", used=1_000.0), a_node("later", used=1_000.0)], {"cool": 3_000.0, "later": 11_000.0})
    assert found.loads.resources == ("cpu", PEAK)
    assert found.loads.target[:, 1].tolist() == [10_400.0, 10_400.0]
    assert (found.loads.node[:, 1] > found.loads.target[:, 1]).tolist() == [False, True]


def test_a_node_whose_peak_is_not_known_is_judged_by_what_is_measured() -> None:
    found, _ = seen([a_node("n", used=1_000.0)], {})
    assert np.isnan(found.loads.node[0, 1])
    assert np.isnan(found.loads.target[0, 1])


def test_what_a_pod_takes_away_is_not_what_it_brings() -> None:
    found, _ = seen([a_node("n", used=1_000.0)], {"n": 3_000.0})
    assert found.loads.relieved[0, 1] == 1_000.0
    assert found.loads.pod[0, 1] == 1_250.0


def test_a_node_that_is_settling_waits_also_when_it_is_due() -> None:
    found, _ = seen([a_node("n", used=2_000.0, ready=False)], {"n": 14_560.0}, due=["n"])
    assert found.findings == ()
    assert found.skipped[0].code is Reason.NODE_NOT_READY


def test_around_a_mean_the_marks_lie_around_the_mean_of_what_is_expected() -> None:
    thresholds = {"high": 20, "target": 10, "low": 10, "relativeToMean": True, "floor": 30}
    pools = [{"name": "all", "selector": {}, "thresholds": thresholds}]
    nodes = [a_node("a", used=2_000.0), a_node("b", used=2_000.0)]
    found, _ = seen(nodes, {"a": 12_000.0, "b": 4_000.0}, due=["a"], pools=pools)
    assert [each.node for each in found.findings] == [0]
    assert found.findings[0].high == pytest.approx(0.70)


def test_what_an_alert_calls_hot_says_nothing_of_the_peak() -> None:
    mark = ThresholdOverride(node="n", strategy="LowNodeUtilization", high=0.5, target=0.45, source="alert NodeHot")
    found, _ = seen([a_node("n", used=8_500.0)], {"n": 11_500.0}, marks={"n": mark})
    (finding,) = found.findings
    assert finding.reason.startswith("real CPU 53.1% is over high 50% (alert NodeHot)")
    assert np.isnan(found.loads.high[0, 1])


def test_a_node_that_is_due_is_not_debounced() -> None:
    hot_at_last = {"samples": np.array([[5_000.0]] * 4 + [[13_000.0]])}
    found, _ = seen([a_node("n", used=13_000.0)], {"n": 14_560.0}, due=["n"], usage=hot_at_last)
    assert [each.node for each in found.findings] == [0]
    assert found.skipped == {}
    waiting, _ = seen([a_node("n", used=13_000.0)], {"n": 14_560.0}, usage=hot_at_last)
    assert waiting.skipped[0].code is Reason.STABILIZATION_WINDOW
