"""The reasons of replacement first: why a pod that the policy chooses for it can't be moved in this way."""

from functools import partial

from rebalancer.model.reason.groups import BlockedReason, Row

_guard = partial(Row, BlockedReason.GUARDS)

OWNER = _guard(
    "SurgeOwner",
    "replacement first: only a Deployment can run one pod more for a time",
    "a Deployment as the owner, or {guards.replacementFirst} without it",
)
STRATEGY = _guard(
    "SurgeStrategy",
    "replacement first: the strategy Recreate says that its pods must not run beside each other",
    "another strategy of the Deployment",
)
PAUSED = _guard("SurgePaused", "replacement first: its Deployment is paused", "`kubectl rollout resume`")
VOLUME = _guard(
    "SurgeVolume",
    "replacement first: its volume can't be used by pods of two nodes (ReadWriteOnce)",
    "a volume that pods of several nodes can use",
)
HOST_PORT = _guard("SurgeHostPort", "replacement first: it uses ports of its node", "a pod without host ports")
AUTOSCALER = _guard(
    "SurgeAutoscaler",
    "replacement first: a HorizontalPodAutoscaler sets the replicas of its Deployment",
    "the autoscaler's end, or two replicas as its least",
)
DELETION_COST = _guard(
    "SurgeDeletionCost",
    "replacement first: a pod of its service has a deletion cost already",
    "the removal of the annotation controller.kubernetes.io/pod-deletion-cost",
)
FORBIDDEN = Row(
    BlockedReason.SERVER,
    "SurgeForbidden",
    "replacement first: refused by the API server",
    "the right to get deployments, update deployments/scale and patch pods there",
)
UNDONE = Row(
    BlockedReason.SERVER,
    "SurgeUndone",
    "replacement first was undone",
    "the next cycle: see the reason",
)
