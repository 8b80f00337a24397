"""Conversion of LowNodeUtilization and HighNodeUtilization: their thresholds become thresholds of the pool."""

from dataclasses import dataclass, field
from typing import Any

from rebalancer.model.notation.resource_names import MEMORY
from rebalancer.policy.descheduler.notes import DECIDE, DIFFERENT, UNSUPPORTED, FieldPath, Keys, Notes
from rebalancer.policy.schema.policy import is_requested

MEASURED = "MetricResource"
"""Resource name of a Prometheus query's result in the descheduler."""
HYSTERESIS = 5.0
"""Distance of `target` below `high` in percentage points; the descheduler cools a node to its high threshold."""
FLOOR = 30.0
FULL = 100.0
FILLED = 95.0
"""`target` for HighNodeUtilization, which has no upper threshold for target nodes in the descheduler."""


@dataclass(slots=True)
class ImportedThresholds:
    """The thresholds of one pool."""

    cpu: dict[str, Any] = field(default_factory=dict)
    requests: dict[str, dict[str, float]] = field(default_factory=dict)

    def sections(self) -> dict[str, Any]:
        """The fields of the pool."""
        return {
            **({"thresholds": self.cpu} if self.cpu else {}),
            **({"requestThresholds": self.requests} if self.requests else {}),
        }


def low_node_utilization(args: Keys, notes: Notes, thresholds: ImportedThresholds) -> dict[str, Any] | None:
    """The converted arguments; sets the pool's thresholds. None if it cannot be converted."""
    low, high = dict(args.get("thresholds")), dict(args.get("targetThresholds"))
    if low.keys() != high.keys():
        notes.add((*args.at, "targetThresholds"), UNSUPPORTED, "expected the same resources as in thresholds")
        return None
    metrics = args.section("metricsUtilization")
    measured = bool(metrics.get("metricsServer", False)) or bool(metrics.get("source", ""))
    metrics.section("prometheus").get("query")
    relative = bool(args.get("useDeviationThresholds", False))
    if measured or relative:
        if not measured:
            why = "deviation from the mean applies to real CPU instead of requests"
            notes.add((*args.at, "useDeviationThresholds"), DIFFERENT, why, "pools[].thresholds.relativeToMean")
        return _by_cpu(args, notes, thresholds, low, high, relative)
    return _by_requests(args, notes, thresholds, low, high)


def high_node_utilization(args: Keys, notes: Notes, thresholds: ImportedThresholds) -> dict[str, Any] | None:
    """The same for HighNodeUtilization, which uses requests."""
    if args.get("evictionModes"):
        why = "without it more pods would be evicted, so HighNodeUtilization is not enabled"
        notes.add((*args.at, "evictionModes"), UNSUPPORTED, why)
        return None
    low = _requested(dict(args.get("thresholds")), (*args.at, "thresholds"), notes)
    if not low:
        return None
    low = {name: min(max(share, 1.0), FULL - 1) for name, share in low.items()}
    if thresholds.requests and thresholds.requests["low"] != low:
        why = "a pool has one set of thresholds, which LowNodeUtilization sets: not enabled"
        notes.add((*args.at, "thresholds"), UNSUPPORTED, why)
        return None
    if not thresholds.requests:
        thresholds.requests = {
            "high": dict.fromkeys(low, FULL),
            "target": {name: max(FILLED, share) for name, share in low.items()},
            "low": low,
        }
        why = f"no node is filled above {FILLED:g}% of requests"
        notes.add((*args.at, "thresholds"), DIFFERENT, why, "pools[].requestThresholds.target")
    why = "a node is left alone unless all its pods fit elsewhere (wholeNodes: false evicts those that fit)"
    notes.add(args.at, DIFFERENT, why, "strategies[].args.wholeNodes")
    _note_low(notes, "requestThresholds")
    return {"source": "Requests", "drainWhenAllLow": False}


def _by_requests(
    args: Keys, notes: Notes, thresholds: ImportedThresholds, low: dict[str, float], high: dict[str, float]
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
    if thresholds.requests and thresholds.requests["low"] != made["low"]:
        notes.add(args.at, UNSUPPORTED, "a pool has one set of thresholds, which HighNodeUtilization sets: not enabled")
        return None
    thresholds.requests = made
    _note_low(notes, "requestThresholds")
    return {"source": "Requests"}


def _by_cpu(
    args: Keys,
    notes: Notes,
    thresholds: ImportedThresholds,
    low: dict[str, float],
    high: dict[str, float],
    relative: bool,
) -> dict[str, Any] | None:
    chosen = next((name for name in ("cpu", MEASURED) if name in high), None)
    by_memory = MEMORY in high and chosen != MEASURED and not relative
    for name in high:
        if name != chosen and not (name == MEMORY and by_memory):
            why = "only CPU and memory are balanced by real usage"
            notes.add((*args.at, "targetThresholds", name), UNSUPPORTED, why)
            if low[name] < FULL:  # it keeps nodes from being targets; at 100 % none
                notes.add((*args.at, "thresholds", name), DECIDE, f"{why}: a node above it in {name} may be a target")
            else:
                notes.add((*args.at, "thresholds", name), UNSUPPORTED, why)
    if chosen is None and not by_memory:
        return None
    query = str(args.section("metricsUtilization").section("prometheus").peek("query", ""))
    if chosen == MEASURED and not is_cpu(query):
        why = "a share of CPU is what nodes are measured by; a query of another unit would be taken for it: not enabled"
        notes.add((*args.at, "metricsUtilization", "prometheus", "query"), UNSUPPORTED, why)
        return None
    why = "a node must be hot in several samples, and only as many pods are evicted as cool it"
    notes.add(args.at, DIFFERENT, why, "usage.stabilizationWindow")
    if relative and chosen is not None:
        thresholds.cpu = {
            "high": max(high[chosen], 2.0),
            "target": max(high[chosen] - HYSTERESIS, 1.0),
            "low": low[chosen],
            "relativeToMean": True,
            "floor": FLOOR,
        }
        notes.add(
            (*args.at, "useDeviationThresholds"),
            DECIDE,
            f"a node below {FLOOR:g}% is never hot",
            "pools[].thresholds.floor",
        )
        _note_target(args, notes)
    elif chosen is not None:
        top, target, bottom = _apart(high[chosen], low[chosen], args, notes)
        thresholds.cpu = {"high": top, "target": target, "low": bottom}
    else:
        why = "thresholds of memory stand beside those of CPU, by which no node is found hot here"
        notes.add((*args.at, "thresholds"), DIFFERENT, why, "pools[].thresholds")
        thresholds.cpu = {"high": FULL, "target": FILLED, "low": FILLED}
    if by_memory:
        top, target, bottom = _apart(high[MEMORY], low[MEMORY], args, notes)
        thresholds.cpu["resources"] = {MEMORY: {"high": top, "target": target, "low": bottom}}
    _note_low(notes, "thresholds")
    return {"source": "CPU"}


def is_cpu(query: str) -> bool:
    """Whether a query names CPU in use, and neither pressure, throttling nor memory."""
    words = query.lower()
    return "cpu" in words and not any(each in words for each in ("pressure", "psi", "throttl", "memory"))


def _apart(high: float, low: float, args: Keys, notes: Notes) -> tuple[float, float, float]:
    """(high, target, low) with target below high and all at least 1 %."""
    top = max(high, 2.0)
    target = max(top - HYSTERESIS, min(max(low, 1.0), top - 1), 1.0)
    bottom = min(max(low, 1.0), target)
    _note_target(args, notes)
    if (top, bottom) != (high, low):
        notes.add((*args.at, "thresholds"), DIFFERENT, "thresholds are at least 1 %, and low is below high", "pools[]")
    return top, target, bottom


def _note_low(notes: Notes, ours: str) -> None:
    why = "a node that is at its low threshold is not low; in the descheduler it is"
    notes.add((), DIFFERENT, why, f"pools[].{ours}.low")


def _note_target(args: Keys, notes: Notes) -> None:
    why = f"a node is cooled to {HYSTERESIS:g} points below its high threshold, or it would soon be hot again"
    notes.add((*args.at, "targetThresholds"), DIFFERENT, why, "pools[].requestThresholds.target or thresholds.target")


def _requested(shares: dict[str, float], at: FieldPath, notes: Notes) -> dict[str, float]:
    for name in shares:
        if not is_requested(name):
            notes.add((*at, name), UNSUPPORTED, "no resource that pods can request")
    return {name: float(share) for name, share in shares.items() if is_requested(name)}
