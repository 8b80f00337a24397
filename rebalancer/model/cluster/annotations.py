"""Annotations of pods that decisions read.

Readers of the cluster keep these and drop all others, before any policy is known: a guard on an annotation that is
missing here would never refuse.
"""

from collections.abc import Mapping
from typing import Final

from rebalancer.model.cluster.autoscaling import VPA_UPDATES

OWN_PREFIX: Final = "rebalancer.dev/"
"""Every annotation with it is kept: a policy may name one."""

MIRROR: Final = "kubernetes.io/config.mirror"
SOURCE: Final = "kubernetes.io/config.source"

VETOES: Final[Mapping[str, bool]] = {
    "cluster-autoscaler.kubernetes.io/safe-to-evict": False,
    "descheduler.alpha.kubernetes.io/evict": False,
    "descheduler.alpha.kubernetes.io/prefer-no-eviction": True,
    "karpenter.sh/do-not-disrupt": True,
    "karpenter.sh/do-not-evict": True,
}
"""Annotation -> the flag that forbids an eviction. A value that is neither true nor false forbids it too."""

REQUEST_EVICT_ONLY: Final = "descheduler.alpha.kubernetes.io/request-evict-only"
"""Its presence: another component carries out the eviction after the request, as KubeVirt does by a live migration.
Only the Eviction API's adapter reads it, right before the call."""
EVICTION_IN_PROGRESS: Final = "descheduler.alpha.kubernetes.io/eviction-in-progress"
"""Its presence: that component is carrying out an eviction; it removes the annotation when that failed."""

KEPT: Final = frozenset({MIRROR, SOURCE, *VETOES, EVICTION_IN_PROGRESS, VPA_UPDATES})


def is_kept(key: str) -> bool:
    """Whether a snapshot holds this annotation of pods."""
    return key in KEPT or key.startswith(OWN_PREFIX)


def run_by_kubelet(annotations: Mapping[str, str]) -> bool:
    """Whether these are of a mirror pod or a static pod."""
    return MIRROR in annotations or annotations.get(SOURCE, "api") != "api"
