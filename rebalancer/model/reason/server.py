"""The reasons of the API server: what it answered to an eviction."""

from functools import partial

from rebalancer.model.reason.groups import BlockedReason, Row

_budget = partial(Row, BlockedReason.BUDGETS)
_server = partial(Row, BlockedReason.SERVER)

BUDGET = _budget(
    "ServerBudget",
    "refused by the API server: a PodDisruptionBudget has no room",
    "an allowed disruption; asked again in the next cycle",
)
THROTTLED = _server(
    "ServerThrottled",
    "refused by the API server: throttled",
    "the end of the throttling; asked again after its Retry-After, or in the next cycle",
)
SEVERAL_BUDGETS = _budget(
    "ServerSeveralBudgets",
    "refused by the API server: several PodDisruptionBudgets",
    "only one budget that selects it",
)
GONE = _server("ServerGone", "the pod is gone", "nothing: the pod is gone")
UID_CHANGED = _server("ServerUidChanged", "another pod has its name now", "nothing: the pod is gone")
FORBIDDEN = _server(
    "ServerForbidden", "refused by the API server: not allowed (RBAC)", "the right to create pods/eviction there"
)
WEBHOOK = _server(
    "ServerWebhook",
    "refused by the API server: an admission webhook or policy denied it",
    "the webhook's consent; asked again after safety.cooldowns.webhookBackoff",
)
WEBHOOK_FAILED = _server(
    "ServerWebhookFailed",
    "refused by the API server: an admission webhook could not be called",
    "a webhook that answers; asked again after safety.cooldowns.webhookBackoff",
)
UNKNOWN = _server(
    "ServerUnknown",
    "no answer that proves whether it was evicted",
    "the pod's state: it is seen alive or gone in the next cycles",
)
ERROR = _server(
    "ServerError",
    "the API server answered with an error",
    "an API server without the error; asked again in the next cycle",
)
