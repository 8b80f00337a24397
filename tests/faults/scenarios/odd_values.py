"""Values that an API server accepts in fields of their kind, few of which anyone expects."""

MIRROR = "kubernetes.io/config.mirror"
INT32, INT64 = 2**31 - 1, 2**63 - 1
CPUS = ("1e400", "1e308", "1e18", "1n", "1u", "0", "0.1m", "100m", "1E", "999999", "1Ki", "12e-10", "1e-30")


BYTES = ("1e400", "1e308", "1e30", "1m", "0", "128974848", "1Ei", "64Mi", "0.5Gi", "123456789012345678901234567890")


COUNTS = ("0", "1", "1e3", str(INT64), "1k")


TEXTS = (
    "",
    "true",
    "false",
    "banana",
    "-1",
    "1e400",
    "\u202e\u0000\u2028",
    "🦄" * 50,
    "x" * 4000,
    "{}",
    "[]",
    "null",
    "NaN",
)


VALUES = ("", "a", "A.b-c_d", "0", "x" * 63, "1e400", "true")


KEYS = (
    "app",
    "app.kubernetes.io/name",
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "rebalancer.dev/evict",
    "rebalancer.dev/name",
    "node-role.kubernetes.io/control-plane",
    f"{'p' * 63}.{'q' * 63}.example.com/{'n' * 63}",
    "0",
)


ANNOTATIONS = (
    "rebalancer.dev/evict",
    "rebalancer.dev/min-replicas",
    "rebalancer.dev/maintenance",
    "descheduler.alpha.kubernetes.io/evict",
    "descheduler.alpha.kubernetes.io/prefer-no-eviction",
    "descheduler.alpha.kubernetes.io/eviction-in-progress",
    "descheduler.alpha.kubernetes.io/request-evict-only",
    "cluster-autoscaler.kubernetes.io/safe-to-evict",
    MIRROR,
    "example.com/anything",
)


TIMES = ("1970-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "2026-01-01T00:00:00Z")


PHASES = ("Pending", "Running", "Succeeded", "Failed", "Unknown")


OWNERS = (
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "StatefulSet"),
    ("apps/v1", "DaemonSet"),
    ("apps/v1", "Deployment"),
    ("batch/v1", "Job"),
    ("v1", "Node"),
    ("v1", "ReplicationController"),
    ("example.com/v1alpha1", "Unicorn"),
)
