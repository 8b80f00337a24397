"""Each dependency probed on its own: what was found, or the exact cause and the fix."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

from rebalancer.bootstrap.commands.ledger_view import failed_parts
from rebalancer.bootstrap.process.clock import SystemClock
from rebalancer.bootstrap.process.settings import Settings
from rebalancer.bootstrap.wiring.cluster import client_of
from rebalancer.bootstrap.wiring.database import kept_records
from rebalancer.cycle.context import NullProgress
from rebalancer.cycle.observe.ledger_state import global_limits_text
from rebalancer.kube.client.client import ApiClient
from rebalancer.kube.client.permissions import can_i
from rebalancer.kube.metrics_server import probe_metrics_server
from rebalancer.kube.probe import lease_holder, list_nodes, needed_permissions, rules
from rebalancer.kube.snapshot.snapshot import OPTIONAL_RESOURCES, KubeCluster
from rebalancer.kube.snapshot.version import server_version
from rebalancer.model.cluster.obstacles import Obstacle
from rebalancer.model.errors import RebalancerError
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.pools import NodePools
from rebalancer.prometheus.readings.reader import PrometheusUsage
from rebalancer.store import status
from rebalancer.strategies import may_cordon

DATABASE_FIX = "see --database and REBALANCER_DATABASE; an older schema needs `rebalancer db upgrade`"
SERVER_FIX = "see --kubeconfig and --context; `kubectl get --raw /readyz` queries the same server"
METRICS_SERVER_FIX = (
    "usage.source is MetricsServer: `kubectl top nodes` queries the same API; or take usage from Prometheus"
)
LIMITS_FIX = "limits.global is shared by all clusters with this database: state the same in each policy, then run there"
PARTS_FIX = "the rest goes on; the log of the daemon has the trace (`part failed`): report it"
ALLOWED = {
    "permissions": "everything that a run needs is allowed",
    "watches": "everything that the daemon watches is allowed",
    "optional kinds": "Services, quotas, volume limits, CSIDrivers and autoscalers may be read",
    "events": "the daemon may write them",
}
WITHOUT = {
    "watches": " (the daemon needs them; `run --once` and `plan` only list)",
    "optional kinds": " (quotas and autoscalers are not checked; pods with CSI volumes, of Jobs and others stay)",
    "events": " (`kubectl describe` shows no evictions)",
}
"""Consequence of the missing permissions."""
MOST_OBSTACLES = 10
"""Objects that one line names."""
PROMETHEUS_FIX = "see usage.prometheus in the policy: url, bearerTokenFile or basicAuth, caFile; and network policies"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One line of the diagnosis."""

    name: str
    ok: bool
    detail: str
    warning: bool = False
    """Usable, but needs attention."""
    fix: str = ""
    exit_code: int = 0
    """Exit code of a command that meets this failure."""


def diagnose(policy: RebalancerPolicy, settings: Settings) -> Iterator[Check]:
    """Probe database, API server, pools, permissions, objects, Lease and usage source, and compare the global limits of
    the clusters; each part on its own, whatever the others answer."""
    with ExitStack() as stack:
        database = _attempt("database", lambda: _database(policy, settings), fix=DATABASE_FIX)
        yield database
        if database.ok:
            yield _global_limits(policy, settings)
            yield _parts(policy, settings)
        clients: list[ApiClient] = []

        def connect() -> str:
            clients.append(client := client_of(settings, stack))
            return f"{client.server}: Kubernetes {server_version(client)}"

        server = _attempt("api server", connect, fix=SERVER_FIX)
        yield server
        if server.ok:
            (client,) = clients
            yield _pools(client, policy)
            yield from _permissions(client, policy, settings)
            yield _objects(client)
            yield _attempt(
                "lease", lambda: lease_holder(client, *settings.lease_at) or "not there yet: the first run creates it"
            )
        if policy.usage.source == "Prometheus":
            yield from _prometheus(policy)
        elif server.ok:
            yield _attempt("metrics-server", lambda: probe_metrics_server(client), fix=METRICS_SERVER_FIX)


def _attempt(name: str, probe: Callable[[], str], fix: str = "") -> Check:
    try:
        return Check(name=name, ok=True, detail=probe())
    except RebalancerError as error:
        return Check(name=name, ok=False, detail=str(error), fix=fix, exit_code=error.exit_code)


def _database(policy: RebalancerPolicy, settings: Settings) -> str:
    with kept_records(policy, settings) as records:
        if records is None:
            return "not there yet: the first run creates it"
        found = status(settings.database)
    return f"{found.url_shown}: revision {found.revision}"


def _global_limits(policy: RebalancerPolicy, settings: Settings) -> Check:
    name = "global limits"
    try:
        with kept_records(policy, settings) as records:
            stated = {} if records is None else dict(records.ledger().global_limits())
    except RebalancerError as error:
        return Check(name=name, ok=False, detail=str(error), fix=DATABASE_FIX, exit_code=error.exit_code)
    stated[policy.cluster] = global_limits_text(policy)  # the policy file as it is now, whatever the last run recorded
    differing = differences(stated)
    if differing:
        return Check(name=name, ok=True, warning=True, detail="; ".join(differing), fix=LIMITS_FIX)
    others = sorted(set(stated) - {policy.cluster})
    return Check(name=name, ok=True, detail=f"the same in {', '.join(others)}" if others else "no other cluster's yet")


def _parts(policy: RebalancerPolicy, settings: Settings) -> Check:
    """Parts that failed unexpectedly in the last cycle: a warning, since the rest goes on."""
    name = "parts"
    try:
        with kept_records(policy, settings) as records:
            failed = () if records is None else failed_parts(records)
    except RebalancerError as error:
        return Check(name=name, ok=False, detail=str(error), fix=DATABASE_FIX, exit_code=error.exit_code)
    if failed:
        return Check(name=name, ok=True, warning=True, detail="; ".join(failed), fix=PARTS_FIX)
    return Check(name=name, ok=True, detail="none failed in the last cycle")


def differences(stated: Mapping[str, str]) -> list[str]:
    """Fields in which clusters (name -> JSON object) differ: `spacing: "30s" in blue and red, null in green`."""
    documents = {cluster: _fields(text) for cluster, text in sorted(stated.items())}
    out = []
    for field in sorted({field for document in documents.values() for field in document}):
        values: dict[str, list[str]] = {}
        for cluster, document in documents.items():
            values.setdefault(json.dumps(document.get(field), sort_keys=True), []).append(cluster)
        if len(values) > 1:
            text = ", ".join(f"{value} in {' and '.join(clusters)}" for value, clusters in values.items())
            out.append(f"{field}: {text}")
    return out


def _fields(text: str) -> dict[str, Any]:
    """The object in `text`; a document that can't be decoded is one field of its own."""
    try:
        document = json.loads(text)
    except ValueError:
        document = text
    return document if isinstance(document, dict) else {"(not understood)": document}


def _pools(client: ApiClient, policy: RebalancerPolicy) -> Check:
    """Nodes of each pool. One without nodes is a warning, since an autoscaler may have emptied it; no node in any, a
    failure."""
    name = "pools"
    try:
        nodes = list_nodes(client)
        pools = NodePools.of(policy.pools, nodes)
    except RebalancerError as error:
        return Check(name=name, ok=False, detail=str(error), exit_code=error.exit_code)
    counts = {pool.name: len(pools.members(index)) for index, pool in enumerate(policy.pools)}
    empty = [pool for pool, count in counts.items() if not count]
    shown = [*(f"{pool} {count}" for pool, count in counts.items()), f"in none {len(nodes) - sum(counts.values())}"]
    failed, ambiguous = len(empty) == len(counts), pools.obstacles()
    fixes = (
        [f"{', '.join(empty)}: no node matches the selector; see `kubectl get nodes --show-labels`"] if empty else []
    )
    fixes += [_shown(ambiguous)] if ambiguous else []
    return Check(
        name=name,
        ok=not failed,
        warning=bool(empty or ambiguous) and not failed,
        detail=f"nodes: {', '.join(shown)}",
        fix="; ".join(fixes),
        exit_code=4 if failed else 0,
    )


def _objects(client: ApiClient) -> Check:
    """Objects that can't be read. Each costs only what it concerns, so they are a warning."""
    name = "objects"
    try:
        snapshot = KubeCluster(client=client, clock=SystemClock()).snapshot()
    except RebalancerError as error:
        return Check(name=name, ok=False, detail=str(error), fix=SERVER_FIX, exit_code=error.exit_code)
    found = snapshot.obstacles
    return Check(
        name=name,
        ok=True,
        warning=bool(found),
        detail=f"{len(found)} can't be read, and what they concern is left alone" if found else "all can be read",
        fix=_shown(found),
    )


def _shown(obstacles: Sequence[Obstacle]) -> str:
    more = f"; {len(obstacles) - MOST_OBSTACLES} more: `rebalancer status`" if len(obstacles) > MOST_OBSTACLES else ""
    return "; ".join(map(str, obstacles[:MOST_OBSTACLES])) + more


def _permissions(client: ApiClient, policy: RebalancerPolicy, settings: Settings) -> Iterator[Check]:
    """Permissions of one cycle, and those that only the daemon needs, each with the rules that grant it."""
    namespace, name = settings.lease_at
    taints_nodes = policy.soft_taint.mode == "Taint" or may_cordon(policy.strategies)
    needed = needed_permissions(
        lease_namespace=namespace,
        lease_name=name,
        taints_nodes=taints_nodes,
        surges=bool(policy.guards.replacement_first),
        daemon=True,
    )
    try:
        missing = [permission for permission in needed if can_i(client, permission) is False]
    except RebalancerError as error:
        yield Check(name="permissions", ok=False, detail=str(error), exit_code=error.exit_code)
        return
    unneeded = {each.plural for each in OPTIONAL_RESOURCES}
    optional = [each for each in missing if each.resource in unneeded]
    events = [each for each in missing if each.resource == "events"]
    watches = [each for each in missing if each.verb == "watch" and each not in optional]
    of_a_run = [each for each in missing if each not in (*watches, *events, *optional)]
    for name, lacking in (
        ("permissions", of_a_run),
        ("watches", watches),
        ("optional kinds", optional),
        ("events", events),
    ):
        without = WITHOUT.get(name, "")
        # without these evictions go on
        informational = name in ("optional kinds", "events")
        yield Check(
            name=name,
            ok=informational or not lacking,
            warning=informational and bool(lacking),
            detail=f"not allowed: {', '.join(map(str, lacking))}{without}" if lacking else ALLOWED[name],
            fix=f"add to the account's {rules(lacking)}" if lacking else "",
            exit_code=5 if lacking and not informational else 0,
        )


def _prometheus(policy: RebalancerPolicy) -> Iterator[Check]:
    try:
        with closing(PrometheusUsage(policy.usage, NullProgress(), stabilized=policy.threshold_resources)) as reader:
            found = reader.probe()
    except RebalancerError as error:
        yield Check(name="prometheus", ok=False, detail=str(error), fix=PROMETHEUS_FIX, exit_code=error.exit_code)
        return
    yield Check(name="prometheus", ok=True, detail=f"{found.url}: version {found.version or 'unknown'}")
    for metric in found.metrics:
        age = "" if metric.newest_age_seconds is None else f", newest sample {metric.newest_age_seconds:.0f} s old"
        detail = metric.error or (f"{metric.series} series{age}" if metric.series else "no series")
        ok = bool(metric.series) or not metric.needed
        yield Check(
            name=metric.name,
            ok=ok,
            warning=ok and bool(metric.error),
            detail=detail if metric.needed or metric.series else f"{detail} (optional)",
            fix="" if ok else metric.fix,
            exit_code=0 if ok else 4,
        )
