"""ResourceQuotas as they are read."""

from rebalancer.model.cluster.quota import QuotaScope
from tests.kube.builders import Cluster, Json, a_pod, meta, read

QUOTA: Json = {
    "metadata": meta("team", "shop"),
    "spec": {
        "hard": {"requests.cpu": "99"},
        "scopes": ["NotBestEffort"],
        "scopeSelector": {
            "matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high", "low"]}]
        },
    },
    "status": {
        "hard": {"requests.cpu": "2", "requests.memory": "1Gi", "pods": "5", "requests.nvidia.com/gpu": "4"},
        "used": {"requests.cpu": "500m", "requests.memory": "1Gi", "pods": "6"},
    },
}


def test_what_is_left_is_hard_less_used_of_the_status() -> None:
    (quota,) = read(Cluster(pods=[a_pod("a")], resourcequotas=[QUOTA])).quotas
    assert (quota.namespace, quota.name) == ("shop", "team")
    assert quota.free == {"requests.cpu": 1_500.0, "requests.memory": 0.0, "pods": -1.0, "requests.nvidia.com/gpu": 4.0}
    assert quota.scopes == (
        QuotaScope(name="NotBestEffort"),
        QuotaScope(name="PriorityClass", operator="In", values=("high", "low")),
    )


def test_a_quota_without_a_status_counts_nothing() -> None:
    (quota,) = read(Cluster(resourcequotas=[{"metadata": meta("new", "shop"), "spec": {"hard": {"pods": "1"}}}])).quotas
    assert quota.free == {}


def test_without_the_permission_there_are_none() -> None:
    cluster = Cluster(resourcequotas=[QUOTA])
    cluster.refused["resourcequotas"] = 403
    assert read(cluster).quotas == ()
