"""Codes for everything that was not done, and why: reasons of pods, nodes and cycles, and the groups that rates use.

The CLI, the database, the metrics and the documentation all use these enums; `docs/reference/reasons.md` is made from
`Reason`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self


class Code(StrEnum):
    """A stable identifier with its sentence for people."""

    sentence: str

    def __new__(cls, code: str, sentence: str = "") -> Self:
        """Members are written `NAME = code, sentence`; looked up by their code alone."""
        out = str.__new__(cls, code)
        out._value_, out.sentence = code, sentence
        return out


class MissReason(Code):
    """Why a hot episode was not discovered; `sentence` says it in words."""

    DAEMON_DOWN = "daemonDown", "no cycle ran while it was hot"
    """No cycle ran in the episode, or none for most of it."""
    NOT_COVERED = "notCovered", "it is in no pool of a strategy for hot nodes"
    NO_METRICS = "noMetrics", "its usage was missing or not plausible"
    """Also where the whole cycle was stopped for that."""
    STABILIZATION_WINDOW = "stabilizationWindow", "it was not hot for long enough, or an eviction from it was settling"
    BELOW_THRESHOLD = "belowThreshold", "the measured share stayed at or under the pool's high"
    """Alert or thresholds are less sensitive than the hot-node SLO, or computed otherwise."""
    NOT_EVALUATED = "notEvaluated", "cycles ran, but none evaluated it while it was hot"
    """Its alert never came, or the strategy's interval is longer than the episode."""
    NOT_READY = "notReady", "the node was not Ready"
    NODE_LEAVING = "nodeLeaving", "an autoscaler was removing the node"


class BlockedReason(Code):
    """Why nothing was evicted from a discovered node: the group of its refusals' codes."""

    GUARDS = "guards", "guards protect its pods"
    LISTS = "lists", "allow and deny lists keep its pods"
    LEVELS = "levels", "its pods' service levels forbid evictions"
    WINDOWS = "windows", "outside the change windows of its pods"
    LIMITS = "limits", "limits were used up"
    COOLDOWNS = "cooldowns", "cooldown, backoff, circuit breaker or a late replacement"
    """Also a recent move of the service in another cluster."""
    PAUSED = "paused", "evictions were paused"
    BUDGETS = "disruptionBudgets", "PodDisruptionBudgets had no room"
    NO_TARGET_NODE = "noTargetNode", "no suitable target node for the replacements"
    POOL_FULL = "poolFull", "no target node was under its low"
    SERVER = "serverRefused", "the API server refused"
    POOR_SELECTION = "poorSelection", "only the planner's own selection kept the candidates there"
    """Candidates that no rule kept might have cooled it: planning time used up, each too small alone but enough
    together, or left for others that did not go in the end."""
    INTERRUPTED = "interrupted", "the plan was broken off: the lease was lost, or the program was stopped"
    NO_CANDIDATES = "noCandidates", "no pod on it could be evaluated, or would have helped"
    DRY_RUN = "dryRun", "a dry run: nothing is evicted"


class Reason(Code):
    """The code.

    `group` is the blocked reason that refusals of a hot node's candidates count as, or the miss reason that the codes
    of nodes and cycles count as. None: the code is of other goals (removing pods, draining nodes), and explains nothing
    of a node that stayed hot.
    """

    group: BlockedReason | MissReason | None

    def __new__(cls, code: str, sentence: str = "", group: BlockedReason | MissReason | None = None) -> Self:
        """Members are written `NAME = code, sentence, group`."""
        out = str.__new__(cls, code)
        out._value_, out.sentence, out.group = code, sentence, group
        return out

    # Guards: what protects a pod.
    MIRROR_POD = (
        "MirrorPod",
        "a mirror pod: the kubelet runs it from a file, evicting it changes nothing",
        BlockedReason.GUARDS,
    )
    STATIC_POD = "StaticPod", "a static pod: its owner is the node", BlockedReason.GUARDS
    DAEMONSET_POD = "DaemonSetPod", "a DaemonSet pod would come back to the same node", BlockedReason.GUARDS
    TERMINATING = "Terminating", "already terminating", BlockedReason.GUARDS
    FINISHED = "Finished", "already finished", BlockedReason.GUARDS
    NOT_READY = "NotReady", "not Ready: moving it could hide why", BlockedReason.GUARDS
    BARE_POD = "BarePod", "no controlling owner would recreate it", BlockedReason.GUARDS
    UNKNOWN_OWNER_KIND = (
        "UnknownOwnerKind",
        "its owner's kind is not known to recreate pods (name it under guards.ownerKinds)",
        BlockedReason.GUARDS,
    )
    JOB_POD = (
        "JobPod",
        "a Job pod: its eviction counts as a failure (or Job pods are not allowed by guards.jobPods)",
        BlockedReason.GUARDS,
    )
    OURSELVES = "Ourselves", "this is rebalancer itself", BlockedReason.GUARDS
    OUR_PROMETHEUS = "OurPrometheus", "the Prometheus that usage is read from", BlockedReason.GUARDS
    OUR_DATABASE = "OurDatabase", "rebalancer's own database", BlockedReason.GUARDS
    SYSTEM_CRITICAL = "SystemCritical", "system-critical priority", BlockedReason.GUARDS
    PRIORITY_THRESHOLD = "PriorityThreshold", "its priority is at or above the threshold", BlockedReason.GUARDS
    HOST_PATH = "HostPath", "uses a hostPath volume", BlockedReason.GUARDS
    LOCAL_STORAGE = "LocalStorage", "keeps data in an emptyDir on the node's disk", BlockedReason.GUARDS
    LOCAL_VOLUME = "LocalVolume", "uses a local volume that stays on the node", BlockedReason.GUARDS
    VOLUME_IN_USE = (
        "VolumeInUse",
        "another pod on its node uses its ReadWriteOnce volume, which stays attached there until that pod is gone",
        BlockedReason.GUARDS,
    )
    PERSISTENT_VOLUME = (
        "PersistentVolume",
        "uses a PersistentVolumeClaim (guards.persistentVolumes)",
        BlockedReason.GUARDS,
    )
    TOO_YOUNG = "TooYoung", "younger than the minimum age", BlockedReason.GUARDS
    MIN_REPLICAS = "MinReplicas", "its service has fewer replicas than the minimum", BlockedReason.GUARDS
    ROLLOUT_IN_PROGRESS = "RolloutInProgress", "its owner is rolling out", BlockedReason.GUARDS
    OWNER_NOT_HEALTHY = "OwnerNotHealthy", "its owner has fewer ready pods than desired", BlockedReason.GUARDS
    AUTOSCALING = (
        "Autoscaling",
        "an autoscaler is changing its service, or did so less than guards.minScaleAge ago",
        BlockedReason.COOLDOWNS,
    )
    BUDGET_EXHAUSTED = "BudgetExhausted", "its PodDisruptionBudget has no room", BlockedReason.BUDGETS
    BUDGET_OUTDATED = (
        "BudgetOutdated",
        "its PodDisruptionBudget was changed and its figures are not up to date yet",
        BlockedReason.BUDGETS,
    )
    SEVERAL_BUDGETS = (
        "SeveralBudgets",
        "several PodDisruptionBudgets select it: the API server refuses to evict it",
        BlockedReason.BUDGETS,
    )
    POD_GROUP = (
        "PodGroup",
        "one of a group of pods that restart together (guards.groupLabels)",
        BlockedReason.GUARDS,
    )
    EVICTION_IN_PROGRESS = (
        "EvictionInProgress",
        "its eviction is in progress in the background",
        BlockedReason.COOLDOWNS,
    )
    ANNOTATION_VETO = "AnnotationVeto", "an annotation forbids it", BlockedReason.GUARDS
    OPTED_OUT = "OptedOut", "opted out of evictions", BlockedReason.GUARDS
    NOT_OPTED_IN = "NotOptedIn", "the policy requires an opt-in that it doesn't have", BlockedReason.GUARDS
    NAMESPACE_EXCLUDED = "NamespaceExcluded", "its namespace is excluded by the policy", BlockedReason.GUARDS
    LABEL_EXCLUDED = "LabelExcluded", "its labels are excluded by the policy", BlockedReason.GUARDS

    # Lists, levels, windows, clusters.
    DENY_LISTED = "DenyListed", "on a deny list", BlockedReason.LISTS
    NOT_ALLOW_LISTED = "NotAllowListed", "on no allow list", BlockedReason.LISTS
    UNKNOWN_LEVEL = "UnknownLevel", "it names a service level that the policy doesn't have", BlockedReason.LEVELS
    LEVEL_FORBIDS = "LevelForbids", "its service level forbids evictions", BlockedReason.LEVELS
    WINDOW_CLOSED = "WindowClosed", "outside its change window", BlockedReason.WINDOWS
    WINDOW_INVALID = "WindowInvalid", "its change window can't be parsed, so it counts as closed", BlockedReason.WINDOWS
    CROSS_CLUSTER = "CrossCluster", "placed by a multi-cluster controller (crossCluster)", BlockedReason.GUARDS
    MOVED_IN_OTHER_CLUSTER = (
        "MovedInOtherCluster",
        "its service was moved in another cluster recently",
        BlockedReason.COOLDOWNS,
    )
    READY_SHARE_TOO_LOW = (
        "ReadyShareTooLow",
        "its service would keep too few ready replicas over all clusters",
        BlockedReason.LIMITS,
    )

    # Cooldowns, backoff, pauses.
    COOLDOWN_NODE = "CooldownNode", "its node was relieved recently", BlockedReason.COOLDOWNS
    COOLDOWN_SERVICE = "CooldownService", "its service was moved recently", BlockedReason.COOLDOWNS
    COOLDOWN_SERVICE_NODE = (
        "CooldownServiceNode",
        "its service was moved off this node recently",
        BlockedReason.COOLDOWNS,
    )
    COOLDOWN_POOL = "CooldownPool", "its pool is being scaled up", BlockedReason.COOLDOWNS
    EVICTION_BACKOFF = "EvictionBackoff", "backoff: evicting it did not help before", BlockedReason.COOLDOWNS
    REPEATED_EVICTION = "RepeatedEviction", "the same strategy evicted its predecessor for the same reason"
    WEBHOOK_BACKOFF = (
        "WebhookBackoff",
        "backoff: an admission webhook refused the eviction of a pod of its service",
        BlockedReason.SERVER,
    )
    PAUSED = "Paused", "paused", BlockedReason.PAUSED
    CIRCUIT_BREAKER_OPEN = (
        "CircuitBreakerOpen",
        "the circuit breaker is open: replacements are late, or evictions there do not help",
        BlockedReason.COOLDOWNS,
    )
    REPLACEMENT_LATE = (
        "ReplacementLate",
        "an earlier replacement of its service is still not Ready",
        BlockedReason.COOLDOWNS,
    )

    # Placement: where the replacement would go.
    NO_TARGET_NODE = "NoTargetNode", "no node would take the replacement", BlockedReason.NO_TARGET_NODE
    NO_NODE_WITH_HEADROOM = (
        "NoNodeWithHeadroom",
        "every node that would take the replacement would go over its target",
        BlockedReason.NO_TARGET_NODE,
    )
    NO_NODE_WITH_MEMORY = (
        "NoNodeWithMemory",
        "too little real memory would stay available on every node that would take the replacement",
        BlockedReason.NO_TARGET_NODE,
    )
    WOULD_RETURN_TO_NODE = (
        "WouldReturnToNode",
        "kube-scheduler would put the replacement back on the same node",
        BlockedReason.NO_TARGET_NODE,
    )
    TARGET_NODE_WITHOUT_HEADROOM = (
        "TargetNodeWithoutHeadroom",
        "kube-scheduler would put the replacement on a node without headroom",
        BlockedReason.NO_TARGET_NODE,
    )
    TARGET_NODE_WITHOUT_MEMORY = (
        "TargetNodeWithoutMemory",
        "kube-scheduler would put the replacement on a node where too little real memory would stay available",
        BlockedReason.NO_TARGET_NODE,
    )
    PLACEMENT_NOT_MODELLED = (
        "PlacementNotModelled",
        "its placement rules are not modelled, so its target node isn't known",
        BlockedReason.NO_TARGET_NODE,
    )
    TARGET_NODE_UNAVAILABLE = (
        "TargetNodeUnavailable",
        "kube-scheduler may put the replacement on a node that is leaving or has just joined",
        BlockedReason.NO_TARGET_NODE,
    )
    QUOTA_EXCEEDED = (
        "QuotaExceeded",
        "a ResourceQuota of its namespace would refuse the replacement",
        BlockedReason.NO_TARGET_NODE,
    )
    NEEDS_PREEMPTION = (
        "NeedsPreemption",
        "its replacement would find room only by preempting other pods",
        BlockedReason.NO_TARGET_NODE,
    )
    PENDING_TAKES_ROOM = (
        "PendingTakesRoom",
        "a pending pod would take the room that it leaves",
        BlockedReason.NO_TARGET_NODE,
    )
    POOL_FULL = "PoolFull", "no target node is under its low", BlockedReason.POOL_FULL
    TARGET_NODE_NOT_BETTER = (
        "TargetNodeNotBetter",
        "kube-scheduler may put the replacement where it is no better",
        BlockedReason.NO_TARGET_NODE,
    )
    NO_BETTER_NODE = (
        "NoBetterNode",
        "no node on which it would be better has room for the replacement",
        BlockedReason.NO_TARGET_NODE,
    )

    # Planning.
    NO_RELIEF = "NoRelief", "its eviction would relieve the node too little", BlockedReason.POOR_SELECTION
    HIGH_UNREACHABLE = (
        "HighUnreachable",
        "the node would stay over its high without all pods that may go",
        BlockedReason.NO_CANDIDATES,
    )
    GOAL_REACHED = "GoalReached", "not needed: the node reaches its target without it", BlockedReason.POOR_SELECTION
    ENOUGH_EVICTED = "EnoughEvicted", "not needed: enough other pods are evicted"
    ALREADY_BALANCED = "AlreadyBalanced", "not needed: its pods are spread evenly enough without it"
    NODE_NOT_DRAINABLE = "NodeNotDrainable", "the node can't be drained"
    DRAIN_QUEUED = "DrainQueued", "other nodes are drained first"
    NOT_CORDONED = "NotCordoned", "its node is drained only once it is cordoned"
    NO_POD_USAGE = "NoPodUsage", "its usage isn't known", BlockedReason.NO_CANDIDATES
    PLANNING_TIMEOUT = "PlanningTimeout", "the cycle's planning time was used up", BlockedReason.POOR_SELECTION

    # Admission.
    LIMIT_CYCLE = "LimitCycle", "the cycle's limit is reached", BlockedReason.LIMITS
    LIMIT_GLOBAL = "LimitGlobal", "the limit over all clusters is reached", BlockedReason.LIMITS
    LIMIT_CLUSTER = "LimitCluster", "the cluster's limit is reached", BlockedReason.LIMITS
    LIMIT_POOL = "LimitPool", "the pool's limit is reached", BlockedReason.LIMITS
    LIMIT_NODE = "LimitNode", "the node's limit is reached", BlockedReason.LIMITS
    LIMIT_NAMESPACE = "LimitNamespace", "the namespace's limit is reached", BlockedReason.LIMITS
    LIMIT_LEVEL = "LimitLevel", "the service level's limit is reached", BlockedReason.LIMITS
    LIMIT_SERVICE = "LimitService", "the service's limit is reached", BlockedReason.LIMITS
    LIMIT_REPLACEMENTS = (
        "LimitReplacements",
        "too many replacements are in flight to its target node",
        BlockedReason.LIMITS,
    )
    LIMIT_IMAGE_PULLS = (
        "LimitImagePulls",
        "too many bytes of images are being pulled in the target node's pool",
        BlockedReason.LIMITS,
    )

    # Nodes that are not evaluated.
    NO_SAMPLE = "NoSample", "no usage sample", MissReason.NO_METRICS
    STALE_SAMPLE = "StaleSample", "the usage sample is too old", MissReason.NO_METRICS
    NOT_FINITE = "NotFinite", "the usage is not a finite, plausible number", MissReason.NO_METRICS
    AMBIGUOUS_NODE = "AmbiguousNode", "two usage series have this node's name", MissReason.NO_METRICS
    NODE_NOT_READY = "NodeNotReady", "the node is not Ready", MissReason.NOT_READY
    NODE_LEAVING = "NodeLeaving", "an autoscaler is removing the node", MissReason.NODE_LEAVING
    NODE_KEPT = "NodeKept", "low, but not to be drained"
    STABILIZATION_WINDOW = "StabilizationWindow", "not hot for long enough", MissReason.STABILIZATION_WINDOW
    SETTLING = "Settling", "relieved recently: a whole rate window must pass first", MissReason.STABILIZATION_WINDOW
    EMPTIED_IN_VAIN = "EmptiedInVain", "low, but after an earlier drain it was not removed"
    NO_CONTENTION = "NoContention", "CPU contention is not measured there"
    NO_NOISY_NEIGHBOUR = (
        "NoNoisyNeighbour",
        "its tasks wait for CPU, but no evictable pod uses far more than it requests",
    )

    # The whole cycle.
    COVERAGE_TOO_LOW = (
        "CoverageTooLow",
        "too few nodes have fresh usage: this is an outage, not an idle cluster",
        MissReason.NO_METRICS,
    )
    PARTIAL_USAGE = "PartialUsage", "the usage source reports a partial answer", MissReason.NO_METRICS
    CLOCK_SKEW = "ClockSkew", "the usage source's clock and ours disagree", MissReason.NO_METRICS
    LEASE_LOST = "LeaseLost", "the cluster's lease is lost or near its end", BlockedReason.INTERRUPTED
    STOPPING = "Stopping", "the program is stopping", BlockedReason.INTERRUPTED

    # The API server's answer.
    SERVER_BUDGET = (
        "ServerBudget",
        "refused by the API server: a PodDisruptionBudget has no room",
        BlockedReason.BUDGETS,
    )
    SERVER_THROTTLED = "ServerThrottled", "refused by the API server: throttled", BlockedReason.SERVER
    SERVER_SEVERAL_BUDGETS = (
        "ServerSeveralBudgets",
        "refused by the API server: several PodDisruptionBudgets",
        BlockedReason.BUDGETS,
    )
    SERVER_GONE = "ServerGone", "the pod is gone", BlockedReason.SERVER
    SERVER_UID_CHANGED = "ServerUidChanged", "another pod has its name now", BlockedReason.SERVER
    SERVER_FORBIDDEN = "ServerForbidden", "refused by the API server: not allowed (RBAC)", BlockedReason.SERVER
    SERVER_WEBHOOK = (
        "ServerWebhook",
        "refused by the API server: an admission webhook or policy denied it",
        BlockedReason.SERVER,
    )
    SERVER_WEBHOOK_FAILED = (
        "ServerWebhookFailed",
        "refused by the API server: an admission webhook could not be called",
        BlockedReason.SERVER,
    )
    SERVER_UNKNOWN = "ServerUnknown", "no answer in time: it may or may not have been evicted", BlockedReason.SERVER
    SERVER_ERROR = "ServerError", "the API server answered with an error", BlockedReason.SERVER


LIFTED_BY: Final[Mapping[Reason, str]] = {
    Reason.MIRROR_POD: "nothing: its file on the node is changed there",
    Reason.STATIC_POD: "nothing: its file on the node is changed there",
    Reason.DAEMONSET_POD: "nothing while a DaemonSet owns it",
    Reason.TERMINATING: "its end: it is gone after its grace period",
    Reason.FINISHED: "nothing: it uses no CPU",
    Reason.NOT_READY: "its Ready condition",
    Reason.BARE_POD: "a controlling owner",
    Reason.UNKNOWN_OWNER_KIND: "the owner's kind under guards.ownerKinds",
    Reason.JOB_POD: "guards.jobPods, or the end of its Job",
    Reason.OURSELVES: "nothing",
    Reason.OUR_PROMETHEUS: "guards.ours",
    Reason.OUR_DATABASE: "guards.ours",
    Reason.SYSTEM_CRITICAL: "another priority class of the pod",
    Reason.PRIORITY_THRESHOLD: "guards.priorityBelow, or a lower priority of the pod",
    Reason.HOST_PATH: "guards.hostPath",
    Reason.LOCAL_STORAGE: "guards.diskEmptyDir",
    Reason.LOCAL_VOLUME: "another volume",
    Reason.VOLUME_IN_USE: "the end of the other pod",
    Reason.PERSISTENT_VOLUME: "guards.persistentVolumes",
    Reason.TOO_YOUNG: "time: guards.minAge after its start",
    Reason.MIN_REPLICAS: "more desired replicas, or guards.minReplicas",
    Reason.ROLLOUT_IN_PROGRESS: "the end of the rollout",
    Reason.AUTOSCALING: "the end of the change, and guards.minScaleAge after it",
    Reason.OWNER_NOT_HEALTHY: "as many Ready pods as are desired",
    Reason.BUDGET_EXHAUSTED: "an allowed disruption: another of its pods is Ready, or the budget is changed",
    Reason.BUDGET_OUTDATED: "the status of the budget, which its controller writes within seconds",
    Reason.SEVERAL_BUDGETS: "only one budget that selects it",
    Reason.POD_GROUP: "guards.groupLabels, or a pod without such a label",
    Reason.EVICTION_IN_PROGRESS: "its end: the pod has left, or after 10 minutes",
    Reason.ANNOTATION_VETO: "the annotation's removal",
    Reason.OPTED_OUT: "the label's or annotation's removal",
    Reason.NOT_OPTED_IN: "an opt-in of the pod or its namespace, or guards.requireOptIn",
    Reason.NAMESPACE_EXCLUDED: "guards.namespaces",
    Reason.LABEL_EXCLUDED: "guards.labels, or other labels of the pod",
    Reason.DENY_LISTED: "the entry's removal from lists.deny",
    Reason.NOT_ALLOW_LISTED: "an entry in lists.allow",
    Reason.UNKNOWN_LEVEL: "the level under serviceLevels, or another level of the pod",
    Reason.LEVEL_FORBIDS: "serviceLevels, or another level of the pod",
    Reason.WINDOW_CLOSED: "time: the window's opening",
    Reason.WINDOW_INVALID: "a window that can be parsed",
    Reason.CROSS_CLUSTER: "safety.crossCluster.mode",
    Reason.MOVED_IN_OTHER_CLUSTER: "time: safety.crossCluster.separation after that eviction",
    Reason.READY_SHARE_TOO_LOW: "more Ready replicas in any cluster",
    Reason.COOLDOWN_NODE: "time: safety.cooldowns.node after the node's last eviction",
    Reason.COOLDOWN_SERVICE: "time: safety.cooldowns.service after the service's last eviction",
    Reason.COOLDOWN_SERVICE_NODE: "time: safety.cooldowns.serviceNode after the service's last eviction from the node",
    Reason.COOLDOWN_POOL: "time: safety.cooldowns.poolAfterScaleUp after the scale-up, or no unschedulable pods",
    Reason.EVICTION_BACKOFF: "time: safety.cooldowns.backoff, longer each time and a week at most by default",
    Reason.REPEATED_EVICTION: "time: safety.cooldowns.backoff, longer each time and a week at most by default",
    Reason.WEBHOOK_BACKOFF: "time: safety.cooldowns.webhookBackoff, longer each time and a day at most by default",
    Reason.PAUSED: "time: the pause's end, or `rebalancer resume`",
    Reason.CIRCUIT_BREAKER_OPEN: (
        "Ready replacements, or safety.inFlight.maxLate after their deadline; where evictions did not help, time: an "
        "hour after the newest assessment"
    ),
    Reason.REPLACEMENT_LATE: (
        "the Ready replacement, safety.inFlight.maxLate after its deadline, or `rebalancer resolve eviction`"
    ),
    Reason.NO_TARGET_NODE: "room by requests, or placement rules of the pod that admit more nodes",
    Reason.NO_NODE_WITH_HEADROOM: "less real load on those nodes, or more nodes",
    Reason.NO_NODE_WITH_MEMORY: "less real memory in use on those nodes, more nodes, or guards.minMemoryAvailable",
    Reason.WOULD_RETURN_TO_NODE: "other placement rules or requests, or room on other nodes",
    Reason.TARGET_NODE_WITHOUT_HEADROOM: "less real load on that node, or a larger softTaint.maxNodes",
    Reason.TARGET_NODE_WITHOUT_MEMORY: (
        "less real memory in use on that node, a larger softTaint.maxNodes, or guards.minMemoryAvailable"
    ),
    Reason.PLACEMENT_NOT_MODELLED: "placement rules, volumes or claims that are modelled",
    Reason.TARGET_NODE_UNAVAILABLE: "the node is gone, or safety.cooldowns.newNode after it joined",
    Reason.QUOTA_EXCEEDED: "room in the quota",
    Reason.NEEDS_PREEMPTION: "room on a node without preemption",
    Reason.PENDING_TAKES_ROOM: "a node for the pending pod, or its end",
    Reason.POOL_FULL: "a node under its low, or a higher low",
    Reason.TARGET_NODE_NOT_BETTER: "room on a node where it is better",
    Reason.NO_BETTER_NODE: "room on a node where it is better",
    Reason.NO_RELIEF: "more real load of the pod",
    Reason.HIGH_UNREACHABLE: "less load that stays, more pods that may go, or args.bestEffort of the strategy",
    Reason.GOAL_REACHED: "more real load on the node",
    Reason.ENOUGH_EVICTED: "the next cycle, where more is to be evicted",
    Reason.ALREADY_BALANCED: "a less even spread",
    Reason.NODE_NOT_DRAINABLE: "what lifts the refusal of the pods that it names",
    Reason.DRAIN_QUEUED: "the end of the drains before it",
    Reason.NOT_CORDONED: "the cordon, which the plan's own cycle sets",
    Reason.NO_POD_USAGE: "samples of the pod's usage",
    Reason.PLANNING_TIMEOUT: "the next cycle",
    Reason.LIMIT_CYCLE: "the next cycle, or limits.perCycle",
    Reason.LIMIT_GLOBAL: "time: the sliding window of the limit; in flight: a Ready replacement",
    Reason.LIMIT_CLUSTER: "time: the sliding window of the limit; in flight: a Ready replacement",
    Reason.LIMIT_POOL: "time: the sliding window of the limit; in flight: a Ready replacement",
    Reason.LIMIT_NODE: "time: the sliding window of the limit; in flight: a Ready replacement",
    Reason.LIMIT_NAMESPACE: "time: the sliding window of the limit; in flight: a Ready replacement",
    Reason.LIMIT_LEVEL: "time: the sliding window of the limit; in flight: a Ready replacement",
    Reason.LIMIT_SERVICE: "time: the sliding window of the limit; in flight: a Ready replacement",
    Reason.LIMIT_REPLACEMENTS: "a Ready replacement on that node",
    Reason.LIMIT_IMAGE_PULLS: "Ready replacements in that pool",
    Reason.NO_SAMPLE: "a sample",
    Reason.STALE_SAMPLE: "a new sample",
    Reason.NOT_FINITE: "a plausible sample",
    Reason.AMBIGUOUS_NODE: "one series for each node",
    Reason.NODE_NOT_READY: "its Ready condition",
    Reason.NODE_LEAVING: "the node's end, or the removal of the autoscaler's taint",
    Reason.EMPTIED_IN_VAIN: "time: safety.cooldowns.backoff after it was uncordoned, longer each time; its removal",
    Reason.NODE_KEPT: "what its message names",
    Reason.STABILIZATION_WINDOW: "hot readings over usage.stabilizationWindow",
    Reason.SETTLING: "time: usage.rateWindow after the last eviction from it",
    Reason.NO_CONTENTION: "metrics of PSI or CFS throttling",
    Reason.NO_NOISY_NEIGHBOUR: "an evictable pod that uses far more than it requests",
    Reason.COVERAGE_TOO_LOW: "fresh usage of usage.minCoverage of the Ready nodes",
    Reason.PARTIAL_USAGE: "a complete answer",
    Reason.CLOCK_SKEW: "clocks that agree",
    Reason.LEASE_LOST: "the lease",
    Reason.STOPPING: "the next process",
    Reason.SERVER_BUDGET: "an allowed disruption; asked again in the next cycle",
    Reason.SERVER_THROTTLED: "the end of the throttling; asked again after its Retry-After, or in the next cycle",
    Reason.SERVER_SEVERAL_BUDGETS: "only one budget that selects it",
    Reason.SERVER_GONE: "nothing: the pod is gone",
    Reason.SERVER_UID_CHANGED: "nothing: the pod is gone",
    Reason.SERVER_FORBIDDEN: "the right to create pods/eviction there",
    Reason.SERVER_WEBHOOK: "the webhook's consent; asked again after safety.cooldowns.webhookBackoff",
    Reason.SERVER_WEBHOOK_FAILED: "a webhook that answers; asked again after safety.cooldowns.webhookBackoff",
    Reason.SERVER_UNKNOWN: "the pod's state: it is seen alive or gone in the next cycles",
    Reason.SERVER_ERROR: "an API server without the error; asked again in the next cycle",
}
"""Code -> what lifts the refusal. "time: ..." says which time; it stands in `Refusal.next_at`.

Refusals are judged in every cycle by the cluster, the policy and the ledger as they are then. They end in the first
cycle after what lifts them.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why something was not done: a code, and the sentence with its numbers and names."""

    code: Reason
    message: str
    next_at: float | None = None
    """Seconds since the epoch of the earliest retry, where only time lifts it and the time is known."""
    setting: str = ""
    """Policy key that holds it; empty = not known."""
    value: str = ""
    """A value of `setting` that would lift it; empty = not known."""

    @classmethod
    def of(cls, code: Reason, detail: str = "", *, next_at: float | None = None) -> "Refusal":
        """The code's sentence, with the particulars behind a colon."""
        return cls(code=code, message=f"{code.sentence}: {detail}" if detail else code.sentence, next_at=next_at)


def particulars(message: str, sentence: str) -> str:
    """The part of a refusal's message beyond its code's sentence: what holds for this pod or node alone."""
    return message.removeprefix(sentence).removeprefix(": ")
