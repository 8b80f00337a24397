"""The releases of Kubernetes whose kube-scheduler is modelled, and where their decisions differ."""

import re

OLDEST_MINOR, NEWEST_MINOR = 36, 37
"""Minor versions of Kubernetes 1. Older and newer ones count as the nearest of them."""

RESIZES_AS_TOTALS = 37
"""From here on what a pod requests while it is resized in place is compared as totals of the pod, before that container
by container."""
IMAGE_VOLUMES_COUNT = 37
"""From here on an image volume raises the size at which ImageLocality gives the most, as a container does."""
NAMESPACES_OF_OWN_TERMS = 37
"""From here on the namespaceSelector of a pod's own affinity terms selects by labels alone. Before that one that
selects a namespace without labels selected all."""
DRIVERS_MAY_BE_REQUIRED = 37
"""From here on a CSIDriver can keep pods with its volumes off nodes that don't have it."""


def modelled_minor(version: str) -> int:
    """The minor version to follow for an API server that calls itself, say, `v1.36.2`. The oldest for one that doesn't
    tell: a build without a version is 0.0.0."""
    found = re.match(r"v?1\.(\d{1,4})", version)
    return OLDEST_MINOR if found is None else min(max(int(found[1]), OLDEST_MINOR), NEWEST_MINOR)
