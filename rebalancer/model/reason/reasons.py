"""The codes for what was not done: why a pod stays, a node is not evaluated, or a whole cycle is stopped. The CLI, the
database, the metrics and the documentation all use them; `docs/reference/reasons.md` is made from them."""

from functools import partial

from rebalancer.model.reason import server, surges
from rebalancer.model.reason.groups import BlockedReason, MissReason, Row, RowCode

_guard = partial(Row, BlockedReason.GUARDS)
_cooldown = partial(Row, BlockedReason.COOLDOWNS)
_budget = partial(Row, BlockedReason.BUDGETS)
_no_target = partial(Row, BlockedReason.NO_TARGET_NODE)
_limit = partial(Row, BlockedReason.LIMITS)
_server = partial(Row, BlockedReason.SERVER)
_lists = partial(Row, BlockedReason.LISTS)
_level = partial(Row, BlockedReason.LEVELS)
_window = partial(Row, BlockedReason.WINDOWS)
_selection = partial(Row, BlockedReason.POOR_SELECTION)
_no_candidates = partial(Row, BlockedReason.NO_CANDIDATES)
_no_metrics = partial(Row, MissReason.NO_METRICS)
_not_covered = partial(Row, MissReason.NOT_COVERED)
_other = partial(Row, None)

_BY_WINDOW = "time: the sliding window of the limit; in flight: a Ready replacement"


class Reason(RowCode):
    """The code."""

    # Guards: what protects a pod.
    MIRROR_POD = _guard(
        "MirrorPod",
        "a mirror pod: the kubelet runs it from a file, evicting it changes nothing",
        "nothing: its file on the node is changed there",
    )
    STATIC_POD = _guard(
        "StaticPod", "a static pod: its owner is the node", "nothing: its file on the node is changed there"
    )
    DAEMONSET_POD = _guard(
        "DaemonSetPod", "a DaemonSet pod would come back to the same node", "nothing while a DaemonSet owns it"
    )
    TERMINATING = _guard("Terminating", "already terminating", "its end: it is gone after its grace period")
    FINISHED = _guard("Finished", "already finished", "nothing: it uses no CPU")
    NOT_READY = _guard("NotReady", "not Ready: moving it could hide why", "its Ready condition")
    BARE_POD = _guard("BarePod", "no controlling owner would recreate it", "a controlling owner")
    UNKNOWN_OWNER_KIND = _guard(
        "UnknownOwnerKind",
        "its owner's kind is not known to recreate pods (name it under guards.ownerKinds)",
        "the owner's kind under {guards.ownerKinds}",
    )
    JOB_POD = _guard(
        "JobPod",
        "a Job pod: its eviction counts as a failure (or Job pods are not allowed by guards.jobPods)",
        "{guards.jobPods} or the annotation rebalancer.dev/evict-job, or the end of its Job",
    )
    OURSELVES = _guard("Ourselves", "this is rebalancer itself", "nothing")
    OUR_PROMETHEUS = _guard("OurPrometheus", "the Prometheus that usage is read from", "guards.ours")
    OUR_DATABASE = _guard("OurDatabase", "rebalancer's own database", "guards.ours")
    SYSTEM_CRITICAL = _guard("SystemCritical", "system-critical priority", "another priority class of the pod")
    PRIORITY_THRESHOLD = _guard(
        "PriorityThreshold",
        "its priority is at or above the threshold",
        "{guards.priorityBelow}, or a lower priority of the pod",
    )
    HOST_PATH = _guard("HostPath", "uses a hostPath volume", "{guards.hostPath}")
    LOCAL_STORAGE = _guard("LocalStorage", "keeps data in an emptyDir on the node's disk", "{guards.diskEmptyDir}")
    LOCAL_VOLUME = _guard("LocalVolume", "uses a local volume that stays on the node", "another volume")
    VOLUME_IN_USE = _guard(
        "VolumeInUse",
        "another pod on its node uses its ReadWriteOnce volume, which stays attached there until that pod is gone",
        "the end of the other pod",
    )
    PERSISTENT_VOLUME = _guard(
        "PersistentVolume", "uses a PersistentVolumeClaim (guards.persistentVolumes)", "{guards.persistentVolumes}"
    )
    NEEDED_BY_OTHERS = _guard(
        "NeededByOthers",
        "other pods of its namespace need it where they run, by required podAffinity (guards.neededPods)",
        "another pod there that their rule selects, the end of those pods, or {guards.neededPods}",
    )
    TOO_YOUNG = _guard("TooYoung", "younger than the minimum age", "time: {guards.minAge} after its start")
    MIN_REPLICAS = _guard(
        "MinReplicas",
        "its service has fewer replicas than the minimum",
        "more desired replicas, {guards.minReplicas}, or guards.replacementFirst",
    )
    SURGE_OWNER = surges.OWNER
    SURGE_STRATEGY = surges.STRATEGY
    SURGE_PAUSED = surges.PAUSED
    SURGE_VOLUME = surges.VOLUME
    SURGE_HOST_PORT = surges.HOST_PORT
    SURGE_AUTOSCALER = surges.AUTOSCALER
    SURGE_DELETION_COST = surges.DELETION_COST
    SURGE_FORBIDDEN = surges.FORBIDDEN
    SURGE_UNDONE = surges.UNDONE
    ROLLOUT_IN_PROGRESS = _guard("RolloutInProgress", "its owner is rolling out", "the end of the rollout")
    OWNER_NOT_HEALTHY = _guard(
        "OwnerNotHealthy",
        "its owner has fewer ready pods that stay than desired",
        "as many Ready pods as are desired, on nodes that stay",
    )
    AUTOSCALING = _cooldown(
        "Autoscaling",
        "an autoscaler is changing its service, or did so less than guards.minScaleAge ago",
        "the end of the change, and {guards.minScaleAge} after it",
    )
    BUDGET_EXHAUSTED = _budget(
        "BudgetExhausted",
        "its PodDisruptionBudget has no room",
        "an allowed disruption: another of its pods is Ready, or the budget is changed",
    )
    BUDGET_OUTDATED = _budget(
        "BudgetOutdated",
        "its PodDisruptionBudget was changed and its figures are not up to date yet",
        "the status of the budget, which its controller writes within seconds",
    )
    SEVERAL_BUDGETS = _budget(
        "SeveralBudgets",
        "several PodDisruptionBudgets select it: the API server refuses to evict it",
        "only one budget that selects it",
    )
    POD_GROUP = _guard(
        "PodGroup",
        "one of a group of pods that restart together (guards.groupLabels)",
        "guards.groupLabels, or a pod without such a label",
    )
    EVICTION_IN_PROGRESS = _cooldown(
        "EvictionInProgress",
        "its eviction, or one of its service by replacement first, is in progress in the background",
        "its end: the pod has left, or after 10 minutes; by replacement first, the deadline",
    )
    ANNOTATION_VETO = _guard("AnnotationVeto", "an annotation forbids it", "the annotation's removal")
    OPTED_OUT = _guard("OptedOut", "opted out of evictions", "the label's or annotation's removal")
    INVALID_OPT_OUT = _guard(
        "InvalidOptOut", "rebalancer.dev/evict is neither true nor false, so it counts as false", "true or false there"
    )
    NOT_OPTED_IN = _guard(
        "NotOptedIn",
        "the policy requires an opt-in that it doesn't have",
        "an opt-in of the pod or its namespace, or {guards.requireOptIn}",
    )
    NAMESPACE_EXCLUDED = _guard("NamespaceExcluded", "its namespace is excluded by the policy", "{guards.namespaces}")
    LABEL_EXCLUDED = _guard(
        "LabelExcluded", "its labels are excluded by the policy", "guards.labels, or other labels of the pod"
    )

    UNREADABLE_OBJECT = _guard(
        "UnreadableObject", "an object that concerns it can't be read", "the object's repair or removal"
    )

    # Lists, levels, windows, clusters.
    DENY_LISTED = _lists("DenyListed", "on a deny list", "the entry's removal from {lists.deny}")
    NOT_ALLOW_LISTED = _lists("NotAllowListed", "on no allow list", "an entry in {lists.allow}")
    UNKNOWN_LEVEL = _level(
        "UnknownLevel",
        "it names a service level that the policy doesn't have",
        "the level under serviceLevels, or another level of the pod",
    )
    LEVEL_FORBIDS = _level(
        "LevelForbids", "its service level forbids evictions", "{serviceLevels}, or another level of the pod"
    )
    WINDOW_CLOSED = _window("WindowClosed", "outside its change window", "time: the window's opening", "windows")
    WINDOW_INVALID = _window(
        "WindowInvalid", "its change window can't be parsed, so it counts as closed", "a window that can be parsed"
    )
    CROSS_CLUSTER = _guard(
        "CrossCluster", "placed by a multi-cluster controller (crossCluster)", "safety.crossCluster.mode"
    )
    MOVED_IN_OTHER_CLUSTER = _cooldown(
        "MovedInOtherCluster",
        "its service was moved in another cluster recently",
        "time: safety.crossCluster.separation after that eviction",
    )
    READY_SHARE_TOO_LOW = _limit(
        "ReadyShareTooLow",
        "its service would keep too few ready replicas over all clusters",
        "more Ready replicas in any cluster",
    )

    # Cooldowns, backoff, pauses.
    COOLDOWN_NODE = _cooldown(
        "CooldownNode", "its node was relieved recently", "time: {safety.cooldowns.node} after the node's last eviction"
    )
    COOLDOWN_SERVICE = _cooldown(
        "CooldownService",
        "its service was moved recently",
        "time: {safety.cooldowns.service} after the service's last eviction",
    )
    COOLDOWN_SERVICE_NODE = _cooldown(
        "CooldownServiceNode",
        "its service was moved off this node recently",
        "time: {safety.cooldowns.serviceNode} after the service's last eviction from the node",
    )
    COOLDOWN_POOL = _cooldown(
        "CooldownPool",
        "its pool is being scaled up",
        "time: {safety.cooldowns.poolAfterScaleUp} after the scale-up, or no unschedulable pods",
    )
    EVICTION_BACKOFF = _cooldown(
        "EvictionBackoff",
        "backoff: evicting it did not help before",
        "time: safety.cooldowns.backoff, longer each time and a week at most by default",
    )
    REPEATED_EVICTION = _other(
        "RepeatedEviction",
        "the same strategy evicted its predecessor for the same reason",
        "time: safety.cooldowns.backoff, longer each time and a week at most by default",
    )
    WEBHOOK_BACKOFF = _server(
        "WebhookBackoff",
        "backoff: an admission webhook refused the eviction of a pod of its service",
        "time: safety.cooldowns.webhookBackoff, longer each time and a day at most by default",
    )
    PAUSED = Row(BlockedReason.PAUSED, "Paused", "paused", "time: the pause's end, or `rebalancer resume`")
    CIRCUIT_BREAKER_OPEN = _cooldown(
        "CircuitBreakerOpen",
        "the circuit breaker is open: replacements are late, or evictions there do not help",
        "Ready replacements, or safety.inFlight.maxLate after their deadline; "
        "where evictions did not help, time: an hour after the newest assessment",
    )
    DISTURBANCE = _cooldown(
        "Disturbance",
        "many nodes or services near it turned unready within minutes",
        "their Ready conditions; time: 10 minutes after the last of them turned unready; {safety.disturbance.share}",
    )
    REPLACEMENT_LATE = _cooldown(
        "ReplacementLate",
        "an earlier replacement of its service is still not Ready",
        "the Ready replacement, safety.inFlight.maxLate after its deadline, or `rebalancer resolve eviction`",
    )

    # Placement: where the replacement would go.
    NO_TARGET_NODE = _no_target(
        "NoTargetNode",
        "no node would take the replacement",
        "room by requests, or placement rules of the pod that admit more nodes",
    )
    NO_NODE_WITH_HEADROOM = _no_target(
        "NoNodeWithHeadroom",
        "every node that would take the replacement would go over its target",
        "less real load on those nodes, or more nodes",
    )
    NO_NODE_WITH_MEMORY = _no_target(
        "NoNodeWithMemory",
        "too little real memory would stay available on every node that would take the replacement",
        "less real memory in use on those nodes, more nodes, or {guards.minMemoryAvailable}",
    )
    WOULD_RETURN_TO_NODE = _no_target(
        "WouldReturnToNode",
        "kube-scheduler would put the replacement back on the same node",
        "other placement rules or requests, or room on other nodes",
    )
    TARGET_NODE_WITHOUT_HEADROOM = _no_target(
        "TargetNodeWithoutHeadroom",
        "kube-scheduler would put the replacement on a node without headroom",
        "less real load on that node, or a larger softTaint.maxNodes",
    )
    TARGET_NODE_WITHOUT_MEMORY = _no_target(
        "TargetNodeWithoutMemory",
        "kube-scheduler would put the replacement on a node where too little real memory would stay available",
        "less real memory in use on that node, a larger softTaint.maxNodes, or {guards.minMemoryAvailable}",
    )
    PLACEMENT_NOT_MODELLED = _no_target(
        "PlacementNotModelled",
        "its placement rules are not modelled, so its target node isn't known",
        "placement rules, volumes or claims that are modelled",
    )
    TARGET_NODE_UNAVAILABLE = _no_target(
        "TargetNodeUnavailable",
        "kube-scheduler may put the replacement on a node that is leaving or has just joined",
        "the node is gone, or safety.cooldowns.newNode after it joined",
    )
    QUOTA_EXCEEDED = _no_target(
        "QuotaExceeded", "a ResourceQuota of its namespace would refuse the replacement", "room in the quota"
    )
    NEEDS_PREEMPTION = _no_target(
        "NeedsPreemption",
        "its replacement would find room only by preempting other pods",
        "room on a node without preemption",
    )
    PENDING_TAKES_ROOM = _no_target(
        "PendingTakesRoom", "a pending pod would take the room that it leaves", "a node for the pending pod, or its end"
    )
    POOL_FULL = Row(
        BlockedReason.POOL_FULL,
        "PoolFull",
        "no target node is under its low",
        "a node under its low, or a higher low",
        "pools.thresholds.low",
    )
    TARGET_NODE_NOT_BETTER = _no_target(
        "TargetNodeNotBetter",
        "kube-scheduler may put the replacement where it is no better",
        "room on a node where it is better",
    )
    NO_BETTER_NODE = _no_target(
        "NoBetterNode",
        "no node on which it would be better has room for the replacement",
        "room on a node where it is better",
    )

    # Planning.
    NO_RELIEF = _selection("NoRelief", "its eviction would relieve the node too little", "more real load of the pod")
    HIGH_UNREACHABLE = _no_candidates(
        "HighUnreachable",
        "the node would stay over its high without any of its pods",
        "less load outside of pods, or planner.worth Aggressive",
        "planner.worth",
    )
    NOT_WORTH_ITS_PRICE = _no_candidates(
        "NotWorthItsPrice",
        "its eviction would remove too little heat for its price",
        "a hotter node, a cheaper pod, or another planner.worth",
        "planner.worth",
    )
    GOAL_REACHED = _selection(
        "GoalReached", "not needed: the node reaches its target without it", "more real load on the node"
    )
    ENOUGH_EVICTED = _other(
        "EnoughEvicted", "not needed: enough other pods are evicted", "the next cycle, where more is to be evicted"
    )
    ALREADY_BALANCED = _other(
        "AlreadyBalanced", "not needed: its pods are spread evenly enough without it", "a less even spread"
    )
    NODE_NOT_DRAINABLE = _other(
        "NodeNotDrainable", "the node can't be drained", "what lifts the refusal of the pods that it names"
    )
    DRAIN_QUEUED = _other("DrainQueued", "other nodes are drained first", "the end of the drains before it")
    NOT_CORDONED = _other(
        "NotCordoned", "its node is drained only once it is cordoned", "the cordon, which the plan's own cycle sets"
    )
    NO_ROOM_MADE = _other("NoRoomMade", "no room is made for it", "what its message names, or more room on a node")
    NO_POD_USAGE = Row(BlockedReason.NO_CANDIDATES, "NoPodUsage", "its usage isn't known", "samples of the pod's usage")
    PLANNING_TIMEOUT = _selection("PlanningTimeout", "the cycle's planning time was used up", "the next cycle")

    # Admission.
    LIMIT_CYCLE = _limit("LimitCycle", "the cycle's limit is reached", "the next cycle, or {limits.perCycle}")
    LIMIT_GLOBAL = _limit("LimitGlobal", "the limit over all clusters is reached", _BY_WINDOW, "limits.global")
    LIMIT_CLUSTER = _limit("LimitCluster", "the cluster's limit is reached", _BY_WINDOW, "limits.cluster")
    LIMIT_POOL = _limit("LimitPool", "the pool's limit is reached", _BY_WINDOW, "limits.pool")
    LIMIT_NODE = _limit("LimitNode", "the node's limit is reached", _BY_WINDOW, "limits.node")
    LIMIT_NAMESPACE = _limit("LimitNamespace", "the namespace's limit is reached", _BY_WINDOW, "limits.namespace")
    LIMIT_LEVEL = _limit("LimitLevel", "the service level's limit is reached", _BY_WINDOW, "serviceLevels")
    LIMIT_SERVICE = _limit("LimitService", "the service's limit is reached", _BY_WINDOW, "limits.service")
    LIMIT_REPLACEMENTS = _limit(
        "LimitReplacements",
        "too many replacements are in flight to its target node",
        "a Ready replacement on that node",
        "limits.replacements",
    )
    LIMIT_IMAGE_PULLS = _limit(
        "LimitImagePulls",
        "too many bytes of images are being pulled in the target node's pool",
        "Ready replacements in that pool",
        "limits.replacements.pullBytesPerPool",
    )

    # Nodes that are not evaluated.
    NO_SAMPLE = _no_metrics("NoSample", "no usage sample", "a sample")
    STALE_SAMPLE = _no_metrics("StaleSample", "the usage sample is too old", "a new sample")
    NOT_FINITE = _no_metrics("NotFinite", "the usage is not a finite, plausible number", "a plausible sample")
    AMBIGUOUS_NODE = _no_metrics("AmbiguousNode", "two usage series have this node's name", "one series for each node")
    NODE_NOT_READY = Row(MissReason.NOT_READY, "NodeNotReady", "the node is not Ready", "its Ready condition")
    NODE_IN_TWO_POOLS = _not_covered(
        "NodeInTwoPools", "the selectors of two pools match the node: it is in neither", "other labels, or {pools}"
    )
    NODE_UNREADABLE = _not_covered("NodeUnreadable", "the node can't be read", "the node's repair or removal")
    NODE_LEAVING = Row(
        MissReason.NODE_LEAVING,
        "NodeLeaving",
        "the node is being removed, drained or shut down",
        "the node's end, or the removal of what says so: a taint, a condition or a cordon",
        "safety.leavingNodes",
    )
    NODE_KEPT = _other("NodeKept", "low, but not to be drained", "what its message names")
    COOLS_BY_ITSELF = Row(
        MissReason.COOLS_BY_ITSELF,
        "CoolsByItself",
        "hot only until a pod on it ends within minutes",
        "time: the pod's known end",
    )
    STABILIZATION_WINDOW = Row(
        MissReason.STABILIZATION_WINDOW,
        "StabilizationWindow",
        "not hot for long enough",
        "hot readings over usage.stabilizationWindow",
    )
    SETTLING = Row(
        MissReason.STABILIZATION_WINDOW,
        "Settling",
        "relieved recently: a whole rate window must pass first",
        "time: usage.rateWindow after the last eviction from it",
    )
    EMPTIED_IN_VAIN = _other(
        "EmptiedInVain",
        "low, but after an earlier drain it was not removed",
        "time: safety.cooldowns.backoff after it was uncordoned, longer each time; its removal",
    )
    NO_CONTENTION = _other("NoContention", "CPU contention is not measured there", "metrics of PSI or CFS throttling")
    NO_NOISY_NEIGHBOUR = _other(
        "NoNoisyNeighbour",
        "its tasks wait for CPU, but no evictable pod uses far more than it requests",
        "an evictable pod that uses far more than it requests",
    )

    # The whole cycle.
    COVERAGE_TOO_LOW = _no_metrics(
        "CoverageTooLow",
        "too few nodes have fresh usage: this is an outage, not an idle cluster",
        "fresh usage of usage.minCoverage of the Ready nodes",
    )
    PARTIAL_USAGE = _no_metrics("PartialUsage", "the usage source reports a partial answer", "a complete answer")
    CLOCK_SKEW = _no_metrics("ClockSkew", "the usage source's clock and ours disagree", "clocks that agree")
    LEASE_LOST = Row(BlockedReason.INTERRUPTED, "LeaseLost", "the cluster's lease is lost or near its end", "the lease")
    STOPPING = Row(BlockedReason.INTERRUPTED, "Stopping", "the program is stopping", "the next process")

    # The API server's answer.
    SERVER_BUDGET = server.BUDGET
    SERVER_THROTTLED = server.THROTTLED
    SERVER_SEVERAL_BUDGETS = server.SEVERAL_BUDGETS
    SERVER_GONE = server.GONE
    SERVER_UID_CHANGED = server.UID_CHANGED
    SERVER_FORBIDDEN = server.FORBIDDEN
    SERVER_WEBHOOK = server.WEBHOOK
    SERVER_WEBHOOK_FAILED = server.WEBHOOK_FAILED
    SERVER_UNKNOWN = server.UNKNOWN
    SERVER_ERROR = server.ERROR
