"""What each rule of a policy costs: a run for each rule, with it alone lifted.

Reason codes are no account of it. A node that one rule keeps hot may be kept hot by the next one without it, and a rule
that is named seldom may be the only one that matters.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel

from rebalancer.policy.document import Document
from rebalancer.policy.loader import checked_policy
from rebalancer.replay.comparison.variants import Path, Variant, put, unshared

LIFTED = " lifted"
"""Ends the label of a run with a rule lifted, after its setting."""


@dataclass(frozen=True, slots=True)
class Lift:
    """How a rule is lifted."""

    rule: str
    """The setting, as in the policy's messages."""
    values: Mapping[Path, Any]
    """What the policy file says instead."""


NO_LIMITS: Mapping[str, Any] = {"evictions": [], "inFlight": None, "spacing": None}
NOW = "0s"
LIFTS = (
    Lift("windows", {("windows",): {}}),
    Lift("lists", {("lists",): {}}),
    *(
        Lift(f"limits.{scope}", {("limits", scope): NO_LIMITS})
        for scope in ("cluster", "pool", "node", "namespace", "service")
    ),
    Lift("limits.perCycle", {("limits", "perCycle"): 10_000}),
    Lift("usage.stabilizationWindow", {("usage", "stabilizationWindow"): {"samples": 1, "duration": NOW}}),
    Lift("guards.minAge", {("guards", "minAge"): NOW}),
    Lift("guards.minReplicas", {("guards", "minReplicas"): 1}),
    Lift("safety.cooldowns", {("safety", "cooldowns", name): NOW for name in ("node", "service", "serviceNode")}),
    Lift("safety.circuitBreaker.effect", {("safety", "circuitBreaker", "effect", "minEffectiveness"): 1}),
    Lift("planner.worth", {("planner", "worth"): "Aggressive"}),
)


def lifted(data: bytes, *, source: str, args_of: Callable[[str], type[BaseModel]] | None = None) -> Iterator[Variant]:
    """The policy of a file, each time with one rule lifted; rules that it doesn't have are left out. `source` is the
    file's name in messages. Raises ConfigError."""
    document = Document.read(data, source=source, kind="RebalancerPolicy")
    policy = checked_policy(document, args_of=args_of)
    for each in LIFTS:
        changed = unshared(document.value)
        for path, value in each.values.items():
            put(changed, path, value)
        if each.rule == "limits.pool":
            for pool in changed["pools"]:
                pool.pop("limits", None)
        other = checked_policy(replace(document, value=changed), args_of=args_of)
        if other != policy:
            yield Variant(label=each.rule + LIFTED, policy=other, part="")
