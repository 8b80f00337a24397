"""Conversion of DefaultEvictor's arguments to guards. Guards apply to the whole policy: the strictest profile wins."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rebalancer.policy.descheduler.intervals import go_seconds
from rebalancer.policy.descheduler.notes import DECIDE, DIFFERENT, UNSUPPORTED, FieldPath, Keys, Notes
from rebalancer.policy.document import Document
from rebalancer.policy.label_selector import parse_selector
from rebalancer.policy.schema.types import format_duration

# deprecated argument -> its name in podProtections
_OLD_NAMES = {
    "evictLocalStoragePods": "PodsWithLocalStorage",
    "evictDaemonSetPods": "DaemonSetPods",
    "evictSystemCriticalPods": "SystemCriticalPods",
    "evictFailedBarePods": "FailedBarePods",
    "ignorePvcPods": "PodsWithPVC",
    "ignorePodsWithoutPDB": "PodsWithoutPDB",
}
_NEVER = {
    "DaemonSetPods": "a DaemonSet's pod would return to its node",
    "SystemCriticalPods": "system-critical pods are never evicted",
    "FailedBarePods": "bare pods are never evicted, because no controller recreates them",
}


@dataclass(slots=True, kw_only=True)
class DeschedulerGuards:
    """The protections of one profile."""

    nodes: dict[str, Any]
    """Selector of its nodes."""
    labels: dict[str, Any] = field(default_factory=dict)
    """Selector of its pods."""
    local_storage: bool = False
    claims: bool = True
    """Whether pods with PersistentVolumeClaims may be evicted."""
    min_replicas: int | None = None
    min_age: float | None = None
    priority: tuple[FieldPath, int | str] | None = None
    opt_in: bool = False
    """Whether a protection has no equivalent, so that pods must opt in."""

    def merged(self, others: Sequence["DeschedulerGuards"], notes: Notes) -> dict[str, Any]:
        """The `guards` section."""
        every = [self, *others]
        out: dict[str, Any] = {}
        if all(each.local_storage for each in every):
            out |= {"hostPath": True, "diskEmptyDir": True}
        else:
            notes.add((), DIFFERENT, "an emptyDir in memory protects no pod", "guards.diskEmptyDir")
        if all(each.claims for each in every):
            out["persistentVolumes"] = True
        if replicas := [each.min_replicas for each in every if each.min_replicas is not None]:
            out["minReplicas"] = max(replicas)
        else:
            notes.add((), DIFFERENT, "services with one replica are left alone", "guards.minReplicas")
        if ages := [each.min_age for each in every if each.min_age is not None]:
            out["minAge"] = format_duration(math.ceil(max(ages)))
        else:
            notes.add((), DIFFERENT, "pods younger than 5m are not evicted", "guards.minAge")
        opt_in = any(each.opt_in for each in every)
        out |= _priority([each.priority for each in every if each.priority is not None], notes)
        if opt_in:
            out["requireOptIn"] = True
        if self.labels and not self.own_labels(every):
            out["labels"] = {"include": self.labels}
        if len({repr(sorted(each.comparable().items())) for each in every}) > 1:
            notes.add((), DIFFERENT, "profiles differ in protections: the strictest of each applies to all", "guards")
        return out

    def own_labels(self, every: Sequence["DeschedulerGuards"]) -> dict[str, Any]:
        """The selector of the profile's pods if profiles differ in it; otherwise it becomes a guard."""
        return self.labels if any(each.labels != self.labels for each in every) else {}

    def comparable(self) -> dict[str, Any]:
        """What may differ between profiles, apart from nodes and labels."""
        return {
            "local": self.local_storage,
            "claims": self.claims,
            "replicas": self.min_replicas,
            "age": self.min_age,
            "priority": None if self.priority is None else self.priority[1],
            "opt in": self.opt_in,
        }


def _priority(given: Sequence[tuple[FieldPath, int | str]], notes: Notes) -> dict[str, Any]:
    """The lowest priority threshold of all profiles."""
    values = [each for _, each in given if isinstance(each, int)]
    names = {each for _, each in given if isinstance(each, str)}
    if names and (values or len(names) > 1):
        for at, _ in given:
            notes.add(at, DECIDE, "profiles differ: until you decide, pods must opt in", "guards.requireOptIn")
        return {"requireOptIn": True}
    if values:
        return {"priorityBelow": min(values)}
    return {"priorityClassBelow": names.pop()} if names else {}


def read_guards(args: Keys, everywhere: dict[str, Any], document: Document, notes: Notes) -> DeschedulerGuards:
    """`everywhere` is the node selector of the whole policy. Raises ConfigError for invalid selectors and durations."""
    own = node_selector(args.get("nodeSelector", ""), (*args.at, "nodeSelector"), document)
    out = DeschedulerGuards(nodes=together(everywhere, own))
    out.labels = dict(args.get("labelSelector", {}))
    for name in ("apiVersion", "kind"):
        args.get(name)
    _node_fit(args, notes)
    if "minReplicas" in args:
        out.min_replicas = int(args.get("minReplicas"))
    if "minPodAge" in args:
        out.min_age = _go_seconds(str(args.get("minPodAge")), (*args.at, "minPodAge"), document)
    threshold = args.section("priorityThreshold")
    value, name = threshold.get("value"), threshold.get("name", "")
    if value is not None and name:
        raise document.mistake((*threshold.at, "name"), "expected value or name, not both")
    if value is not None or name:
        out.priority = ((*args.at, "priorityThreshold"), name if value is None else value)
    if args.get("namespaceLabelSelector"):
        _lost((*args.at, "namespaceLabelSelector"), out, notes, "namespaces cannot be selected by label")
    if args.get("noEvictionPolicy") is not None:
        why = "pods with the annotation prefer-no-eviction are never evicted"
        kind = args.get("noEvictionPolicy")
        if kind != "Mandatory":
            notes.add((*args.at, "noEvictionPolicy"), DIFFERENT, why, "guards")
    else:
        notes.add((), DIFFERENT, "pods with the annotation prefer-no-eviction are never evicted", "guards")
    _protections(args, out, notes)
    return out


def _node_fit(args: Keys, notes: Notes) -> None:
    why = "a pod is evicted only if every likely target node is known, has headroom and is not hot"
    if "nodeFit" in args and not args.get("nodeFit"):
        notes.add((*args.at, "nodeFit"), DIFFERENT, why)
    elif not args.get("nodeFit", False):
        notes.add((), DIFFERENT, why)


def _protections(args: Keys, out: DeschedulerGuards, notes: Notes) -> None:
    wanted: list[tuple[str, FieldPath]] = [
        (name, (*args.at, old)) for old, name in _OLD_NAMES.items() if args.get(old, False)
    ]
    section = args.section("podProtections")
    for key in ("defaultDisabled", "extraEnabled"):
        wanted += [(name, (*section.at, key, index)) for index, name in enumerate(section.get(key, []))]
    for name, at in wanted:
        if name == "PodsWithLocalStorage":
            out.local_storage = True
        elif name == "PodsWithPVC":
            out.claims = False
        elif name in _NEVER:
            notes.add(at, UNSUPPORTED, _NEVER[name])
        elif name == "PodsWithoutPDB":
            _lost(at, out, notes, "pods without a PodDisruptionBudget are not protected")
        else:
            _lost(at, out, notes, "pods with ResourceClaims are not protected")
    classes = section.section("config").section("PodsWithPVC")
    if classes.get("protectedStorageClasses"):
        why = "storage classes are not distinguished: pods with any claim are protected"
        notes.add((*classes.at, "protectedStorageClasses"), DIFFERENT, why, "guards.persistentVolumes")


def _lost(at: FieldPath, out: DeschedulerGuards, notes: Notes, why: str) -> None:
    """A protection without an equivalent: pods must opt in until the user decides."""
    out.opt_in = True
    notes.add(at, DECIDE, f"{why}: until you decide, only pods that opt in may be evicted", "guards.requireOptIn")


def node_selector(text: str, at: FieldPath, document: Document) -> dict[str, Any]:
    """`"pool=web,!gpu,zone in (a, b)"` as a label selector. Raises ConfigError if it is invalid."""
    try:
        return parse_selector(text)
    except ValueError as error:
        raise document.mistake(at, str(error)) from None


def together(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """The intersection of two selectors."""
    first, second = one.get("matchLabels", {}), other.get("matchLabels", {})
    clashes = [
        {"key": key, "operator": "In", "values": [value]}
        for key, value in second.items()
        if first.get(key, value) != value
    ]
    expressions = [*one.get("matchExpressions", []), *other.get("matchExpressions", []), *clashes]
    labels = {**second, **first}
    return {
        **({"matchLabels": labels} if labels else {}),
        **({"matchExpressions": expressions} if expressions else {}),
    }


def _go_seconds(text: str, at: FieldPath, document: Document) -> float:
    try:
        return go_seconds(text)
    except ValueError as error:
        raise document.mistake(at, str(error)) from None
