"""Names with their kind, as kubectl prints and takes them: `pod/NAME`, `po/NAME`, `deployment.apps/NAME`."""

from collections.abc import Collection
from typing import Final

KINDS: Final = {
    "pod": ("pod", "pods", "po"),
    "node": ("node", "nodes", "no"),
    "deployment": ("deployment", "deployments", "deploy"),
    "statefulset": ("statefulset", "statefulsets", "sts"),
    "daemonset": ("daemonset", "daemonsets", "ds"),
    "replicaset": ("replicaset", "replicasets", "rs"),
    "job": ("job", "jobs"),
    "cronjob": ("cronjob", "cronjobs", "cj"),
}
"""Kind -> the words for it, without its API group."""


def kind_of(word: str) -> str | None:
    """`po`, `Pods` -> `pod`; `deployment.apps` -> `deployment`; None for other words."""
    plain = word.lower().partition(".")[0]
    return next((kind for kind, words in KINDS.items() if plain in words), None)


def plain_name(text: str, kinds: Collection[str] = tuple(KINDS)) -> str:
    """The name without its kind, if that is one of `kinds`: `po/web-1` -> `web-1`, `shop/web-1` as it is."""
    kind, slash, name = text.strip().partition("/")
    return name if slash and name and kind_of(kind) in kinds else text.strip()
