"""Each pod's CPU demand, at any moment: a closed form, so that 8 days of history need no memory.

A pod's demand is `base * (1 + amplitude * daily + noise * wobble)`: a cosine with its peak at `peak_hour`, and three
cosines with incommensurate periods whose phases come from the seed and the pod's name. With `amplitude + noise <= 1` it
never goes below zero.
"""

import math
import zlib
from typing import Any

import msgspec
import numpy as np

from rebalancer.model.measured.history import DAY_SECONDS
from rebalancer.model.notation.arrays import Floats
from rebalancer.model.notation.decoding import json_decoder

WOBBLE_PERIODS_SECONDS = (7919.0, 2477.0, 607.0)
WOBBLE_WEIGHTS = (0.5, 0.3, 0.2)
PERIODS_SECONDS = (DAY_SECONDS, *WOBBLE_PERIODS_SECONDS)

BEHAVIOUR = "lab.rebalancer.dev/behaviour"
"""Pod annotation with a `Behaviour` as JSON. It is part of the template, so a replacement behaves the same."""

OVERHEAD = "lab.rebalancer.dev/overhead-cores"
"""Node annotation: the cores that the machine uses besides its pods."""


class CpuModel(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """CPU demand of a pod."""

    base: float = 0.05
    """Cores, mean over a day."""
    shards: tuple[float, ...] = ()
    """The same of the pods of a StatefulSet, by ordinal; those without one here have `base`."""
    amplitude: float = 0.0
    """Of the daily curve, as a share of the base."""
    peak_hour: float = 14.0
    noise: float = 0.0
    """As a share of the base."""
    total: float | None = None
    """Cores that all ready pods of the workload share evenly, instead of `base` for each."""
    burst_cores: float = 0.0
    """Additional demand for moments, too short to show in the means above; see `contention.py`."""
    burst_share: float = 0.0
    """The part of the time that the bursts take."""

    def __post_init__(self) -> None:
        if self.burst_cores < 0 or not 0 <= self.burst_share <= 1:
            raise ValueError("burst_cores must be at least 0, and burst_share between 0 and 1")
        if min((self.base, *self.shards)) < 0 or (self.total is not None and self.total < 0):
            raise ValueError("CPU can't be negative")
        if self.amplitude < 0 or self.noise < 0 or self.amplitude + self.noise > 1:
            raise ValueError("amplitude and noise must be at least 0, and together at most 1")


class Breaks(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """How a pod's containers end by themselves, repeatedly or for good."""

    after_seconds: float
    """From running to ended."""
    exit_code: int = 1
    reason: str = "Error"
    """Why a container ended: Error, OOMKilled."""
    restarts: bool = True
    """The kubelet restarts it with a growing back-off, and the pod waits in CrashLoopBackOff. False: the pod has
    failed."""
    pod_reason: str = ""
    """Of a pod that has failed: Evicted, NodeShutdown."""
    nodes: tuple[str, ...] = ()
    """It breaks only there; everywhere when empty."""

    def on(self, node: str) -> bool:
        """Whether it breaks on a node."""
        return not self.nodes or node in self.nodes


class MemoryModel(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Working set of a pod."""

    base_bytes: float = 200 * 2.0**20
    """Once it is warm."""
    shards: tuple[float, ...] = ()
    """The same of the pods of a StatefulSet, by ordinal; those without one here have `base_bytes`."""
    warm_seconds: float = 0.0
    """From its start, with nothing, until it is warm."""
    growth_bytes_per_hour: float = 0.0
    """In addition, for as long as its containers run: a leak. At the pod's memory limit they are OOM-killed."""

    def __post_init__(self) -> None:
        if min((self.base_bytes, *self.shards)) < 0 or self.warm_seconds < 0 or self.growth_bytes_per_hour < 0:
            raise ValueError("base_bytes, warm_seconds and growth_bytes_per_hour must be at least 0")


class Behaviour(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Behaviour of a pod in the lab."""

    cpu: CpuModel = CpuModel()
    memory: MemoryModel | None = None
    """None: see `amounts.py`. Then it is no part of the annotation, whose hash is in the names of pods."""
    resources: dict[str, float] = {}
    """Name -> amount of it that the pod uses, steadily."""
    group: str = ""
    """Pods of one group share `cpu.total`."""
    ready: bool = True
    start_seconds: float | None = None
    stop_seconds: float | None = None
    run_seconds: float | None = None
    breaks: Breaks | None = None
    sidecar: str = ""
    image_bytes: float | None = None
    """Size of the first container's image; a node reports only images whose size is known."""

    @property
    def leaks(self) -> bool:
        """Whether its memory grows for as long as its containers run."""
        return self.memory is not None and self.memory.growth_bytes_per_hour > 0


def behaviour_of(pod: dict[str, Any]) -> Behaviour:
    """A pod's behaviour; the default when the annotation is absent or can't be read."""
    text = (pod["metadata"].get("annotations") or {}).get(BEHAVIOUR)
    if not text:
        return Behaviour()
    try:
        return json_decoder(Behaviour).decode(text)
    except msgspec.DecodeError:
        return Behaviour()


def _phase(seed: int, key: str, index: int) -> float:
    return zlib.crc32(f"{seed}/{index}/{key}".encode()) / 2**32 * 2 * math.pi


class Curve(msgspec.Struct, frozen=True):
    """A pod's demand as cosines: `level + sum(weights[k] * cos(2 pi t / PERIODS_SECONDS[k] - phases[k]))` cores."""

    level: float
    weights: tuple[float, ...]
    phases: tuple[float, ...]

    def at(self, seconds: float) -> float:
        """Cores at `seconds` after midnight of the curves' day zero."""
        return self.level + sum(
            weight * math.cos(2 * math.pi * seconds / period - phase)
            for weight, period, phase in zip(self.weights, PERIODS_SECONDS, self.phases, strict=True)
        )


def curve(model: CpuModel, *, key: str, seed: int) -> Curve:
    """The curve of one pod (or of one group's total); `key` is its name."""
    level = of_shard(key, model.shards, model.base) if model.total is None else model.total
    return Curve(
        level,
        (level * model.amplitude, *(level * model.noise * weight for weight in WOBBLE_WEIGHTS)),
        (
            2 * math.pi * model.peak_hour / 24.0,
            *(_phase(seed, key, index) for index in range(len(WOBBLE_PERIODS_SECONDS))),
        ),
    )


def of_shard(pod: str, shards: tuple[float, ...], otherwise: float) -> float:
    """The figure of a pod of this name by its ordinal."""
    ordinal = pod.rpartition("-")[2]
    return shards[int(ordinal)] if ordinal.isdecimal() and int(ordinal) < len(shards) else otherwise


def coefficients(curves: list[Curve]) -> Floats:
    """(curves, 1 + 2 * periods): constant, then a cosine and a sine weight for each period."""
    table = np.zeros((len(curves), 1 + 2 * len(PERIODS_SECONDS)))
    for row, each in enumerate(curves):
        table[row, 0] = each.level
        for k, (weight, phase) in enumerate(zip(each.weights, each.phases, strict=True)):
            table[row, 1 + 2 * k] = weight * math.cos(phase)
            table[row, 2 + 2 * k] = weight * math.sin(phase)
    return table


def basis(seconds: Floats) -> Floats:
    """(1 + 2 * periods, times): what `coefficients` is multiplied with to get demand in cores."""
    angles = 2 * np.pi * seconds[None, :] / np.array(PERIODS_SECONDS)[:, None]
    rows = np.empty((1 + 2 * len(PERIODS_SECONDS), len(seconds)))
    rows[0] = 1.0
    rows[1::2] = np.cos(angles)
    rows[2::2] = np.sin(angles)
    return rows


def integral_basis(seconds: Floats) -> Floats:
    """The antiderivative of `basis`: multiplied with `coefficients` it gives CPU seconds up to `seconds`."""
    pulse = 2 * np.pi / np.array(PERIODS_SECONDS)[:, None]
    angles = pulse * seconds[None, :]
    rows = np.empty((1 + 2 * len(PERIODS_SECONDS), len(seconds)))
    rows[0] = seconds
    rows[1::2] = np.sin(angles) / pulse
    rows[2::2] = -np.cos(angles) / pulse
    return rows
