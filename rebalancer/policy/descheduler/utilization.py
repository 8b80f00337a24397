"""LowNodeUtilization and HighNodeUtilization of theirs: their thresholds become marks of the pool."""

from dataclasses import dataclass, field
from typing import Any

from rebalancer.policy.descheduler.notes import DECIDE, DIFFERENT, UNSUPPORTED, FieldPath, Keys, Notes

REQUESTED = ("cpu", "memory", "pods")
MEASURED = "MetricResource"
"""How they call what their Prometheus query answers."""
HYSTERESIS = 5.0
"""They cool a node to the mark that makes it hot; ours needs a distance."""
FLOOR = 30.0
FULL = 100.0
FILLED = 95.0
"""HighNodeUtilization of theirs knows no upper mark for the nodes that take the pods."""


@dataclass(slots=True)
class Marks:
    """The thresholds of one pool."""

    thresholds: dict[str, Any] = field(default_factory=dict)
    requests: dict[str, dict[str, float]] = field(default_factory=dict)

    def sections(self) -> dict[str, Any]:
        """What is written into the pool."""
        return {
            **({"thresholds": self.thresholds} if self.thresholds else {}),
            **({"requestThresholds": self.requests} if self.requests else {}),
        }


def low_node_utilization(args: Keys, notes: Notes, marks: Marks) -> dict[str, Any] | None:
    """Arguments of ours, after the pool's marks are set; None when it can't be taken over."""
    low, high = dict(args.get("thresholds")), dict(args.get("targetThresholds"))
    if low.keys() != high.keys():
        notes.add((*args.at, "targetThresholds"), UNSUPPORTED, "expected the resources that thresholds has")
        return None
    metrics = args.section("metricsUtilization")
    measured = bool(metrics.get("metricsServer", False)) or bool(metrics.get("source", ""))
    metrics.section("prometheus").get("query")
    relative = bool(args.get("useDeviationThresholds", False))
    if measured or relative:
        if not measured:
            why = "what is requested isn't held against the mean: real CPU is instead"
            notes.add((*args.at, "useDeviationThresholds"), DIFFERENT, why, "pools[].thresholds.relativeToMean")
        return _by_cpu(args, notes, marks, low, high, relative)
    return _by_requests(args, notes, marks, low, high)


def high_node_utilization(args: Keys, notes: Notes, marks: Marks) -> dict[str, Any] | None:
    """The same for HighNodeUtilization, which goes by requests."""
    low = _requested(dict(args.get("thresholds")), (*args.at, "thresholds"), notes)
    if not low:
        return None
    low = {name: min(max(share, 1.0), FULL - 1) for name, share in low.items()}
    if marks.requests and marks.requests["low"] != low:
        why = "a pool has one set of marks, and LowNodeUtilization set it: not switched on"
        notes.add((*args.at, "thresholds"), UNSUPPORTED, why)
        return None
    if not marks.requests:
        marks.requests = {
            "high": dict.fromkeys(low, FULL),
            "target": {name: max(FILLED, share) for name, share in low.items()},
            "low": low,
        }
        why = f"no node is filled over {FILLED:g} % of requests"
        notes.add((*args.at, "thresholds"), DIFFERENT, why, "pools[].requestThresholds.target")
    why = "a node whose pods can't all leave keeps all of them (wholeNodes: false would move what can)"
    notes.add(args.at, DIFFERENT, why, "strategies[].args.wholeNodes")
    if args.get("evictionModes"):
        why = "a low node is emptied of all its pods"
        notes.add((*args.at, "evictionModes"), UNSUPPORTED, why)
    return {"source": "Requests"}


def _by_requests(
    args: Keys, notes: Notes, marks: Marks, low: dict[str, float], high: dict[str, float]
) -> dict[str, Any] | None:
    low, high = (
        _requested(low, (*args.at, "thresholds"), notes),
        _requested(high, (*args.at, "targetThresholds"), notes),
    )
    if not low:
        return None
    made: dict[str, dict[str, float]] = {"high": {}, "target": {}, "low": {}}
    for name in high:
        made["high"][name], made["target"][name], made["low"][name] = _apart(high[name], low[name], args, notes)
    if marks.requests and marks.requests["low"] != made["low"]:
        notes.add(args.at, UNSUPPORTED, "a pool has one set of marks, and HighNodeUtilization set it: not switched on")
        return None
    marks.requests = made
    return {"source": "Requests"}


def _by_cpu(
    args: Keys, notes: Notes, marks: Marks, low: dict[str, float], high: dict[str, float], relative: bool
) -> dict[str, Any] | None:
    chosen = next((name for name in ("cpu", MEASURED) if name in high), None)
    for name in high:
        if name != chosen:
            for key in ("thresholds", "targetThresholds"):
                notes.add((*args.at, key, name), UNSUPPORTED, "of real usage only CPU is balanced")
    if chosen is None:
        return None
    why = "a node is hot only after it was so in several samples, and as many pods leave as cool it"
    notes.add(args.at, DIFFERENT, why, "usage.stabilizationWindow")
    if relative:
        marks.thresholds = {
            "high": max(high[chosen], 2.0),
            "target": max(high[chosen] - HYSTERESIS, 1.0),
            "low": low[chosen],
            "relativeToMean": True,
            "floor": FLOOR,
        }
        notes.add(
            (*args.at, "useDeviationThresholds"),
            DECIDE,
            f"a node under {FLOOR:g} % is never hot",
            "pools[].thresholds.floor",
        )
        _tell_target(args, notes)
    else:
        top, target, bottom = _apart(high[chosen], low[chosen], args, notes)
        marks.thresholds = {"high": top, "target": target, "low": bottom}
    return {"source": "CPU"}


def _apart(high: float, low: float, args: Keys, notes: Notes) -> tuple[float, float, float]:
    """(high, target, low) with a target under high and no mark under 1 %."""
    top = max(high, 2.0)
    target = max(top - HYSTERESIS, min(max(low, 1.0), top - 1), 1.0)
    bottom = min(max(low, 1.0), target)
    _tell_target(args, notes)
    if (top, bottom) != (high, low):
        notes.add((*args.at, "thresholds"), DIFFERENT, "marks are 1 % at least, and low is under high", "pools[]")
    return top, target, bottom


def _tell_target(args: Keys, notes: Notes) -> None:
    why = f"a node is cooled {HYSTERESIS:g} points under the mark that makes it hot, or it would be hot again soon"
    notes.add((*args.at, "targetThresholds"), DIFFERENT, why, "pools[].requestThresholds.target or thresholds.target")


def _requested(marks: dict[str, float], at: FieldPath, notes: Notes) -> dict[str, float]:
    for name in marks:
        if name not in REQUESTED:
            notes.add((*at, name), UNSUPPORTED, "cpu, memory and pods are balanced, extended resources are not")
    return {name: float(share) for name, share in marks.items() if name in REQUESTED}
