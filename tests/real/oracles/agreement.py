"""Our model of kube-scheduler against what the real one decided, node by node and plugin by plugin."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from rebalancer.model.cluster.scheduler import SchedulerConfig
from rebalancer.placement.cluster.board import Board
from rebalancer.placement.draws.sampling import winners
from rebalancer.placement.plugins.spread import Feasible
from rebalancer.placement.scheduler.engine import Engine
from rebalancer.policy.kube_scheduler.config import load_scheduler_config
from tests.real.readers.decisions import Recording, Step, replay

CLAIM_IN_USE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)
REASONS = {
    "node(s) were unschedulable": "NodeUnschedulable",
    "node(s) had untolerated taint(s)": "TaintToleration",
    "node(s) didn't match Pod's node affinity/selector": "NodeAffinity",
    "node(s) didn't match scheduler-enforced node affinity": "NodeAffinity",
    "node(s) didn't have free ports for the requested pod ports": "NodePorts",
    "Too many pods": "NodeResourcesFit",
    CLAIM_IN_USE: "VolumeRestrictions",
    "node(s) exceed max volume count": "NodeVolumeLimits",
    "disk.example CSI driver is not installed on the node": "NodeVolumeLimits",
    "node(s) didn't match Pod's required features": "NodeDeclaredFeatures",
    "node(s) didn't match PersistentVolume's node affinity": "VolumeBinding",
    "node(s) didn't match pod topology spread constraints": "PodTopologySpread",
    "node(s) didn't match pod topology spread constraints (missing required label)": "PodTopologySpread",
    "node(s) didn't match pod affinity rules": "InterPodAffinity",
    "node(s) didn't match pod anti-affinity rules": "InterPodAffinity",
    "node(s) didn't satisfy existing pods anti-affinity rules": "InterPodAffinity",
}
NARROWED = "node(s) didn't satisfy plugin(s)"
"""The scheduler asked only a few nodes that the pod names, and doesn't say what the others would have answered."""


@dataclass(slots=True, kw_only=True)
class Agreement:
    """Counts over a recording, and each disagreement in one line."""

    decisions: int = 0
    same_feasible: int = 0
    sampled: int = 0
    """Decisions on a sample of the feasible nodes; the sample is then held against our feasible set."""
    sampled_likely: int = 0
    """Of these, how many were bound to one of the landings that by our model make up 99%."""
    placed: int = 0
    chosen_is_best: int = 0
    same_ties: int = 0
    scores: int = 0
    same_scores: int = 0
    reasons: int = 0
    """Unschedulable pods of which the scheduler says how many nodes each filter refused."""
    same_reasons: int = 0
    plugins: Counter[str] = field(default_factory=Counter)
    """Scores compared, by plugin."""
    refusals: Counter[str] = field(default_factory=Counter)
    """Nodes refused in compared reasons, by filter."""
    disagreements: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.decisions} decisions: feasible sets equal {self.same_feasible} (of {self.sampled} a sample, "
            f"{self.sampled_likely} bound within our 99%); "
            f"{self.placed} placed: chosen is among our best {self.chosen_is_best}, ties equal {self.same_ties}; "
            f"scores equal {self.same_scores} of {self.scores}; "
            f"reasons equal {self.same_reasons} of {self.reasons} unschedulable"
        )


def compare(recording: Recording, *, longest: int = 1) -> Agreement:
    """Ask our model what the scheduler was asked.

    With `longest` = 1 from a snapshot before each decision; else that many decisions run from one snapshot, and what
    the scheduler did is put on the board, as a plan puts its landings there.
    """
    result, config = Agreement(), config_of(recording)
    for stretch in replay(recording, longest=longest):
        board = Board(stretch.snapshot)
        engine = Engine(board, config)
        for step, pod in stretch.decisions:
            _compare(engine, config, step, pod, result)
            if step.node is not None:
                row = stretch.snapshot.node_index[step.node]
                board.put(board.kinds.of(pod), np.array([row]), np.ones(1))
    return result


def config_of(recording: Recording) -> SchedulerConfig:
    """Through the loader that reads users' files."""
    if not recording.profiles:
        return SchedulerConfig()
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": recording.profiles,
    }
    return load_scheduler_config(json.dumps(document).encode(), source="the recording")


def _compare(engine: Engine, config: SchedulerConfig, step: Step, pod: int, result: Agreement) -> None:
    board, snapshot = engine.board, engine.board.snapshot
    names, row_of, kind = snapshot.nodes.names, snapshot.node_index, board.kinds.of(pod)
    verdict = engine.verdict(kind)
    result.decisions += 1

    def differ(what: str, theirs: object, ours: object) -> None:
        result.disagreements.append(f"{snapshot.pod(pod)}: {what}: theirs {theirs}, ours {ours}")

    feasible = {names[row] for row in np.flatnonzero(engine.feasible(kind))}
    if feasible != {names[row] for row in np.flatnonzero(verdict.feasible)}:
        differ("feasible() and verdict().feasible", "one", "two")
    theirs = step.feasible_nodes
    sampled = step.evaluated < len(names) and 1 < step.feasible < len(feasible)
    result.sampled += sampled
    if theirs == feasible or (sampled and theirs < feasible):
        result.same_feasible += 1
    else:
        for name in sorted(theirs ^ feasible):
            why = verdict.filtered[row_of[name]]
            differ(f"feasible {name}", name in theirs, why or "feasible")
    if step.node is None:
        _compare_reasons(step, len(names), Counter(why[0] for why in verdict.filtered if why), result, differ)
        return
    result.placed += 1
    scores, parts = engine.scores(kind), verdict.weighted
    if not np.array_equal(scores, verdict.total):
        differ("scores() and verdict().total", "one", "two")
    if sampled:
        likely, _ = winners(scores, engine.sample_size(kind, len(feasible)), enough=0.99)
        result.sampled_likely += step.node in {names[row] for row in likely}
        # a sample is scored as if the other nodes were not there
        weights = config.profiles[board.kinds.template_of(kind).scheduler_name].weights
        observed_cluster = np.isin(names, list(theirs))
        scored = engine._parts(engine.rules(kind), Feasible(observed_cluster))
        parts = {plugin: normalised * weights[plugin] for plugin, _, normalised in scored}
    totals = dict.fromkeys(theirs, 0.0)
    for plugin in sorted(step.scores.keys() | parts.keys()):
        # a plugin that is skipped adds nothing
        reported, held = step.scores.get(plugin, {}), parts.get(plugin, np.zeros(len(names)))
        for name in sorted(theirs):
            ours = float(held[row_of[name]])
            totals[name] += ours
            if step.scores:
                result.scores += 1
                result.plugins[plugin] += bool(reported)
                if ours == reported.get(name, 0):
                    result.same_scores += 1
                else:
                    differ(f"{plugin} {name}", reported.get(name), ours)
    best = {name for name, total in totals.items() if total == max(totals.values())}
    if step.node in best:
        result.chosen_is_best += 1
    else:
        differ("chosen", step.node, sorted(best))
    if step.ties == best:
        result.same_ties += 1
    else:
        differ("ties", sorted(step.ties), sorted(best))


def _compare_reasons(
    step: Step, nodes: int, ours: Counter[str], result: Agreement, differ: Callable[[str, object, object], None]
) -> None:
    """How many nodes each filter refused. A node is refused by one filter, of which only NodeResourcesFit may give
    several reasons."""
    reasons = step.message.split(". ")[0].split(": ", 1)[1]
    if NARROWED in reasons:
        return
    theirs: Counter[str] = Counter()
    for part in reasons.split(", "):
        count, words = part.split(" ", 1)
        plugin = REASONS.get(words, "NodeResourcesFit" if words.startswith("Insufficient ") else words)
        theirs[plugin] += int(count)
    if "NodeResourcesFit" in theirs:
        others = sum(count for plugin, count in theirs.items() if plugin != "NodeResourcesFit")
        theirs["NodeResourcesFit"] = nodes - others
    result.reasons += 1
    result.refusals.update(theirs)
    if theirs == ours:
        result.same_reasons += 1
    else:
        differ("refused", dict(theirs), dict(ours))
