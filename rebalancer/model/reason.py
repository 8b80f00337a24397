"""Every reason for not moving a pod, or not touching a node: one code, one sentence.

The CLI, the database, the metrics and the documentation all use this enum; `docs/reference/reasons.md` is made from it.
"""

from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """The code; its sentence is `SENTENCES[code]`."""

    # Guards: what protects a pod.
    MIRROR_POD = "MirrorPod"
    STATIC_POD = "StaticPod"
    DAEMONSET_POD = "DaemonSetPod"
    TERMINATING = "Terminating"
    FINISHED = "Finished"
    NOT_READY = "NotReady"
    BARE_POD = "BarePod"
    UNKNOWN_OWNER_KIND = "UnknownOwnerKind"
    JOB_POD = "JobPod"
    OURSELVES = "Ourselves"
    OUR_PROMETHEUS = "OurPrometheus"
    OUR_DATABASE = "OurDatabase"
    SYSTEM_CRITICAL = "SystemCritical"
    PRIORITY_THRESHOLD = "PriorityThreshold"
    HOST_PATH = "HostPath"
    LOCAL_STORAGE = "LocalStorage"
    LOCAL_VOLUME = "LocalVolume"
    PERSISTENT_VOLUME = "PersistentVolume"
    TOO_YOUNG = "TooYoung"
    MIN_REPLICAS = "MinReplicas"
    ROLLOUT_IN_PROGRESS = "RolloutInProgress"
    OWNER_NOT_HEALTHY = "OwnerNotHealthy"
    BUDGET_EXHAUSTED = "BudgetExhausted"
    BUDGET_OUTDATED = "BudgetOutdated"
    SEVERAL_BUDGETS = "SeveralBudgets"
    ANNOTATION_VETO = "AnnotationVeto"
    OPTED_OUT = "OptedOut"
    NOT_OPTED_IN = "NotOptedIn"
    NAMESPACE_EXCLUDED = "NamespaceExcluded"
    LABEL_EXCLUDED = "LabelExcluded"

    # Lists, levels, windows, clusters.
    DENY_LISTED = "DenyListed"
    NOT_ALLOW_LISTED = "NotAllowListed"
    UNKNOWN_LEVEL = "UnknownLevel"
    LEVEL_FORBIDS = "LevelForbids"
    WINDOW_CLOSED = "WindowClosed"
    WINDOW_BROKEN = "WindowBroken"
    CROSS_CLUSTER = "CrossCluster"
    MOVED_ELSEWHERE = "MovedElsewhere"
    READY_SHARE = "ReadyShare"

    # Memory.
    COOLDOWN_NODE = "CooldownNode"
    COOLDOWN_SERVICE = "CooldownService"
    COOLDOWN_SERVICE_NODE = "CooldownServiceNode"
    COOLDOWN_POOL = "CooldownPool"
    GAVE_UP = "GaveUp"
    MOVED_BEFORE = "MovedBefore"
    PAUSED = "Paused"
    BRAKED = "Braked"
    SERVICE_LATE = "ServiceLate"

    # Placement: where the replacement would go.
    NO_LANDING = "NoLanding"
    NO_ROOM_IN_TARGETS = "NoRoomInTargets"
    WOULD_COME_BACK = "WouldComeBack"
    LANDING_TOO_WARM = "LandingTooWarm"
    LANDING_NOT_MODELLED = "LandingNotModelled"
    LANDING_CLOSED = "LandingClosed"
    NEEDS_PREEMPTION = "NeedsPreemption"
    PENDING_TAKES_ROOM = "PendingTakesRoom"
    POOL_FULL = "PoolFull"
    LANDING_NOT_BETTER = "LandingNotBetter"
    NOWHERE_BETTER = "NowhereBetter"

    # Planning.
    NO_RELIEF = "NoRelief"
    GOAL_REACHED = "GoalReached"
    ENOUGH_GO = "EnoughGo"
    EVEN_ALREADY = "EvenAlready"
    CANT_EMPTY = "CantEmpty"
    NOT_ITS_TURN = "NotItsTurn"
    NOT_CORDONED = "NotCordoned"
    NO_POD_USAGE = "NoPodUsage"
    OUT_OF_TIME = "OutOfTime"

    # Admission.
    LIMIT_CYCLE = "LimitCycle"
    LIMIT_GLOBAL = "LimitGlobal"
    LIMIT_CLUSTER = "LimitCluster"
    LIMIT_POOL = "LimitPool"
    LIMIT_NODE = "LimitNode"
    LIMIT_NAMESPACE = "LimitNamespace"
    LIMIT_LEVEL = "LimitLevel"
    LIMIT_SERVICE = "LimitService"
    LIMIT_LANDINGS = "LimitLandings"
    LIMIT_PULLS = "LimitPulls"

    # Nodes that are not judged.
    NO_SAMPLE = "NoSample"
    STALE_SAMPLE = "StaleSample"
    NOT_FINITE = "NotFinite"
    AMBIGUOUS_NODE = "AmbiguousNode"
    NODE_NOT_READY = "NodeNotReady"
    NODE_KEPT = "NodeKept"
    DEBOUNCE = "Debounce"
    SETTLING = "Settling"
    NO_CONTENTION = "NoContention"
    NOBODY_NOISY = "NobodyNoisy"

    # The whole cycle.
    COVERAGE_TOO_LOW = "CoverageTooLow"
    PARTIAL_USAGE = "PartialUsage"
    CLOCK_SKEW = "ClockSkew"
    LEASE_LOST = "LeaseLost"
    STOPPING = "Stopping"

    # The API server's answer.
    SERVER_BUDGET = "ServerBudget"
    SERVER_THROTTLED = "ServerThrottled"
    SERVER_SEVERAL_BUDGETS = "ServerSeveralBudgets"
    SERVER_GONE = "ServerGone"
    SERVER_UID_CHANGED = "ServerUidChanged"
    SERVER_FORBIDDEN = "ServerForbidden"
    SERVER_UNKNOWN = "ServerUnknown"
    SERVER_ERROR = "ServerError"


SENTENCES: dict[Reason, str] = {
    Reason.MIRROR_POD: "a mirror pod: the kubelet runs it from a file, evicting it changes nothing",
    Reason.STATIC_POD: "a static pod: its owner is the node",
    Reason.DAEMONSET_POD: "a DaemonSet pod would come back to the same node",
    Reason.TERMINATING: "already terminating",
    Reason.FINISHED: "already finished",
    Reason.NOT_READY: "not Ready: moving it could hide why",
    Reason.BARE_POD: "no controlling owner would create it again",
    Reason.UNKNOWN_OWNER_KIND: "its owner's kind is not known to create pods again (name it under guards.ownerKinds)",
    Reason.JOB_POD: "a Job pod: its eviction counts as a failure (or Job pods are not allowed by guards.jobPods)",
    Reason.OURSELVES: "this is rebalancer itself",
    Reason.OUR_PROMETHEUS: "the Prometheus that we read from",
    Reason.OUR_DATABASE: "the database that we write to",
    Reason.SYSTEM_CRITICAL: "system-critical priority",
    Reason.PRIORITY_THRESHOLD: "its priority is at or above the threshold",
    Reason.HOST_PATH: "uses a hostPath volume",
    Reason.LOCAL_STORAGE: "keeps data in an emptyDir on the node's disk",
    Reason.LOCAL_VOLUME: "uses a local volume that stays on the node",
    Reason.PERSISTENT_VOLUME: "uses a PersistentVolumeClaim (guards.persistentVolumes)",
    Reason.TOO_YOUNG: "younger than the minimum age",
    Reason.MIN_REPLICAS: "its service has fewer replicas than the minimum",
    Reason.ROLLOUT_IN_PROGRESS: "its owner is rolling out",
    Reason.OWNER_NOT_HEALTHY: "its owner has fewer ready pods than it wants",
    Reason.BUDGET_EXHAUSTED: "its PodDisruptionBudget has no room",
    Reason.BUDGET_OUTDATED: "its PodDisruptionBudget was changed and its figures are not up to date yet",
    Reason.SEVERAL_BUDGETS: "several PodDisruptionBudgets select it: the API server refuses to evict it",
    Reason.ANNOTATION_VETO: "an annotation forbids it",
    Reason.OPTED_OUT: "opted out of evictions",
    Reason.NOT_OPTED_IN: "the policy asks for an opt-in that it doesn't have",
    Reason.NAMESPACE_EXCLUDED: "its namespace is excluded by the policy",
    Reason.LABEL_EXCLUDED: "its labels are excluded by the policy",
    Reason.DENY_LISTED: "on a deny list",
    Reason.NOT_ALLOW_LISTED: "on no allow list",
    Reason.UNKNOWN_LEVEL: "it names a service level that the policy doesn't have",
    Reason.LEVEL_FORBIDS: "its service level is never moved",
    Reason.WINDOW_CLOSED: "outside its change window",
    Reason.WINDOW_BROKEN: "its change window can't be understood, so it counts as closed",
    Reason.CROSS_CLUSTER: "placed by a multi-cluster controller (crossCluster)",
    Reason.MOVED_ELSEWHERE: "its service was moved in another cluster a short while ago",
    Reason.READY_SHARE: "its service would keep too few ready replicas over all clusters",
    Reason.COOLDOWN_NODE: "its node was relieved a short while ago",
    Reason.COOLDOWN_SERVICE: "its service was moved a short while ago",
    Reason.COOLDOWN_SERVICE_NODE: "its service was moved off this node a short while ago",
    Reason.COOLDOWN_POOL: "its pool is scaling: nodes came a short while ago",
    Reason.GAVE_UP: "moving it did not help before",
    Reason.MOVED_BEFORE: "the same strategy moved its predecessor, and it has come to that again",
    Reason.PAUSED: "paused",
    Reason.BRAKED: "the brake is on: replacements are late, or evictions there do not help",
    Reason.SERVICE_LATE: "an earlier replacement of its service is still not Ready",
    Reason.NO_LANDING: "no node would take the replacement",
    Reason.NO_ROOM_IN_TARGETS: "every node that would take the replacement would go over its target",
    Reason.WOULD_COME_BACK: "kube-scheduler would put the replacement back on the same node",
    Reason.LANDING_TOO_WARM: "kube-scheduler would put the replacement on a node without room in real CPU",
    Reason.LANDING_NOT_MODELLED: "its placement rules are not modelled, so its landing isn't known",
    Reason.LANDING_CLOSED: "kube-scheduler may put the replacement on a node that is leaving or has just joined",
    Reason.NEEDS_PREEMPTION: "its replacement would find room only by preempting other pods",
    Reason.PENDING_TAKES_ROOM: "a pending pod would take the room that it leaves",
    Reason.POOL_FULL: "no node is under its low",
    Reason.LANDING_NOT_BETTER: "kube-scheduler may put the replacement where it is no better",
    Reason.NOWHERE_BETTER: "no node on which it would be better has room for the replacement",
    Reason.NO_RELIEF: "its move would relieve the node of next to nothing",
    Reason.GOAL_REACHED: "not needed: the node reaches its target without it",
    Reason.ENOUGH_GO: "not needed: as many pods as are wanted go",
    Reason.EVEN_ALREADY: "not needed: its pods are spread evenly enough without it",
    Reason.CANT_EMPTY: "the node can't be emptied",
    Reason.NOT_ITS_TURN: "other nodes are emptied first",
    Reason.NOT_CORDONED: "its node is emptied only once it is cordoned",
    Reason.NO_POD_USAGE: "its CPU isn't known",
    Reason.OUT_OF_TIME: "the cycle's time for planning was over",
    Reason.LIMIT_CYCLE: "the cycle's limit is reached",
    Reason.LIMIT_GLOBAL: "the limit over all clusters is reached",
    Reason.LIMIT_CLUSTER: "the cluster's limit is reached",
    Reason.LIMIT_POOL: "the pool's limit is reached",
    Reason.LIMIT_NODE: "the node's limit is reached",
    Reason.LIMIT_NAMESPACE: "the namespace's limit is reached",
    Reason.LIMIT_LEVEL: "the service level's limit is reached",
    Reason.LIMIT_SERVICE: "the service's limit is reached",
    Reason.LIMIT_LANDINGS: "too many replacements are on their way to its landing",
    Reason.LIMIT_PULLS: "too many bytes of images are being pulled in the landing's pool",
    Reason.NO_SAMPLE: "no usage sample",
    Reason.STALE_SAMPLE: "the usage sample is too old",
    Reason.NOT_FINITE: "the usage is not a finite, plausible number",
    Reason.AMBIGUOUS_NODE: "two usage series claim to be this node",
    Reason.NODE_NOT_READY: "the node is not Ready",
    Reason.NODE_KEPT: "low, but not to be emptied",
    Reason.DEBOUNCE: "not hot for long enough",
    Reason.SETTLING: "moved from recently: a whole rate window must pass first",
    Reason.NO_CONTENTION: "nothing tells who waits for CPU there",
    Reason.NOBODY_NOISY: "its tasks wait for CPU, but no pod that may go uses far more than it requests",
    Reason.COVERAGE_TOO_LOW: "too few nodes have fresh usage: this is an outage, not an idle cluster",
    Reason.PARTIAL_USAGE: "the usage source says that its answer is partial",
    Reason.CLOCK_SKEW: "the usage source's clock and ours disagree",
    Reason.LEASE_LOST: "the cluster's lease is lost or near its end",
    Reason.STOPPING: "the program was asked to stop",
    Reason.SERVER_BUDGET: "refused by the API server: a PodDisruptionBudget has no room",
    Reason.SERVER_THROTTLED: "refused by the API server: throttled",
    Reason.SERVER_SEVERAL_BUDGETS: "refused by the API server: several PodDisruptionBudgets",
    Reason.SERVER_GONE: "the pod is gone",
    Reason.SERVER_UID_CHANGED: "another pod has its name now",
    Reason.SERVER_FORBIDDEN: "refused by the API server: not allowed (RBAC)",
    Reason.SERVER_UNKNOWN: "no answer in time: it may or may not have been evicted",
    Reason.SERVER_ERROR: "the API server answered with an error",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why something was not done: a code, and the sentence with its numbers and names."""

    code: Reason
    message: str
    next_at: float | None = None
    """Seconds since the epoch when it may be tried again, where time alone lifts it and we know when."""

    @classmethod
    def of(cls, code: Reason, detail: str = "", *, next_at: float | None = None) -> "Refusal":
        """The code's sentence, with what is particular to this case behind a colon."""
        return cls(code=code, message=f"{SENTENCES[code]}: {detail}" if detail else SENTENCES[code], next_at=next_at)
