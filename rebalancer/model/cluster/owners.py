"""Owners of pods, and the services that they belong to."""

import math
from dataclasses import dataclass

REVISION_LABEL = "controller-revision-hash"
"""Label of a StatefulSet's pods, and of those of controllers that are made after it."""

ROLLOUT_KINDS = ("Deployment", "StatefulSet", "DaemonSet")
"""Kinds whose status says whether they roll out."""

RUN_ONCE_KINDS = ("Job", "CronJob")
"""Kinds without revisions. Each Job has a pod template of its own, and there may be 100,000."""

OWNER_LEVELS = 8
"""More owners above each other than there are in any cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """A workload, or the owner reference of one that isn't listed.

    `desired` and `ready` are None where the kind has no such field; then the pods themselves are counted.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    parent: int = -1
    """Index of its own controlling owner, -1 at the top."""
    desired: int | None = None
    ready: int | None = None
    rolling_out: bool = False
    """The controller has not seen the newest spec, or not all replicas are of it."""
    paused: bool = False
    """A Deployment whose rollouts are paused."""
    recreates: bool = False
    """A Deployment of the strategy Recreate: its pods must not run beside each other."""
    next_revision: str = ""
    """An OnDelete StatefulSet: the revision that every pod made from now on has. Its older pods stay as they are."""
    finished: bool = False
    """A Job that has completed or failed: it makes no more pods."""
    ends: float = math.nan
    """When a Job ends at the latest by its activeDeadlineSeconds, seconds since the epoch; NaN without."""
    spares_disruptions: bool = False
    """A Job whose podFailurePolicy ignores DisruptionTarget: an eviction doesn't count as a failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """The workload that a user names: the top owner."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"
