"""The CPU rates of the simulated cluster's nodes: the loads that their pods carry, and what is used outside of pods."""

from collections.abc import Mapping

import numpy as np

from rebalancer.model.notation.arrays import Floats
from rebalancer.model.notation.resource_names import CPU
from rebalancer.replay.simulation.loads import Wide, top_owners
from rebalancer.replay.simulation.pods import NEVER
from rebalancer.replay.simulation.state import ClusterState


class Demand:
    """Summed up again for each step and when nodes change; in between pod by pod."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self.uncarried: dict[int, None] = {}
        """Loads that no pod carries until a replacement is Ready: their service's other pods share them."""
        self._service: Wide = top_owners(state.recording.owners)[state.recording.pods.owner[state.loads.pod]]
        self._of_service = _grouped(self._service)
        self._carried: Floats | None = None
        """(nodes,) millicores of the loads that pods carry, and outside of pods; None = to be summed up again."""
        self._rate: Floats | None = None
        """The same with the loads that no pod carries."""
        self._versions = -1, -1
        """Of the nodes and pods that these are of."""

    def begin_step(self) -> None:
        """Loads use something else from now on."""
        self._carried = None

    def rate(self) -> Floats:
        """(nodes,) millicores."""
        state, pods = self._state, self._state.pods
        versions = state.nodes.version, pods.version
        if self._carried is None or self._versions[0] != versions[0]:
            rows = state.carrying()
            usage = state.loads.usage[CPU].at(pods.load[rows], state.step)
            carried = np.bincount(pods.node[rows], weights=usage, minlength=len(state.recording.nodes))
            outside = np.where(state.nodes.there, state.loads.elsewhere[CPU][:, state.step], 0.0)
            self._carried, self._rate = carried.astype(np.float64) + outside, None
        if self._rate is None or self._versions != versions:
            self._rate = self._carried.copy() if self.uncarried else self._carried
            for load in self.uncarried:
                siblings = self._siblings(load)
                if len(siblings):
                    surplus = state.loads.usage[CPU].of(load, state.step)
                    self._rate += np.bincount(pods.node[siblings], minlength=len(self._rate)) * (
                        surplus / len(siblings)
                    )
        self._versions = versions
        return self._rate

    def begin(self, row: int) -> None:
        """A pod begins to carry its load."""
        self._state.pods.from_at[row] = self._state.now
        self.uncarried.pop(int(self._state.pods.load[row]), None)
        self._add(row, 1)

    def end(self, row: int) -> None:
        """A pod is gone, and carries its load no longer."""
        pods = self._state.pods
        if pods.node[row] >= 0 and pods.from_at[row] < NEVER:
            self._add(row, -1)

    def _add(self, row: int, sign: int) -> None:
        state = self._state
        if self._carried is not None:
            self._carried[state.pods.node[row]] += sign * state.loads.usage[CPU].of(
                int(state.pods.load[row]), state.step
            )

    def _siblings(self, load: int) -> Wide:
        """Ready pods of the other loads of a load's service."""
        service, pods, now = int(self._service[load]), self._state.pods, self._state.now
        if service < 0:
            return np.zeros(0, dtype=np.int64)
        loads = self._of_service[service]
        rows = self._state.current[loads[loads != load]]
        rows = rows[rows >= 0]
        ready = (pods.ready_at[rows] <= now) & (pods.going_at[rows] == NEVER) & (pods.gone_at[rows] == NEVER)
        found: Wide = rows[ready]
        return found


def _grouped(service: Wide) -> Mapping[int, Wide]:
    """Service -> its loads."""
    order = np.argsort(service, kind="stable")
    names, begins = np.unique(service[order], return_index=True)
    return dict(zip(names.tolist(), np.split(order, begins[1:]), strict=True)) if len(names) else {}
