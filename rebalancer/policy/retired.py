"""Renamed keys of the policy file: an old key is refused with a line that names the new one."""

from collections.abc import Iterator
from typing import Any

RETIRED_KEYS = {
    "safety.brake": "safety.circuitBreaker",
    "safety.brake.effect.last": "safety.circuitBreaker.effect.sampleSize",
    "safety.brake.effect.atLeast": "safety.circuitBreaker.effect.minEffectiveness",
    "safety.cooldowns.giveUp": "safety.cooldowns.backoff",
    "safety.cooldowns.giveUp.first": "safety.cooldowns.backoff.initial",
    "safety.cooldowns.giveUp.longest": "safety.cooldowns.backoff.max",
    "safety.waitAtMost": "safety.maxWait",
    "usage.debounce": "usage.stabilizationWindow",
    "usage.debounce.over": "usage.stabilizationWindow.duration",
    "steering": "softTaint",
    "effect.standard": "effect.hotNodeSLO",
    "effect.settle": "effect.settlingTime",
    "effect.keepDetails": "effect.detailRetention",
    "limits.landings": "limits.replacements",
    "forecast.every": "forecast.interval",
    "strategies[].every": "strategies[].interval",
    "forecast.lead": "forecast.leadTime",
    "forecast.days": "forecast.dayWeights",
    "alerts.floor": "alerts.minHigh",
    "HighNodeUtilization.atOnce": "HighNodeUtilization.maxConcurrentNodes",
    "NodeMaintenance.atOnce": "NodeMaintenance.maxConcurrentNodes",
    "NodeMaintenance.waveBy": "NodeMaintenance.waveLabel",
    "HighNodeUtilization.unchangedFor": "HighNodeUtilization.minAge",
    "HighNodeUtilization.reserve": "HighNodeUtilization.headroom",
    "HighNodeUtilization.hold": "HighNodeUtilization.cordonAfterDrain",
    "HighNodeUtilization.releaseTo": "HighNodeUtilization.releaseTarget",
    "ServiceSpread.alike": "ServiceSpread.minCorrelation",
}
"""Old path -> new path. `strategies[]` is any entry of the list, `<strategy>.x` an argument of that strategy."""

_ELSEWHERE = {"LowNodeUtilization.bestEffort": "planner.worth: Aggressive"}
"""The same of keys that are now in another section."""


def _parent(path: str) -> str:
    return path.rpartition(".")[0]


# Sections are visited under their new names, so that the keys below a renamed section are found in the same pass.
_RENAMED = {f"{_parent(new)}.{old.rpartition('.')[2]}".lstrip("."): (old, new) for old, new in RETIRED_KEYS.items()}
_RENAMED |= {old: (old, new) for old, new in _ELSEWHERE.items()}
_SECTIONS = {_parent(new) for new in RETIRED_KEYS.values()} | {_parent(_parent(new)) for new in RETIRED_KEYS.values()}


def retired_keys(
    section: Any, way: tuple[str | int, ...] = (), path: str = ""
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """(where it stands, the message) of every retired key in a policy document."""
    if not isinstance(section, dict):
        return
    for key, value in section.items():
        here = f"{path}.{key}".lstrip(".")
        if here in _RENAMED:
            old, here = _RENAMED[here]
            yield (*way, key), f"`{old}` is now `{here}`"
        if here == "strategies" and isinstance(value, list):
            for index, strategy in enumerate(value):
                yield from retired_keys(strategy, (*way, key, index), "strategies[]")
        elif here == "strategies[].args":
            yield from retired_keys(value, (*way, key), str(section.get("name")))
        elif here in _SECTIONS:
            yield from retired_keys(value, (*way, key), here)
