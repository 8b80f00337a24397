"""A slow, plain reading of PodTopologySpread and InterPodAffinity: one pod and one node at a time, dicts and loops.

Written from Kubernetes v1.36's plugins, and only here to be compared with the columns. It knows no requests.
"""

import math
from dataclasses import dataclass, field

from rebalancer.model.cluster.match import node_selector_matches, selector_matches, untolerated_taint
from rebalancer.model.cluster.objects import PodAffinity, PodAffinityTerm, PodTemplate, SpreadConstraint, Taint

HOSTNAME = "kubernetes.io/hostname"


@dataclass
class OracleNode:
    name: str
    labels: dict[str, str]
    taints: tuple[Taint, ...] = ()


@dataclass
class OraclePod:
    namespace: str
    template: PodTemplate
    node: str = ""
    terminating: bool = False
    owner: str = ""
    """Of a ReplicaSet."""


@dataclass
class Oracle:
    nodes: list[OracleNode]
    pods: list[OraclePod]
    namespace_labels: dict[str, dict[str, str]] = field(default_factory=dict)

    def on(self, node: OracleNode) -> list[OraclePod]:
        return [pod for pod in self.pods if pod.node == node.name]

    # ---- filters

    def feasible(self, pod: OraclePod) -> list[str]:
        return [
            node.name
            for node in self.nodes
            if untolerated_taint(pod.template.tolerations, node.taints) is None
            and self.selects(pod, node)
            and self.spread_allows(pod, node)
            and self.affinity_allows(pod, node)
        ]

    def selects(self, pod: OraclePod, node: OracleNode) -> bool:
        affinity = pod.template.affinity.node_affinity if pod.template.affinity else None
        required = affinity.required if affinity else None
        return all(node.labels.get(key) == value for key, value in pod.template.node_selector.items()) and (
            required is None or node_selector_matches(required, node.labels, node.name)
        )

    def included(self, pod: OraclePod, constraint: SpreadConstraint, node: OracleNode) -> bool:
        if constraint.node_affinity_policy == "Honor" and not self.selects(pod, node):
            return False
        return (
            constraint.node_taints_policy != "Honor" or untolerated_taint(pod.template.tolerations, node.taints) is None
        )

    def counted(self, pod: OraclePod, constraint: SpreadConstraint, other: OraclePod) -> bool:
        """Whether the constraint's selector (with its matchLabelKeys) selects another pod."""
        selector = constraint.label_selector
        if selector is None or not selector_matches(selector, other.template.labels):
            return False
        return all(
            other.template.labels.get(key) == pod.template.labels[key]
            for key in constraint.match_label_keys
            if key in pod.template.labels
        )

    def count(self, pod: OraclePod, constraint: SpreadConstraint, node: OracleNode) -> int:
        selector, keys = constraint.label_selector, constraint.match_label_keys
        empty = selector is not None and not selector.match_labels and not selector.match_expressions
        if empty and not any(key in pod.template.labels for key in keys):
            return 0
        return sum(
            not other.terminating and other.namespace == pod.namespace and self.counted(pod, constraint, other)
            for other in self.on(node)
        )

    def spread_allows(self, pod: OraclePod, node: OracleNode) -> bool:
        hard = [each for each in pod.template.topology_spread if each.when_unsatisfiable == "DoNotSchedule"]
        for constraint in hard:
            if constraint.topology_key not in node.labels:
                return False
        for constraint in hard:
            matches: dict[str, int] = {}
            for other in self.nodes:
                if any(each.topology_key not in other.labels for each in hard):
                    continue
                if self.included(pod, constraint, other):
                    value = other.labels[constraint.topology_key]
                    matches[value] = matches.get(value, 0) + self.count(pod, constraint, other)
            fewest = min(matches.values(), default=0) if len(matches) >= (constraint.min_domains or 1) else 0
            itself = int(self.counted(pod, constraint, pod))
            here = matches.get(node.labels[constraint.topology_key], 0)
            if here + itself - fewest > constraint.max_skew:
                return False
        return True

    def term_selects(self, holder: OraclePod, term: PodAffinityTerm, other: OraclePod) -> bool:
        if not term.namespaces and term.namespace_selector is None:
            inside = other.namespace == holder.namespace
        else:
            inside = other.namespace in term.namespaces or selector_matches(
                term.namespace_selector, self.namespace_labels.get(other.namespace, {})
            )
        return inside and selector_matches(term.label_selector, other.template.labels)

    def near(self, pod: OraclePod) -> PodAffinity:
        return (pod.template.affinity and pod.template.affinity.pod_affinity) or PodAffinity()

    def away(self, pod: OraclePod) -> PodAffinity:
        return (pod.template.affinity and pod.template.affinity.pod_anti_affinity) or PodAffinity()

    def affinity_allows(self, pod: OraclePod, node: OracleNode) -> bool:
        terms = self.near(pod).required
        placed = [(other, at) for at in self.nodes for other in self.on(at)]
        if any(term.topology_key not in node.labels for term in terms):
            return False
        matching = [at for other, at in placed if all(self.term_selects(pod, term, other) for term in terms)]
        if terms and not all(
            any(at.labels.get(term.topology_key) == node.labels[term.topology_key] for at in matching) for term in terms
        ):
            somewhere = any(term.topology_key in at.labels for at in matching for term in terms)
            if somewhere or not all(self.term_selects(pod, term, pod) for term in terms):
                return False

        def together(term: PodAffinityTerm, at: OracleNode) -> bool:
            key = term.topology_key
            return key in node.labels and at.labels.get(key) == node.labels[key]

        for other, at in placed:
            if any(self.term_selects(pod, term, other) and together(term, at) for term in self.away(pod).required):
                return False
            if any(self.term_selects(other, term, pod) and together(term, at) for term in self.away(other).required):
                return False
        return True

    # ---- scores

    def spread_scores(self, pod: OraclePod, feasible: list[str]) -> dict[str, int] | None:
        soft = [each for each in pod.template.topology_spread if each.when_unsatisfiable == "ScheduleAnyway"]
        all_keys = bool(pod.template.topology_spread)
        defaulted = not pod.template.topology_spread and bool(pod.owner)
        if defaulted:
            soft = [
                SpreadConstraint(topology_key=HOSTNAME, max_skew=3, when_unsatisfiable="ScheduleAnyway"),
                SpreadConstraint(
                    topology_key="topology.kubernetes.io/zone", max_skew=5, when_unsatisfiable="ScheduleAnyway"
                ),
            ]
        if not soft or not feasible:
            return None

        def count(constraint: SpreadConstraint, node: OracleNode) -> int:
            if not defaulted:
                return self.count(pod, constraint, node)
            return sum(
                not other.terminating and other.namespace == pod.namespace and other.owner == pod.owner
                for other in self.on(node)
            )

        candidates = [node for node in self.nodes if node.name in feasible]
        ignored = {
            node.name for node in candidates if all_keys and any(each.topology_key not in node.labels for each in soft)
        }
        scored = [node for node in candidates if node.name not in ignored]
        raw = dict.fromkeys((node.name for node in scored), 0.0)
        for constraint in soft:
            key = constraint.topology_key
            domains = {node.labels.get(key, "") for node in scored}
            size = len(scored) if key == HOSTNAME else len(domains)
            sums: dict[str, int] = {}
            for node in self.nodes:
                if all_keys and any(each.topology_key not in node.labels for each in soft):
                    continue
                if self.included(pod, constraint, node):
                    value = node.labels.get(key, "")
                    sums[value] = sums.get(value, 0) + count(constraint, node)
            for node in scored:
                if key in node.labels:
                    found = count(constraint, node) if key == HOSTNAME else sums.get(node.labels[key], 0)
                    raw[node.name] += found * math.log(size + 2) + (constraint.max_skew - 1)
        whole = {name: math.floor(value + 0.5) for name, value in raw.items()}
        most, least = max(whole.values(), default=0), min(whole.values(), default=0)
        scores = {name: 100 if most == 0 else 100 * (most + least - value) // most for name, value in whole.items()}
        return {name: scores.get(name, 0) for name in feasible}

    def affinity_scores(self, pod: OraclePod, feasible: list[str], hard_weight: int = 1) -> dict[str, int]:
        points: dict[tuple[str, str], int] = {}

        def add(term: PodAffinityTerm, weight: int, at: OracleNode) -> None:
            if term.topology_key in at.labels:
                pair = (term.topology_key, at.labels[term.topology_key])
                points[pair] = points.get(pair, 0) + weight

        for at in self.nodes:
            for other in self.on(at):
                for sign, mine, theirs in (
                    (1, self.near(pod), self.near(other)),
                    (-1, self.away(pod), self.away(other)),
                ):
                    for each in mine.preferred:
                        if self.term_selects(pod, each.pod_affinity_term, other):
                            add(each.pod_affinity_term, sign * each.weight, at)
                    for each in theirs.preferred:
                        if self.term_selects(other, each.pod_affinity_term, pod):
                            add(each.pod_affinity_term, sign * each.weight, at)
                for term in self.near(other).required:
                    if self.term_selects(other, term, pod):
                        add(term, hard_weight, at)
        raw = {
            node.name: sum(points.get(pair, 0) for pair in node.labels.items())
            for node in self.nodes
            if node.name in feasible
        }
        if not raw:
            return {}
        most, least = max(raw.values()), min(raw.values())
        if most == least:
            return dict.fromkeys(raw, 0)
        return {name: int(100 * ((value - least) / (most - least))) for name, value in raw.items()}
