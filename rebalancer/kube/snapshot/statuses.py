"""A pod's status besides its phase: whether it can be scheduled, restarts of its containers, and why they wait or have
ended."""

from collections.abc import Sequence

from rebalancer.kube.snapshot import records
from rebalancer.model.cluster.pods import PodStatus

RESIZING = "PodResizeInProgress"
"""Condition of a pod; PodResizePending isn't read: such a pod waits for room, and leaving its node gives it some."""

RESIZE_FAILED = "Error"
"""Reason of that condition while the kubelet can't do it, such as a lower memory limit than is in use. It may stay."""

MOST_RESTARTS = 2**31 - 1

NOTHING = PodStatus()
"""The status of most pods. It is the first in every table."""

CLAIM_MESSAGES = ("unbound immediate PersistentVolumeClaims", 'persistentvolumeclaim "')
"""Parts of the PodScheduled message of a pod whose claims are missing or not bound: no node is looked for. Source:
Kubernetes v1.36, plugins volumebinding and volumerestrictions."""


def scheduling_of(pod: records.Pod) -> tuple[bool, bool]:
    """(gated, unschedulable) of a pod that is not bound, as in `model.cluster.snapshot.Pods`."""
    refused = next((each for each in pod.status.conditions or () if each.type == "PodScheduled"), None)
    if refused is None or refused.status != "False":
        return bool(pod.spec.scheduling_gates), False
    waits_for_claim = any(each in refused.message for each in CLAIM_MESSAGES)
    return bool(pod.spec.scheduling_gates) or waits_for_claim, True


def is_quiet(status: records.PodStatus) -> bool:
    """Whether it is empty without restarts: so it is with most pods, and this is evaluated for every one."""
    if status.reason or status.init_container_statuses or _is_resizing(status):
        return False
    if status.container_statuses:
        for each in status.container_statuses:
            state = each.state
            if each.restart_count or (
                state is not None and (state.waiting is not None or state.terminated is not None)
            ):
                return False
    return True


def restarts_of(containers: Sequence[records.ContainerStatus] | None) -> int:
    """Restarts, summed; at most what a column holds."""
    return min(sum(each.restart_count for each in containers or ()), MOST_RESTARTS)


def status_of(status: records.PodStatus) -> PodStatus:
    """The reasons and exit codes, each once and in order, so that many pods have equal statuses.

    A running container contributes nothing, however its previous run ended.
    """
    own, init = status.container_statuses, status.init_container_statuses
    return PodStatus(
        reason=status.reason,
        containers=_reasons(own),
        init_containers=_reasons(init),
        exit_codes=_exit_codes(own),
        init_exit_codes=_exit_codes(init),
        resizing=_is_resizing(status),
    )


def _is_resizing(status: records.PodStatus) -> bool:
    for condition in status.conditions or ():
        if condition.type == RESIZING:
            return condition.status == "True" and condition.reason != RESIZE_FAILED
    return False


def _reasons(containers: Sequence[records.ContainerStatus] | None) -> tuple[str, ...]:
    states = [each.state for each in containers or () if each.state is not None]
    found = {why.reason for state in states for why in (state.waiting, state.terminated) if why is not None}
    return tuple(sorted(found - {""}))


def _exit_codes(containers: Sequence[records.ContainerStatus] | None) -> tuple[int, ...]:
    ended = [each.state.terminated for each in containers or () if each.state is not None]
    return tuple(sorted({each.exit_code for each in ended if each is not None}))
