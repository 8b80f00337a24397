"""The first policy for a cluster."""

from pathlib import Path

import pytest

from rebalancer.policy import load_policy
from rebalancer.policy.proposal import CANDIDATES, CONTROL_PLANE, ProposedQueries, proposed_policy

EXAMPLE = (Path(__file__).parents[2] / "policies" / "balanced.yaml").read_text()
URL = "http://prometheus:9090"


@pytest.mark.parametrize("queries", [*CANDIDATES, None])
def test_pools_come_from_the_label_that_all_workers_have(queries: ProposedQueries | None) -> None:
    labels = [{"pool": "web"}, {"pool": "on"}, {"pool": "web"}, {CONTROL_PLANE: ""}]
    text = proposed_policy(EXAMPLE, cluster="blue", labels=labels, url=URL, queries=queries)
    policy = load_policy(text.encode(), source="made")
    assert (policy.cluster, [each.name for each in policy.pools]) == ("blue", ["on", "web"])
    assert policy.pools[1].selector.match_labels == {"pool": "web"}
    assert "nodes now: 2" in text
    assert policy.usage.prometheus is not None
    assert policy.usage.prometheus.url == URL
    assert "balanced.yaml" not in text
    assert "the service of kube-prometheus-stack" not in text
    assert policy.pools[0].thresholds == load_policy(EXAMPLE.encode(), source="example").pools[0].thresholds


def test_without_such_a_label_there_is_one_pool() -> None:
    text = proposed_policy(EXAMPLE, cluster="b", labels=[{"pool": "web"}, {}], url=URL, queries=None)
    (pool,) = load_policy(text.encode(), source="made").pools
    assert [(each.key, each.operator) for each in pool.selector.match_expressions] == [(CONTROL_PLANE, "DoesNotExist")]
