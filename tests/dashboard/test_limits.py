"""What cools down: for how long, and what is free first."""

from rebalancer.dashboard.limits import cooldowns
from rebalancer.model.decisions.limits import LedgerEntry, Scope
from tests.builders import NOW, a_policy

POLICY = a_policy(safety={"cooldowns": {"node": "5m", "service": "10m", "serviceNode": "1h"}})


def moved(seconds_ago: float, *scopes: Scope) -> list[LedgerEntry]:
    return [LedgerEntry(scope, NOW - seconds_ago, False) for scope in scopes]


NODE = Scope("node", "test/n1")
SERVICE = Scope("service", "shop/web")
BOTH = Scope("serviceNode", "test/n1/shop/web")


def test_each_scope_cools_down_for_its_own_time() -> None:
    scopes = (NODE, SERVICE, BOTH, Scope("cluster", "test"), Scope("global", ""))

    def cooling(seconds_ago: float) -> list[str]:
        return [each.scope for each in cooldowns(POLICY, moved(seconds_ago, *scopes), now=NOW)]

    assert cooling(299) == ["node n1", "service shop/web", "serviceNode n1/shop/web"]
    assert cooling(300) == ["service shop/web", "serviceNode n1/shop/web"]
    assert cooling(600) == ["serviceNode n1/shop/web"]
    assert cooling(3600) == []


def test_the_newest_move_counts_and_what_is_free_first_comes_first() -> None:
    entries = [*moved(10, BOTH, NODE), *moved(250, NODE), *moved(590, SERVICE)]
    found = cooldowns(POLICY, entries, now=NOW)
    assert [(each.scope, each.until - NOW, NOW - each.last_at) for each in found] == [
        ("service shop/web", 10.0, 590.0),
        ("node n1", 290.0, 10.0),
        ("serviceNode n1/shop/web", 3590.0, 10.0),
    ]
