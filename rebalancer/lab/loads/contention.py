"""CPU contention in the lab: a simple model, in shares of time.

- A machine is *crowded* from CALM of its capacity on: tasks wait for 0 % of the time there, for 100 % at FULL, linear
  between. A pod that bursts makes its machine as crowded as its bursts add, for as long as they take; bursts of several
  pods come at different times.
- Every pod on a machine waits for the machine's share.
- A pod that demands more than its CPU limit is *throttled*: for 0 % of the periods at CALM of its limit, 100 % at FULL,
  and a burst counts for the time that it takes. CPU above its limit burdens no other pod, but its tasks wait
  meanwhile: that shows in its own pressure, and in the machine's, as on Linux.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rebalancer.lab.loads.history import Columns
from rebalancer.lab.loads.usage import SCRAPE_SECONDS, UsageModel
from rebalancer.model.notation.arrays import Bools, Floats

CALM, FULL = 0.8, 1.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Shares of time, 0..1, at one moment or as means over a window."""

    columns: Columns
    rows: NDArray[np.int64]
    """(pods,) indices into the stays of `columns`."""
    ran: Floats
    """(pods,) share of the window in which the pod ran."""
    pods: Floats
    """(pods,) in which it waited, throttling included; of the time in which it ran."""
    throttled: Floats
    """(pods,) of CFS periods in which its limit throttled it."""
    nodes: Floats
    """(machines,) in which some task waited."""
    up: Bools
    """(machines,)"""


class ContentionModel:
    """The model, at any moment."""

    def __init__(self, usage: UsageModel) -> None:
        self._usage = usage

    def window_mean(self, at: float, *, window_seconds: float) -> Waiting:
        """The mean over the window that ends at the last scrape at or before `at`."""
        samples = max(1, round(window_seconds / SCRAPE_SECONDS))
        last = np.floor(at / SCRAPE_SECONDS)
        return self.mean((last - np.arange(samples)[::-1]) * SCRAPE_SECONDS)

    def mean(self, times: Floats) -> Waiting:
        """The mean over these moments (ascending); of a pod, over those at which it ran."""
        demand = self._usage.demand(times)
        columns, rows = demand.columns, demand.rows
        stays = [columns.stays[row] for row in rows.tolist()]
        node = columns.node[rows]
        burst = np.array([stay.behaviour.cpu.burst_cores for stay in stays])[:, None]
        share = np.array([stay.behaviour.cpu.burst_share for stay in stays])[:, None]
        limit = np.array([stay.limit_cores for stay in stays])[:, None]
        steady = np.minimum(demand.pods, limit)
        burst = np.where(demand.running, burst, 0.0)
        throttled = _either(_crowded(demand.pods / limit), share * _crowded((demand.pods + burst) / limit))
        throttled *= demand.running
        capacity = np.array([machine.cores for machine in columns.machines])[:, None]
        load = demand.nodes.copy()
        np.subtract.at(load, node, demand.pods - steady)
        calm = 1.0 - _crowded(load / capacity)
        held = np.minimum(steady + burst, limit) - steady
        bursting = share * _crowded((load[node] + held) / capacity[node]) * (held > 0)
        np.multiply.at(calm, node, 1.0 - bursting)
        crowd = 1.0 - calm
        pods = _either(crowd[node], throttled) * demand.running
        np.multiply.at(calm, node, 1.0 - throttled)
        ran = np.maximum(np.count_nonzero(demand.running, axis=1), 1)
        return Waiting(
            columns=columns,
            rows=rows,
            ran=np.count_nonzero(demand.running, axis=1) / len(times),
            pods=pods.sum(axis=1) / ran,
            throttled=throttled.sum(axis=1) / ran,
            nodes=(1.0 - calm).mean(axis=1),
            up=demand.up[:, -1],
        )


def _crowded(load: Floats) -> Floats:
    """Share of the time in which tasks wait, at a load relative to capacity."""
    out: Floats = np.clip((load - CALM) / (FULL - CALM), 0.0, 1.0)
    return out


def _either(one: Floats, other: Floats) -> Floats:
    """Share of time in which at least one of two independent events occurs."""
    out: Floats = 1.0 - (1.0 - one) * (1.0 - other)
    return out
