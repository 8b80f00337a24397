"""The dashboard's page of limits: remaining evictions, change windows, and everything that stops evictions."""

from collections.abc import Callable, Sequence
from contextlib import suppress

from rebalancer.constraints.moves.in_flight import LateEvictions
from rebalancer.constraints.moves.windows import ChangeWindows
from rebalancer.cycle.observe.ledger_state import evictions_in_flight, load_ledger_state
from rebalancer.cycle.report.limits_overview import limit_lines, service_windows, window_lines
from rebalancer.effect.feedback import open_breakers
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.decisions.limits import LedgerEntry
from rebalancer.model.decisions.ports import Ledger
from rebalancer.model.errors import UnsafeDataError
from rebalancer.model.measured.history import DAY_SECONDS
from rebalancer.model.records.effect import EffectRecords, Step
from rebalancer.policy import RebalancerPolicy
from rebalancer.web.pages.views import Cooldown, LimitsPage, WindowLine

BREAKER_LOOKBACK_SECONDS = 3 * DAY_SECONDS
"""Older assessments cannot keep a circuit breaker open."""


def limits_page(
    policy: RebalancerPolicy, snapshot: ClusterSnapshot, ledger: Ledger, effect: EffectRecords
) -> LimitsPage:
    """Every scope's limits by the ledger, now. Raises ConnectError."""
    state, now, book = (
        load_ledger_state(ledger, policy, snapshot, writes=False),
        ledger.now(),
        ChangeWindows.of_policy(policy),
    )
    flying = state.open_evictions
    windows = window_lines(book, now=now)
    windows += service_windows(snapshot, book, policy, namespace=None, now=now)
    return LimitsPage(
        at=now,
        limits=tuple(limit_lines(snapshot, state, policy, now=now)),
        windows=tuple(
            WindowLine(
                scope=str(scope),
                open=window.open,
                broken=window.broken,
                words=words,
                next_open=window.next_open,
                because=window.because,
            )
            for scope, window, words in windows
        ),
        pauses=state.pauses,
        open_breakers=tuple(open_breaker_reasons(policy, flying, effect, now=now).values()),
        cooldowns=cooldowns(policy, state.entries, now=now),
        backoffs=state.backoffs,
        open_evictions=flying,
    )


def open_breaker_reasons(
    policy: RebalancerPolicy, flying: Sequence[Eviction], effect: EffectRecords, *, now: float
) -> dict[str, str]:
    """Scope (`the cluster`, `pool NAME`) -> why its circuit breaker is open, one sentence each: late replacements, and
    pools with ineffective evictions."""
    late = LateEvictions([each for each in flying if each.replaced.late], policy.safety.circuit_breaker)
    found = {scope: refusal.message for scope, refusal in late.open_breakers().items()}
    assessed = effect.assessments(now - BREAKER_LOOKBACK_SECONDS, now + 1, step=Step.SETTLED)
    for pool, each in open_breakers(assessed, policy.safety.circuit_breaker.effect, now=now).items():
        scope = f"pool {pool}"
        found[scope] = f"{found[scope]}; {each.reason}" if scope in found else each.reason
    return found


def open_breakers_now(
    policy: RebalancerPolicy, snapshot: Callable[[], ClusterSnapshot], ledger: Ledger, effect: EffectRecords
) -> dict[str, str]:
    """`open_breaker_reasons` by the ledger, now. The snapshot is read where evictions are in flight; it may raise
    UnsafeDataError. Raises ConnectError."""
    flying: Sequence[Eviction] = ledger.open_evictions()
    if flying:
        with suppress(UnsafeDataError):  # before the cluster was read
            flying = evictions_in_flight(ledger, policy.safety, snapshot())
    return open_breaker_reasons(policy, flying, effect, now=ledger.now())


def cooldowns(policy: RebalancerPolicy, entries: Sequence[LedgerEntry], *, now: float) -> tuple[Cooldown, ...]:
    """Scopes in their cooldown; the first to end, first."""
    seconds = {
        "node": (policy.safety.cooldowns.node, "not relieved again"),
        "service": (policy.safety.cooldowns.service, "none of its pods is moved"),
        "serviceNode": (policy.safety.cooldowns.service_node, "not moved off the same node"),
    }
    last = {entry.scope: entry.at for entry in sorted(entries, key=lambda each: each.at) if entry.scope.kind in seconds}
    out = []
    for scope, at in last.items():
        length, what = seconds[scope.kind]
        if now - at < length:
            out.append(Cooldown(scope=str(scope), until=at + length, last_at=at, what=what))
    return tuple(sorted(out, key=lambda each: (each.until, each.scope)))
