"""A first policy for a cluster: a commented example with the cluster's own pools and Prometheus."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
POOL_LABELS = (
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool",
    "karpenter.sh/nodepool",
    "node.kubernetes.io/pool",
    "nodepool",
    "node-pool",
    "pool",
)
"""Labels that name a node's pool, the most specific first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedQueries:
    """Queries of usage, as fields of `usage.prometheus`."""

    comment: str
    fields: Mapping[str, Mapping[str, str]]
    """Empty for the default queries."""


DEFAULTS = ProposedQueries(comment="the default queries: node_exporter and cAdvisor", fields={})
RECORDING_RULES = ProposedQueries(
    comment="recording rules of kube-prometheus-stack",
    fields={
        "nodeCPU": {
            "query": "instance:node_cpu_utilisation:rate5m",
            "freshness": 'timestamp(node_cpu_seconds_total{mode="idle"})',
        },
        "podCPU": {"query": "node_namespace_pod_container:container_cpu_usage_seconds_total:sum_rate5m"},
    },
)
CANDIDATES = (DEFAULTS, RECORDING_RULES)
"""The first that has data is proposed."""


def proposed_pools(labels: Sequence[Mapping[str, str]]) -> tuple[str, dict[str, int]]:
    """(label that names the pools, pool -> nodes) from the labels of each node, without the control plane. The label is
    empty, and there is one pool, where no known label is on all nodes."""
    workers = [each for each in labels if CONTROL_PLANE not in each]
    for label in POOL_LABELS:
        if workers and all(each.get(label) for each in workers):
            return label, dict(sorted(Counter(each[label] for each in workers).items()))
    return "", {"general": len(workers)}


def proposed_policy(
    example: str, *, cluster: str, labels: Sequence[Mapping[str, str]], url: str, queries: ProposedQueries | None
) -> str:
    """The text of `example` with the pools of the cluster, and the URL and queries of its Prometheus. `queries` None =
    none of the candidates has data."""
    label, pools = proposed_pools(labels)
    head, _, rest = example.partition("\npools:\n")
    thresholds = re.search(r"^    thresholds:.*?(?=^\S|^$)", rest, re.M | re.S)
    assert thresholds is not None
    usage = rest[rest.index("\nusage:") :]
    blocks = [_pool(name, label, count, thresholds[0]) for name, count in pools.items()]
    # the comment of the example is about its own URL
    usage = re.sub(r"(?:    # .*\n)?    url: .*\n", lambda _: f"    url: {url}\n{_queries(queries)}", usage, count=1)
    head = re.sub(r"^cluster: .*", lambda _: f"cluster: {_quoted(cluster)}", head, flags=re.M)
    return f"{head}\npools:\n{''.join(blocks)}{usage}"


def _pool(name: str, label: str, count: int, thresholds: str) -> str:
    selector = (
        f"      matchLabels: {{{label}: {_quoted(name)}}}\n"
        if label
        else f"      matchExpressions:\n        - {{key: {CONTROL_PLANE}, operator: DoesNotExist}}\n"
    )
    return f"  - name: {_quoted(name)} # nodes now: {count}\n    selector:\n{selector}{thresholds}"


def _queries(queries: ProposedQueries | None) -> str:
    if queries is None:
        return "    # no candidate query has data there: `rebalancer doctor` says what is missing\n"
    lines = [f"    # {queries.comment}\n"]
    for section, fields in queries.fields.items():
        lines.append(f"    {section}:\n")
        lines += [f"      {field}: {_quoted(text)}\n" for field, text in fields.items()]
    return "".join(lines)


def _quoted(text: str) -> str:
    """A YAML string; quoted where a plain one would be read otherwise."""
    plain = re.fullmatch(r"[A-Za-z][-A-Za-z0-9_./:]*[A-Za-z0-9]", text) and not re.fullmatch(
        r"(?i)true|false|yes|no|on|off|null", text
    )
    return text if plain else "'" + text.replace("'", "''") + "'"
