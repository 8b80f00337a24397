"""Container images on nodes, as a kubelet reports them."""

from typing import Any

from rebalancer.lab.loads.cpu import behaviour_of
from rebalancer.placement.scores import normalised

Obj = dict[str, Any]

MOST_REPORTED = 50
"""The kubelet's `--node-status-max-images`; the largest are reported."""


def entry(name: str, size_bytes: float) -> Obj:
    """One image of a node's `status.images`."""
    return {"names": [normalised(name)], "sizeBytes": int(size_bytes)}


def reported(images: list[Obj]) -> list[Obj]:
    """What a node's status holds of its images: the largest first."""
    return sorted(images, key=lambda each: (-each["sizeBytes"], each["names"]))[:MOST_REPORTED]


def missing(pod: Obj, node: Obj | None) -> Obj | None:
    """The image that the pod's node has to pull for it; None when it has it or its size isn't known."""
    size = behaviour_of(pod).image_bytes
    if size is None or node is None:
        return None
    wanted = entry(pod["spec"]["containers"][0]["image"], size)
    there = any(wanted["names"][0] in each["names"] for each in node["status"].get("images") or ())
    return None if there else wanted
