"""Refusals that a pod's creator can bring about: the shield of `policy.schema.trust` that each belongs to."""

from collections.abc import Mapping
from typing import Final

SHIELD_OF: Final[Mapping[str, str]] = {
    "OptedOut": "OptOut",
    "InvalidOptOut": "OptOut",
    "AnnotationVeto": "Veto",
    "EvictionInProgress": "InProgress",
    "WindowClosed": "ChangeWindow",
    "WindowInvalid": "ChangeWindow",
    "UnknownLevel": "Level",
    "LevelForbids": "Level",
    "Ourselves": "Name",
    "OurPrometheus": "Name",
    "OurDatabase": "Name",
    "PodGroup": "Group",
    "LabelExcluded": "Label",
    "DenyListed": "Label",
    "CrossCluster": "Label",
    "SystemCritical": "Priority",
    "PriorityThreshold": "Priority",
    "HostPath": "Volume",
    "LocalStorage": "Volume",
    "PersistentVolume": "Volume",
    "NotReady": "Health",
    "RolloutInProgress": "Health",
    "OwnerNotHealthy": "Health",
    "Autoscaling": "Health",
}
"""Code -> shield."""

_WHERE: Final[Mapping[str, str]] = {
    "OptedOut": "where its node doesn't say so",
    "InvalidOptOut": "where its node doesn't say so",
    "EvictionInProgress": "where an annotation says so",
    "WindowClosed": "where the window is the service's own",
    "LevelForbids": "where the pod names the level",
    "Ourselves": "where only a label says so",
    "LabelExcluded": "where the label is among guards.labels.exclude",
    "DenyListed": "where the entry selects labels",
    "RolloutInProgress": "where enough pods are Ready",
    "OwnerNotHealthy": "where enough pods are Ready",
    "Autoscaling": "where enough pods are Ready",
}
"""Code -> where the shield's end is enough, if not always."""


def lifted_by_trust(code: str) -> str:
    """What of the policy's `trust` lifts a refusal, as the end of a sentence; empty where nothing does."""
    shield = SHIELD_OF.get(code)
    if shield is None:
        return ""
    where = _WHERE.get(code)
    return f"; or trust without {shield}" + (f", {where}" if where else "")
