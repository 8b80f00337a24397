"""The DeschedulerPolicy of a recorded case, and its import."""

from collections.abc import Sequence
from typing import Any

import yaml

from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.descheduler.importer import import_policy
from rebalancer.policy.descheduler.notes import Difference
from rebalancer.testing import NO_LIMITS
from tests.differential.builders.cluster import LISTED

Json = dict[str, Any]

BALANCE = frozenset(
    {
        *("HighNodeUtilization", "LowNodeUtilization"),
        *("RemoveDuplicates", "RemovePodsViolatingTopologySpreadConstraint"),
    }
)
"""Plugins of the extension point `balance`; the others are of `deschedule`."""
ANY_POD = {"name": "PodLifeTime", "args": {"maxPodLifeTimeSeconds": 60}}
"""The plugin beside the verdict of a filter: the age of every recorded pod is more."""
WITHOUT_DEFAULTS: Json = {"RemoveFailedPods": {"minPodLifetimeSeconds": 0}}
"""Arguments with a default, which the tests of the original leave out."""
LIMITS = {"node": "maxNoOfPodsToEvictPerNode", "namespace": "maxNoOfPodsToEvictPerNamespace",
          "total": "maxNoOfPodsToEvictTotal"}  # fmt: skip
URL = "http://127.0.0.1:9090"


def descheduler_policy(case: Json) -> Json:
    """As a user of the descheduler would write it."""
    plugin = ANY_POD
    if "plugin" in case:
        plugin = {"name": case["plugin"], "args": {**WITHOUT_DEFAULTS.get(case["plugin"], {}), **case["args"]}}
    point = "balance" if plugin["name"] in BALANCE else "deschedule"
    limits = {key: value for key, value in (case.get("options") or {}).items() if value is not None}
    providers = [{"source": "Prometheus", "prometheus": {"url": URL}}] if case.get("prometheus") else []
    return {
        "apiVersion": "descheduler/v1alpha2",
        "kind": "DeschedulerPolicy",
        **({"nodeSelector": LISTED} if "plugin" in case else {}),
        **{LIMITS[key]: value for key, value in limits.items()},
        **({"metricsProviders": providers} if providers else {}),
        "profiles": [
            {
                "name": "recorded",
                "pluginConfig": [{"name": "DefaultEvictor", "args": case["evictor"]}, plugin],
                "plugins": {point: {"enabled": [plugin["name"]]}},
            }
        ],
    }


def imported(case: Json) -> tuple[RebalancerPolicy, Sequence[Difference]]:
    """The imported policy, with none of the defaults that a DeschedulerPolicy doesn't have, and the differences. Raises
    ConfigError."""
    made = import_policy(yaml.safe_dump(descheduler_policy(case)).encode(), source=str(case["id"]), cluster="recorded")
    document = yaml.safe_load(made.text)
    document["guards"] = {"minReplicas": 1, "minAge": "0s", **document.get("guards", {})}
    document["limits"] = {**NO_LIMITS, **document.get("limits", {})}
    return RebalancerPolicy.model_validate(document), made.differences
