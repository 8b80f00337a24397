"""ImageLocality: nodes that have a pod's images already.

Source: Kubernetes v1.37, plugins/imagelocality.
"""

import numpy as np

from rebalancer.model.cluster.nodes import NodeImages
from rebalancer.model.cluster.objects import PodTemplate
from rebalancer.model.cluster.releases import IMAGE_VOLUMES_COUNT
from rebalancer.model.notation.arrays import Floats, Rows

MIB = 1024.0 * 1024.0
MIN_BYTES = 23 * MIB
MAX_BYTES_PER_CONTAINER = 1000 * MIB


def normalised(name: str) -> str:
    """The name with its tag; one without tag or digest means `:latest`."""
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"


def image_locality(images: NodeImages, template: PodTemplate, nodes: int, *, minor: int) -> Floats:
    """(nodes,) 0..100: the images' sizes, each scaled by the share of all nodes that have it. `minor`: as of the
    snapshot."""
    total = np.zeros(nodes)
    for name in map(normalised, (*template.images, *template.volume_images)):
        size, there = images.size_of(name), images.nodes_with(name)
        if size is not None and len(there):
            total[there] += np.floor(size * (len(there) / nodes))
    # a pod always has a container; a template that lists none is one whose images aren't known
    counted = max(len(template.images), 1) + (len(template.volume_images) if minor >= IMAGE_VOLUMES_COUNT else 0)
    most = MAX_BYTES_PER_CONTAINER * counted
    score: Floats = np.floor(100.0 * (np.clip(total, MIN_BYTES, most) - MIN_BYTES) / (most - MIN_BYTES))
    return score


def missing_bytes(images: NodeImages, template: PodTemplate, rows: Rows, nodes: int) -> Floats:
    """(rows,) bytes that a node would have to pull; images that no node has reported count 0."""
    total = np.zeros(nodes)
    for name in {normalised(each) for each in (*template.images, *template.volume_images)}:
        if (size := images.size_of(name)) is not None:
            total += size
            total[images.nodes_with(name)] -= size
    return total[rows]
