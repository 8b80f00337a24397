"""Validation of a plugin's findings against its view.

An index out of range, or a pod on another node, would evict the wrong pod.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from rebalancer.model.cluster.steering import DRAINING
from rebalancer.model.decisions.plan import Evenness, Finding, Goal, LandingRule, Loads
from rebalancer.model.notation.arrays import Bools
from rebalancer.model.reason import Refusal
from rebalancer.strategies.interface.selection import nodes_in_scope
from rebalancer.strategies.interface.view import Findings, StrategyView

LONGEST_REASON = 500


def check_findings(found: Any, view: StrategyView) -> Findings:
    """The findings, checked. Raises ValueError with the first mistake."""
    if not isinstance(found, Findings):
        raise ValueError(f"find: expected Findings, got {type(found).__name__}")
    _expect(isinstance(found.findings, tuple | list), "findings", "a tuple of Finding", found.findings)
    own = nodes_in_scope(view)
    findings = tuple(_finding(each, f"findings[{index}]", view, own) for index, each in enumerate(found.findings))
    if found.loads is not None:
        _loads(found.loads, view)
    elif any(finding.goal is Goal.COOL for finding in findings):
        raise ValueError("loads: expected Loads with a finding of goal COOL")
    nodes = len(view.snapshot.nodes)
    for node, refusal in found.skipped.items():
        _expect(_whole(node) and 0 <= node < nodes, "skipped", f"indices of nodes, 0 to {nodes - 1}", node)
        _expect(isinstance(refusal, Refusal), f"skipped[{node}]", "a Refusal", refusal)
    of_pools = nodes_in_scope(replace(view, only=None))
    emptied = {finding.node for finding in findings if finding.goal is Goal.EMPTY}
    for node, why in found.cordons.items():
        _expect(_whole(node) and 0 <= node < nodes and of_pools[node], "cordons", "indices of its pools' nodes", node)
        _expect(why == DRAINING, f"cordons[{node}]", repr(DRAINING), why)
        begun = view.cordons.get(node, ("", 0.0))[0] == DRAINING or node in emptied
        _expect(begun, f"cordons[{node}]", "a node that is being drained, or of a finding with the goal EMPTY", why)
    most = found.empty_at_most
    _expect(most is None or (_whole(most) and most >= 1), "empty_at_most", "None or a number of 1 or more", most)
    notes = tuple(str(each)[:LONGEST_REASON] for each in found.notes)
    return replace(
        found, findings=findings, notes=notes, stays={}, rooms={}, progress={}, maintenance_nodes=frozenset(), failed=""
    )


def _finding(given: Any, at: str, view: StrategyView, own: Bools) -> Finding:
    if not isinstance(given, Finding):
        raise ValueError(f"{at}: expected a Finding, got {type(given).__name__}")
    snapshot, name = view.snapshot, view.strategy.name
    _expect(given.strategy == name, f"{at}.strategy", repr(name), given.strategy)
    node = given.node
    _expect(_whole(node) and 0 <= node < len(snapshot.nodes), f"{at}.node", "the index of a node", node)
    node_name = snapshot.nodes.names[node]
    _expect(bool(own[node]), f"{at}.node", "a node of its pools that it was asked to look at", node_name)
    pool = view.node_pools.names[node]
    _expect(given.pool == pool, f"{at}.pool", repr(pool), given.pool)
    _expect(isinstance(given.reason, str) and bool(given.reason.strip()), f"{at}.reason", "a sentence", given.reason)
    _expect(isinstance(given.goal, Goal), f"{at}.goal", "a Goal", given.goal)
    _expect(given.goal is not Goal.ROOM, f"{at}.goal", "COOL, REMOVE or EMPTY: room is made by MakeRoom", given.goal)
    _expect(given.room_for is None, f"{at}.room_for", "None: room is made by MakeRoom", given.room_for)
    _expect(given.broken is False, f"{at}.broken", "False: only our own strategies lift guards", given.broken)
    _expect(given.recurs is False, f"{at}.recurs", "False: that is for our own strategies to say", given.recurs)
    _expect(isinstance(given.in_order, bool), f"{at}.in_order", "True or False", given.in_order)
    _expect(isinstance(given.makes_room, bool), f"{at}.makes_room", "True or False", given.makes_room)
    wanted = given.wanted
    _expect(wanted is None or (_whole(wanted) and wanted >= 0), f"{at}.wanted", "None or a count", wanted)
    marks = (given.cpu_share, given.high, given.target)
    _expect(all(isinstance(each, int | float) for each in marks), at, "numbers in cpu_share, high and target", marks)
    if given.goal is Goal.COOL:
        finite = all(math.isfinite(each) for each in marks)
        _expect(finite, at, "cpu_share, high and target with the goal COOL", marks)
    _rule(given.landing, f"{at}.landing", view)
    return replace(
        given,
        node=int(node),
        reason=" ".join(given.reason.split())[:LONGEST_REASON],
        wanted=None if wanted is None else int(wanted),
        candidates=_candidates(given.candidates, f"{at}.candidates", view, node=int(node)),
        among=None if given.among is None else _candidates(given.among, f"{at}.among", view, node=None),
    )


def _candidates(given: Any, at: str, view: StrategyView, *, node: int | None) -> Any:
    """Distinct pods; on one node where that is given."""
    pods = view.snapshot.pods
    array = np.asarray(given)
    _expect(array.ndim == 1 and array.dtype.kind in "iu" and len(array) > 0, at, "a column of indices of pods", given)
    outside = array[(array < 0) | (array >= len(pods))]
    _expect(not len(outside), at, f"indices of pods, 0 to {len(pods) - 1}", outside[:1].tolist())
    if node is not None:
        for pod in array[pods.node[array] != node][:1].tolist():
            there, here = view.snapshot.pod(pod), view.snapshot.nodes.names[node]
            raise ValueError(f"{at}: expected pods on {here}, got {there} on {there.node_name or 'no node'}")
    _expect(len(np.unique(array)) == len(array), at, "each pod once", sorted(array.tolist()))
    return array.astype(np.int32)


def _rule(given: Any, at: str, view: StrategyView) -> None:
    nodes = len(view.snapshot.nodes)
    _expect(isinstance(given, LandingRule), at, "a LandingRule", given)
    _expect(isinstance(given.elsewhere, bool), f"{at}.elsewhere", "True or False", given.elsewhere)
    if given.only is not None:
        _shape(given.only, f"{at}.only", (nodes,), "b")
    if given.even is None:
        return
    even = given.even
    _expect(isinstance(even, Evenness), f"{at}.even", "an Evenness", even)
    _expect(isinstance(even.count, np.ndarray) and even.count.ndim == 1, f"{at}.even.count", "one column", even.count)
    _shape(even.count, f"{at}.even.count", even.count.shape, "f")
    _expect(bool(np.isfinite(even.count).all()), f"{at}.even.count", "finite numbers", even.count)
    _shape(even.domain, f"{at}.even.domain", (nodes,), "i")
    known = bool(((even.domain >= -1) & (even.domain < len(even.count))).all())
    _expect(known, f"{at}.even.domain", f"-1 to {len(even.count) - 1}", even.domain)
    _expect(_whole(even.skew) and even.skew >= 1, f"{at}.even.skew", "a number of 1 or more", even.skew)


def _loads(given: Any, view: StrategyView) -> None:
    _expect(isinstance(given, Loads), "loads", "Loads", given)
    names = given.resources
    valid = isinstance(names, tuple) and len(names) > 0 and all(isinstance(each, str) for each in names)
    _expect(valid, "loads.resources", "a tuple of names", names)
    nodes, pods = (len(view.snapshot.nodes), len(names)), (len(view.snapshot.pods), len(names))
    for field in ("node", "room", "high", "target", "low"):
        _shape(getattr(given, field), f"loads.{field}", nodes, "f")
    _shape(given.pod, "loads.pod", pods, "f")
    if given.relief is not None:
        _shape(given.relief, "loads.relief", pods, "f")
    if given.of_all is not None:
        _shape(given.of_all, "loads.of_all", pods, "f")


def _shape(given: Any, at: str, shape: tuple[int, ...], kind: str) -> None:
    words = {"f": "floats", "i": "integers", "b": "booleans"}
    fits = isinstance(given, np.ndarray) and given.shape == shape and given.dtype.kind == kind
    got = f"{given.dtype} of shape {given.shape}" if isinstance(given, np.ndarray) else type(given).__name__
    if not fits:
        raise ValueError(f"{at}: expected {words[kind]} of shape {shape}, got {got}")


def _whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _expect(holds: bool, at: str, what: str, got: Any) -> None:
    if not holds:
        shown = " ".join(repr(got).split())
        raise ValueError(f"{at}: expected {what}, got {shown if len(shown) <= 120 else shown[:120] + ' …'}")
