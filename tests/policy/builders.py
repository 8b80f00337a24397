"""Small DeschedulerPolicies, and what becomes of them."""

# ruff: noqa: E501

from typing import Any

import pytest
import yaml

from rebalancer.model.errors import ConfigError
from rebalancer.policy import RebalancerPolicy, load_policy
from rebalancer.policy.descheduler.importer import import_policy
from rebalancer.policy.descheduler.notes import Difference

DESCHEDULE = {
    "RemovePodsViolatingInterPodAntiAffinity", "RemovePodsViolatingNodeAffinity", "RemovePodsViolatingNodeTaints",
    "RemovePodsHavingTooManyRestarts", "PodLifeTime", "RemoveFailedPods",
}  # fmt: skip
NEEDED: dict[str, dict[str, Any]] = {
    "LowNodeUtilization": {"thresholds": {"cpu": 20, "memory": 30}, "targetThresholds": {"cpu": 50, "memory": 60}},
    "HighNodeUtilization": {"thresholds": {"cpu": 20, "memory": 30}},
    "RemovePodsViolatingNodeAffinity": {"nodeAffinityType": ["requiredDuringSchedulingIgnoredDuringExecution"]},
    "RemovePodsHavingTooManyRestarts": {"podRestartThreshold": 7},
    "PodLifeTime": {"maxPodLifeTimeSeconds": 86400},
}
"""Arguments without which theirs refuse."""


def theirs(
    *strategies: tuple[str, dict[str, Any]], evictor: dict[str, Any] | None = None, **top: Any
) -> dict[str, Any]:
    """A DeschedulerPolicy of one profile."""
    return {"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy", **top, "profiles": [profile(*strategies, evictor=evictor)]}  # fmt: skip


def profile(*strategies: tuple[str, dict[str, Any]], evictor: dict[str, Any] | None = None) -> dict[str, Any]:
    config = [{"name": name, **({"args": args} if args else {})} for name, args in strategies]
    if evictor is not None:
        config.append({"name": "DefaultEvictor", "args": evictor})
    names = [name for name, _ in strategies]
    points = {
        "deschedule": {"enabled": [name for name in names if name in DESCHEDULE]},
        "balance": {"enabled": [name for name in names if name not in DESCHEDULE]},
    }
    return {
        "name": "main",
        "pluginConfig": config,
        "plugins": {point: chosen for point, chosen in points.items() if chosen["enabled"]},
    }


def imported(policy: dict[str, Any], **options: Any) -> tuple[RebalancerPolicy, tuple[Difference, ...]]:
    made = import_policy(yaml.safe_dump(policy).encode(), source="d.yaml", **options)
    return load_policy(made.text.encode(), source="ours.yaml"), made.differences


def refused(policy: dict[str, Any] | str) -> list[str]:
    text = policy if isinstance(policy, str) else yaml.safe_dump(policy, sort_keys=False)
    with pytest.raises(ConfigError) as caught:
        import_policy(text.encode(), source="d.yaml")
    assert caught.value.exit_code == 4
    return str(caught.value).splitlines()


def of_strategy(name: str, args: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], tuple[Difference, ...]]:
    """(arguments of ours, pool of ours, differences) of one strategy."""
    ours, differences = imported(theirs((name, args)))
    (strategy,) = ours.strategies
    assert strategy.name == name
    written = ours.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return written["strategies"][0].get("args", {}), written["pools"][0], differences


def reported(differences: tuple[Difference, ...], end: str) -> Difference:
    (found,) = [each for each in differences if each.field.endswith(end)]
    return found


def fields(differences: tuple[Difference, ...]) -> list[str]:
    return [each.field for each in differences if each.field]
