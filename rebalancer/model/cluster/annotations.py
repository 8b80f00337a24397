"""Annotations of pods that decisions read.

Readers of the cluster keep these and drop all others, before any policy is known: a guard on an annotation that is
missing here would never refuse.
"""

from collections.abc import Mapping
from typing import Final

from rebalancer.model.cluster.autoscaling import VPA_UPDATES

OWN_PREFIX: Final = "rebalancer.dev/"
"""Every annotation with it is kept: a policy may name one."""

OPT: Final = f"{OWN_PREFIX}evict"
"""Annotation and label: whether the pod may be evicted."""

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


_TRUE = ("1", "t", "T", "TRUE", "true", "True")
_FALSE = ("0", "f", "F", "FALSE", "false", "False")


def parse_flag(value: str) -> bool | None:
    """A boolean as Go's `strconv.ParseBool` reads it; None for any other text."""
    return True if value in _TRUE else False if value in _FALSE else None


def vetoed_by(annotations: Mapping[str, str]) -> str | None:
    """The annotation among VETOES that forbids an eviction, or None."""
    return next(
        (
            key
            for key, forbids in VETOES.items()
            if (value := annotations.get(key)) is not None and parse_flag(value) in (forbids, None)
        ),
        None,
    )


def opts_out(annotations: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Whether a pod with these says that it must not be evicted, or that its eviction is in progress."""
    flags = [parse_flag(found[OPT]) for found in (annotations, labels) if OPT in found]
    return not all(flags) or vetoed_by(annotations) is not None or EVICTION_IN_PROGRESS in annotations
