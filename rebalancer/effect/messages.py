"""What is said of misses, of nodes that nothing left, and of outcomes: one sentence for each, and how numbers look."""

import math
from collections.abc import Mapping
from typing import Final

from rebalancer.model.effect import BlockedReason, Miss, Outcome, Rate

NOTHING: Final = "-"
"""A rate of nothing, and whatever isn't known."""

MISS_TEXTS: Final[Mapping[Miss, str]] = {
    Miss.DAEMON_DOWN: "no cycle ran while it was hot",
    Miss.NOT_COVERED: "it is in no pool that a strategy looks at",
    Miss.NO_METRICS: "its usage was missing or not to be trusted",
    Miss.DEBOUNCE: "it was not hot for long enough, or a move from it was still settling",
    Miss.NOT_SENSITIVE: "what we measured stayed at or under our own high",
    Miss.NOT_LOOKED_AT: "cycles ran, but none looked at it while it was hot",
    Miss.NOT_READY: "the node was not Ready",
}

BLOCKED_TEXTS: Final[Mapping[BlockedReason, str]] = {
    BlockedReason.GUARDS: "guards protect its pods",
    BlockedReason.LISTS: "allow and deny lists keep its pods",
    BlockedReason.LEVELS: "its pods' service levels are never moved",
    BlockedReason.WINDOWS: "outside the change windows of its pods",
    BlockedReason.LIMITS: "limits were used up",
    BlockedReason.COOLDOWNS: "something was moved a short while ago, given up, or is late",
    BlockedReason.PAUSED: "evictions were paused",
    BlockedReason.BUDGETS: "PodDisruptionBudgets had no room",
    BlockedReason.NO_LANDING: "the replacements would not have landed where they may",
    BlockedReason.POOL_FULL: "no node of its pool was under its low",
    BlockedReason.SERVER: "the API server refused",
    BlockedReason.POOR_SELECTION: "only our own choice kept the candidates there",
    BlockedReason.INTERRUPTED: "the plan was broken off: the lease was lost, or the program was stopped",
    BlockedReason.NO_CANDIDATES: "nothing on it could be judged, or would have helped",
    BlockedReason.DRY_RUN: "a dry run: nothing is evicted",
}

OUTCOME_TEXTS: Final[Mapping[Outcome, str]] = {
    Outcome.COOLED: "at or under the target",
    Outcome.TOO_LITTLE: "what was moved would not have been enough even if nothing else had changed",
    Outcome.LANDED: "other pods came and took the room",
    Outcome.GREW: "the pods that stayed use more",
    Outcome.CAME_BACK: "replacements landed where they had left",
    Outcome.UNEXPLAINED: "what changed is in none of its pods",
    Outcome.UNKNOWN: "the node is gone, or its usage wasn't known",
}


def sentence(reason: str) -> str:
    """Of a key of `DayRow.reasons`, such as `eviction/limits`; the key itself where another version wrote it."""
    group, _, name = reason.partition("/")
    known: dict[str, Mapping[str, str]] = {
        "discovery": {each.value: text for each, text in MISS_TEXTS.items()},
        "eviction": {each.value: text for each, text in BLOCKED_TEXTS.items()},
        "effect": {each.value: text for each, text in OUTCOME_TEXTS.items()},
    }
    return known.get(group, {}).get(name, reason)


def percent(share: float | None) -> str:
    """0.712 -> `71.2 %`, 0.75 -> `75 %`."""
    if share is None or not math.isfinite(share):
        return NOTHING
    return f"{_plain(f'{share * 100:.1f}')} %"


def cores(millicores: float) -> str:
    """1850.0 -> `1.85`; at most two digits after the point."""
    return _plain(f"{millicores / 1000:.2f}") if math.isfinite(millicores) else NOTHING


def shown(rate: Rate) -> str:
    """`17 of 20 (85 %)`; a rate of nothing is `-`."""
    return NOTHING if rate.share is None else f"{rate.part} of {rate.whole} ({percent(rate.share)})"


def counted(count: int, one: str) -> str:
    """`1 pod`, `2 pods`."""
    return f"{count} {one}" if count == 1 else f"{count} {one}s"


def _plain(text: str) -> str:
    """Without zeros at the end, and without a minus before nothing."""
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text
