"""What the API server's state says about an eviction whose outcome is not known.

The process died around the call, or the call timed out. An evicted pod is gone, terminating, or another pod has its
name. Until it is reconciled such an eviction counts; a pod that is alive refunds it.
"""

from rebalancer.model.decisions.eviction import Eviction, Outcome
from rebalancer.model.decisions.ports import PodState

CALL_GRACE_SECONDS = 60.0
"""An eviction call may be in progress for so long after it was recorded."""


def reconciled_outcome(eviction: Eviction, pod: PodState | None) -> tuple[Outcome, str]:
    """(outcome, detail) from the API server's state of the pod's name; None = there is no such pod."""
    if pod is None:
        return Outcome.EVICTED, "the pod is gone: counted as evicted"
    if pod.uid != eviction.uid:
        return Outcome.EVICTED, "another pod has its name now: counted as evicted"
    if pod.terminating:
        return Outcome.EVICTED, "the pod is terminating: counted as evicted"
    if pod.eviction_in_progress:
        return Outcome.EVICTED, "its eviction is in progress in the background: counted as evicted"
    if eviction.outcome is Outcome.UNKNOWN:
        return Outcome.FAILED, "the call without an answer did not evict it: the pod is alive"
    return Outcome.FAILED, "the call was never made or was refused: the pod is alive"
