"""Rows of `limits` and `windows`: the usage of each limit, the state of each change window."""

import numpy as np

from rebalancer.constraints.admission import EvictionAdmission, LedgerState
from rebalancer.constraints.moves.limits import describe_check
from rebalancer.constraints.moves.windows import CHANGE_WINDOW, ChangeWindows, describe
from rebalancer.constraints.pods.lists import service_name
from rebalancer.constraints.pods.trust import Trust
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.limits import Denied, LimitLine, Scope
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.pools import NodePools
from rebalancer.policy.schema.windows import WindowState


def limit_lines(
    snapshot: ClusterSnapshot, ledger_state: LedgerState, policy: RebalancerPolicy, *, now: float
) -> list[LimitLine]:
    """The limits of global, cluster, pools and levels, and of every other scope with an entry in its window.

    `now`: by the ledger's clock, if there is a ledger.
    """
    pool_of = NodePools.of(policy.pools, snapshot.nodes).of_node
    admission = EvictionAdmission(policy=policy, snapshot=snapshot, pool_of=pool_of, ledger_state=ledger_state, now=now)
    seen = {entry.scope for entry in ledger_state.entries}
    out = []
    for check in admission.rules.every_check(seen):
        due = admission.view.due((check,))
        used = admission.view.used(check)
        out.append(
            LimitLine(
                scope=check.scope,
                what=describe_check(check),
                in_bytes=check.kind == "bytes",
                used=used,
                left=0 if isinstance(due, Denied) else max(check.at_most - used, 0),
                next_at=due.next_at if isinstance(due, Denied) else (due if due > now else None),
            )
        )
    return out


def window_lines(book: ChangeWindows, *, now: float) -> list[tuple[Scope, WindowState, str]]:
    """(scope, state, description) of every scope with windows, widest first."""
    states = ((scope, book.state(scope, now=now)) for scope in book.windows)
    return [(scope, state, describe(state)) for scope, state in states]


def service_windows(
    snapshot: ClusterSnapshot, book: ChangeWindows, policy: RebalancerPolicy, *, namespace: str | None, now: float
) -> list[tuple[Scope, WindowState, str]]:
    """The same for services with a change-window annotation that counts, by name; `namespace` None = all namespaces.

    A service in a rollout may appear twice: with the windows of its old and of its new pods.
    """
    pods = snapshot.pods
    carried = {
        template: text
        for template in range(len(snapshot.pod_templates))
        if (text := snapshot.pod_templates[template].annotations.get(CHANGE_WINDOW)) is not None
    }
    found = {
        (pods.namespace[index], pods.owner[index], pods.template[index]): index
        for index in np.flatnonzero(np.isin(pods.template, list(carried))).tolist()
    }
    named, trust = set(), Trust(policy.trust, snapshot, now=now)
    for index in found.values():
        pod = snapshot.pod(index)
        if namespace in (None, pod.namespace) and "ChangeWindow" not in trust.lifted_in(pod.namespace):
            named.add((service_name(pod), carried[int(pods.template[index])]))
    states = ((name, book.state_of_service(text, now=now)) for name, text in sorted(named))
    return [(Scope.of("service", name=name), state, describe(state)) for name, state in states]
