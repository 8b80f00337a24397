"""What the projection says of a pod or a node beside what is now, in sentences; nothing where they don't differ."""

import numpy as np

from rebalancer.forecast.series.pod_cpu import PodCpu
from rebalancer.model.cluster.snapshot import Pod
from rebalancer.model.notation.figures import clock_time, counted, millicores
from rebalancer.placement.landing.model import PlacementModel
from rebalancer.projection.projection import Projection


def soon_of_pod(projection: Projection, pod: Pod) -> list[str]:
    """In the next minutes: whether it goes or ends, and how many pods of its service stay."""
    out = []
    if projection.ending[pod.index]:
        end = float(projection.ends[pod.index])
        out.append(f"it ends by {clock_time(end)}" if np.isfinite(end) else "it is terminating")
    elif projection.displaced[pod.index]:
        out.append(f"its node is about to go ({projection.leaving[pod.node]})")
    if pod.owner is not None and (missing := projection.why_missing(pod.index)):
        desired, staying = projection.replicas(pod.index)
        out.append(f"{staying} of {desired} pods of {pod.service} stay Ready: {missing}")
    return out


def soon_of_node(projection: Projection, node: int) -> list[str]:
    """In the next minutes: whether it goes, what ends on it, and what disturbs it."""
    pods, out = projection.snapshot.pods_on(node), []
    if (why := projection.leaving.get(node)) is not None:
        moves = int(np.count_nonzero(projection.displaced[pods]))
        out.append(f"it is about to go ({why}), and {counted(moves, 'pod')} with it")
    if ending := int(np.count_nonzero(projection.ending[pods])):
        out.append(f"{counted(ending, 'pod')} on it will have ended")
    if (refusal := projection.disturbed(node)) is not None:
        out.append(refusal.message)
    return out


def due_on_node(placement: PlacementModel, cpu: PodCpu, node: int) -> list[str]:
    """The displaced pods that are expected on the node."""
    due = placement.due
    here, of_pod = due.nodes == node, np.nan_to_num(cpu.elsewhere)
    number, used = float(due.expected[here].sum()), float(of_pod[due.pods[here]] @ due.expected[here])
    for pods, each_counts, share in due.others:
        number += len(pods) * each_counts * float(share[node])
        used += float(of_pod[pods].sum()) * each_counts * float(share[node])
    return [f"{number:.1f} displaced pods are expected on it, with {millicores(used)} in all"] if number else []
