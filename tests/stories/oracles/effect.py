"""What was hot, and what became of it, by the lab alone: its truth, its objects and its log, in plain loops.

What we claim of ourselves is held against this, so nothing of it may come from there: no module of ours is imported but
the lab's and the reading of quantities.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from rebalancer.lab import Lab
from rebalancer.lab.loads.history import Stay
from rebalancer.lab.loads.truth import SAMPLE_SECONDS, Episode
from rebalancer.lab.log import Entry
from rebalancer.model.notation.quantity import parse_quantity

STEP_SECONDS = 60.0
"""So often it is asked whether a node is hot."""
LOOKS_LEFT_OUT = 3
"""No look for so many times the usual interval: the daemon was down."""
LEAST_RELIEF = 0.02
"""Pods that take away less of what is too much are not worth a move, each alone."""

Obj = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Of one pool, as its story has set them; shares of capacity."""

    high: float = 0.75
    target: float = 0.65
    low: float = 0.5
    covered: bool = True
    """Whether anybody looks at it at all."""
    closed: bool = False
    """Whether it is outside every change window."""
    denied: bool = False
    """Whether a list forbids to touch its pods,"""
    untouchable: bool = False
    """or their service level does."""
    paused: bool = False
    evictions_at_most: int | None = None
    """In the whole story."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standard:
    """What the organisation calls hot, and how we go about it; seconds."""

    threshold: float = 0.75
    for_seconds: float
    debounce_seconds: float
    settle_seconds: float
    every_seconds: float
    cooldown_seconds: float
    """A node that was relieved is left alone for so long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a node's change was made of, in cores."""

    before: float
    after: float
    evicted: float
    left: float
    landed: float
    came_back: float
    grew: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One episode. Reasons are the names that reports use; empty where there is nothing to explain."""

    node: str
    pool: str
    start: float
    end: float | None
    peak_share: float
    found: bool
    ours: float | None = None
    """The highest share at a look."""
    miss: str = ""
    evictions: int = 0
    stuck: str = ""
    cooled: bool | None = None
    """None: nothing was evicted, or there was no look since."""
    outcome: str = ""
    parts: Parts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What the three rates are made of."""

    hot: int
    found: int
    acted: int
    assessed: int
    cooled: int
    reasons: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """What the lab showed at a look."""

    at: float
    asked: frozenset[str] | None
    """Nodes that it was for; None = all."""
    unseen: tuple[str, ...]
    """Nodes without metrics,"""
    down: frozenset[str]
    """and those that are not Ready."""
    obstacles: Mapping[str, Counter[str]]
    """Hot node -> what keeps its pods there."""


@dataclass(slots=True, kw_only=True)
class Book:
    """Kept during a story: `look` before each look of ours, `cases` when it is over; for Deployments."""

    lab: Lab
    pools: Mapping[str, Rules]
    standard: Standard
    _looks: list[_Look] = field(default_factory=list)
    _shares: dict[float, dict[str, float]] = field(default_factory=dict)

    def look(self, *, asked: frozenset[str] | None = None, acts: bool = True) -> None:
        """Note the time, and what stands in the way of pods on hot nodes. `acts`: that cycle evicts."""
        now = self.lab.clock.now()
        shares = self.lab.truth.node_cpu_share()
        obstacles = {
            name: Counter(self._obstacle(pod, shares) or ("" if acts else "dryRun") for pod in self._pods_on(name))
            for name, share in shares.items()
            if share > self._rules(name).high
        }
        down = frozenset(each["metadata"]["name"] for each in self.lab.cluster.nodes() if not _is_ready(each))
        unseen = self.lab.faults.state.missing
        self._looks.append(_Look(at=now, asked=asked, unseen=unseen, down=down, obstacles=obstacles))

    def cases(self, *, since: float, until: float) -> list[Case]:
        """Every episode that the standard knows between two times on its grid, by start and node."""
        found = self.lab.truth.episodes(high=self.standard.threshold, start=since, end=until, step_seconds=STEP_SECONDS)
        return [self._case(each) for each in found if self._lasted(each) >= self.standard.for_seconds]

    # ---- one episode

    def _lasted(self, episode: Episode) -> float:
        return episode.end - episode.start - (STEP_SECONDS if episode.over else 0.0)

    def _case(self, episode: Episode) -> Case:
        node = episode.node
        looks = [each for each in self._looks if episode.start <= each.at <= episode.end]
        seen = [each for each in looks if self._finds(node, each)]
        known = [self._share(node, each.at) for each in looks if node not in each.unseen]
        case: dict[str, Any] = {
            "node": node,
            "pool": self._pool(node),
            "start": episode.start,
            "end": episode.end if episode.over else None,
            "peak_share": episode.peak_share,
            "found": bool(seen),
            "ours": max(known, default=None),
        }
        if not seen:
            return Case(**case, miss=self._why_missed(episode, looks))
        gone = [each for each in self._evicted(node) if episode.start <= each.at <= episode.end]
        if not gone:
            kept = sum((each.obstacles[node] for each in seen), Counter[str]())
            return Case(**case, stuck=kept.most_common(1)[0][0] if kept else "noCandidates")
        return Case(**case, evictions=len(gone), **self._effect(node, gone))

    def _finds(self, node: str, look: _Look) -> bool:
        """Whether we must find it: looked at, seen, and hot by our own mark for as long as we wait."""
        rules = self._rules(node)
        if not rules.covered or not _is_asked(node, look) or node in look.unseen or node in look.down:
            return False
        samples = int(self.standard.debounce_seconds / SAMPLE_SECONDS)
        return all(self._share(node, look.at - SAMPLE_SECONDS * back) > rules.high for back in range(samples + 1))

    def _why_missed(self, episode: Episode, looks: list[_Look]) -> str:
        node, rules = episode.node, self._rules(episode.node)
        if not rules.covered:
            return "notCovered"
        moments = [episode.start, *(each.at for each in looks), episode.end]
        gap = max(later - earlier for earlier, later in pairwise(moments))
        if gap > LOOKS_LEFT_OUT * self.standard.every_seconds and gap * 2 >= episode.end - episode.start:
            return "daemonDown"
        looks = [each for each in looks if _is_asked(node, each)]
        if not looks:
            return "notEvaluated"
        for reason, blind in (
            ("notReady", [node in each.down for each in looks]),
            ("noMetrics", [node in each.unseen for each in looks]),
        ):
            if sum(blind) * 2 > len(looks):
                return reason
        looked_hot = any(self._share(node, each.at) > rules.high for each in looks)
        return "stabilizationWindow" if looked_hot else "belowThreshold"

    # ---- what kept the pods

    def _obstacle(self, pod: Obj, shares: Mapping[str, float]) -> str:
        """The first that stands in its way; empty for none."""
        store, meta, node = self.lab.cluster.store, pod["metadata"], pod["spec"]["nodeName"]
        rules, cores = self._rules(node), self._cores(node)
        owners = meta.get("ownerReferences") or ()
        if not owners or store.get("replicasets", meta["namespace"], owners[0]["name"])["spec"]["replicas"] < 2:
            return "guards"
        used = self.lab.truth.pod_cpu_cores()[meta["namespace"], meta["name"]]
        budgets = [each for each in store.sorted("poddisruptionbudgets") if _selects(each, pod)]
        mine = [each.at for each in self._evicted(node)]
        of_pool = [each for each in self._evicted() if self._pool(each.node) == self._pool(node)]
        others = [each for each in self.lab.cluster.nodes() if each["metadata"]["name"] != node]
        obstacles = {
            "lists": rules.denied,
            "levels": rules.untouchable,
            "windows": rules.closed,
            "poorSelection": used < LEAST_RELIEF * (shares[node] - rules.target) * cores,
            "poolFull": all(share >= self._rules(name).low for name, share in shares.items()),
            "disruptionBudgets": any(not each["status"]["disruptionsAllowed"] for each in budgets),
            "paused": rules.paused,
            "cooldowns": any(self.lab.clock.now() - at < self.standard.cooldown_seconds for at in mine),
            "limits": rules.evictions_at_most is not None and len(of_pool) >= rules.evictions_at_most,
            "noTargetNode": not any(self._fits(pod, each) for each in others),
            "serverRefused": ("create", "pods/eviction") in self.lab.faults.state.denied,
        }
        return next((name for name, stands in obstacles.items() if stands), "")

    def _fits(self, pod: Obj, node: Obj) -> bool:
        wanted = pod["spec"].get("nodeSelector") or {}
        there = self._pods_on(node["metadata"]["name"])
        room = parse_quantity(node["status"]["allocatable"]["cpu"]) - sum(map(_requested, there))
        return wanted.items() <= node["metadata"]["labels"].items() and _requested(pod) <= room

    # ---- what became of it

    def _effect(self, node: str, gone: list[Entry]) -> dict[str, Any]:
        last_eviction_at = max(each.at for each in gone)
        later = [each.at for each in self._looks if each.at >= last_eviction_at + self.standard.settle_seconds]
        if not later:
            return {}
        target = self._rules(node).target
        parts = self._parts(node, gone, last_eviction_at, min(later))
        cores = self._cores(node)
        if parts.after <= target * cores:
            return {"cooled": True, "outcome": "cooled", "parts": parts}
        if parts.before - parts.evicted > target * cores:
            return {"cooled": False, "outcome": "tooFewEvicted", "parts": parts}
        adverse = {
            "replacementsReturned": parts.came_back,
            "newPodsArrived": parts.landed,
            "remainingPodsGrew": parts.grew,
        }
        return {"cooled": False, "outcome": max(adverse, key=lambda name: adverse[name]), "parts": parts}

    def _parts(self, node: str, gone: list[Entry], before: float, after: float) -> Parts:
        uids = {each.uid for each in gone}
        services = {(each.namespace, _service(each.name)) for each in gone}
        then, now = self._pods(node, before), self._pods(node, after)
        new = [each for uid, each in now.items() if uid not in then]
        returned = [cores for stay, cores in new if (stay.namespace, _service(stay.pod)) in services]
        return Parts(
            before=self._share(node, before) * self._cores(node),
            after=self._share(node, after) * self._cores(node),
            evicted=sum(cores for uid, (_, cores) in then.items() if uid in uids and uid not in now),
            left=sum(cores for uid, (_, cores) in then.items() if uid not in uids and uid not in now),
            landed=sum(cores for _, cores in new) - sum(returned),
            came_back=sum(returned),
            grew=sum(cores - then[uid][1] for uid, (_, cores) in now.items() if uid in then),
        )

    def _pods(self, node: str, at: float) -> dict[str, tuple[Stay, float]]:
        """Uid -> (stay, cores) of the pods that are on a node at a moment."""
        cores = self.lab.truth.pod_cpu_cores(at)
        return {
            each.uid: (each, cores[each.namespace, each.pod])
            for each in self.lab.cluster.history.columns().stays
            if each.node == node and each.start <= at < each.end
        }

    # ---- the lab

    def _pods_on(self, node: str) -> list[Obj]:
        return self.lab.cluster.pods(node=node)

    def _evicted(self, node: str | None = None) -> list[Entry]:
        return [each for each in self.lab.log.evictions(code=201) if node in (None, each.node)]

    def _share(self, node: str, at: float) -> float:
        if at not in self._shares:
            self._shares[at] = self.lab.truth.node_cpu_share(at)
        return self._shares[at][node]

    def _cores(self, node: str) -> float:
        return parse_quantity(self.lab.cluster.store.get("nodes", "", node)["status"]["capacity"]["cpu"])

    def _pool(self, node: str) -> str:
        return str(self.lab.cluster.store.get("nodes", "", node)["metadata"]["labels"]["pool"])

    def _rules(self, node: str) -> Rules:
        return self.pools[self._pool(node)]


def counts(cases: list[Case]) -> Counts:
    """Of all episodes."""
    acted = [each for each in cases if each.evictions]
    reasons = Counter(
        f"{group}/{reason}"
        for each in cases
        for group, reason in (("discovery", each.miss), ("eviction", each.stuck), ("effect", each.outcome))
        if reason
    )
    return Counts(
        hot=len(cases),
        found=sum(each.found for each in cases),
        acted=len(acted),
        assessed=sum(each.cooled is not None for each in acted),
        cooled=sum(each.cooled is True for each in acted),
        reasons=dict(reasons),
    )


def _is_asked(node: str, look: _Look) -> bool:
    return look.asked is None or node in look.asked


def _is_ready(node: Obj) -> bool:
    return any(each["type"] == "Ready" and each["status"] == "True" for each in node["status"]["conditions"])


def _selects(budget: Obj, pod: Obj) -> bool:
    wanted: Mapping[str, str] = budget["spec"]["selector"]["matchLabels"]
    labels: Mapping[str, str] = pod["metadata"]["labels"]
    return bool(budget["metadata"]["namespace"] == pod["metadata"]["namespace"] and wanted.items() <= labels.items())


def _requested(pod: Obj) -> float:
    """Cores."""
    asked = [each.get("resources", {}).get("requests", {}).get("cpu", "0") for each in pod["spec"]["containers"]]
    return sum(map(parse_quantity, asked))


def _service(pod: str) -> str:
    """Of a Deployment's pod."""
    return pod.rsplit("-", 2)[0]
