"""Proposals of one cluster: the adapter behind `model.decisions.ports.Proposals`.

Every machine that reaches the database can approve and reject; the leader carries out. The row alone says what a
proposal is: each change states what the row must be before, so of two at once only one finds it so.
"""

import math
import secrets
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, Row, case, insert, select, update

from rebalancer.model.decisions.alerts import ThresholdOverride
from rebalancer.model.decisions.plan_file import PlannedEviction, PlannedTarget
from rebalancer.model.decisions.ports import Clock
from rebalancer.model.decisions.proposals import OPEN, Proposal, ProposalState, ProposedPlan
from rebalancer.model.errors import UnsafeDataError
from rebalancer.store.db.dialect import read_clock
from rebalancer.store.db.engine import read, write
from rebalancer.store.db.tables import CYCLES, PROPOSALS

LETTERS = "23456789bcdfghjkmnpqrstvwxz"
"""Of an id: neither vowels, which make words, nor letters that look like digits."""

ID_LENGTH = 6

_ROWS = PROPOSALS.c


class SqlProposals:
    """See the module. Every method is one short transaction; all raise ConfigError, ConnectError."""

    def __init__(self, *, engine: Engine, cluster: str, clock: Clock | None = None) -> None:
        """Times are by the database's clock unless a `clock` replaces it. The caller disposes of the engine."""
        self._engine = engine
        self._cluster = cluster
        self._clock = clock

    def propose(
        self, cycle: str, plans: Sequence[tuple[ProposedPlan, bool]], *, pods: Collection[str], valid_seconds: float
    ) -> list[Proposal]:
        """See `Proposals`."""

        def work(connection: Connection) -> list[Proposal]:
            now = read_clock(connection, self._clock)
            self._expire(connection, now)
            kept = []
            for plan, whole in plans:
                stands = partial(ProposedPlan.stands_for, later=plan, whole=whole, pods=pods)
                kept.append(self._keep(connection, cycle, plan, stands, now=now, valid_seconds=valid_seconds))
            return [each for each in kept if each is not None]

        return write(self._engine, work)

    def all(self, *, most: int = 100) -> list[Proposal]:
        """The newest, those first that are open."""

        def look(connection: Connection) -> list[Proposal]:
            now = read_clock(connection, self._clock)
            query = select(PROPOSALS).where(_ROWS.cluster == self._cluster)
            closed = case((_ROWS.state.in_(OPEN), 0), else_=1)
            query = query.order_by(closed, _ROWS.proposed_at.desc(), _ROWS.id).limit(most)
            found = [_proposal(row, now) for row in connection.execute(query)]
            return sorted(found, key=lambda each: each.state not in OPEN)

        return read(self._engine, look)

    def named(self, name: str) -> Proposal | None:
        """The one with this id; None where there is none."""

        def look(connection: Connection) -> Proposal | None:
            row = connection.execute(select(PROPOSALS).where(*self._this(name))).one_or_none()
            return None if row is None else _proposal(row, read_clock(connection, self._clock))

        return read(self._engine, look)

    def approve(self, name: str, *, by: str) -> Proposal:
        """Approve the one with this id; what it is then. Raises UnsafeDataError where it is not open any more."""
        return self._decide(name, ProposalState.APPROVED, by=by, from_=(ProposalState.PROPOSED,))

    def reject(self, name: str, *, by: str, reason: str = "") -> Proposal:
        """Reject it, also after an approval while it is not being carried out. Raises UnsafeDataError as above."""
        return self._decide(name, ProposalState.REJECTED, by=by, from_=OPEN, reason=reason)

    def approved(self) -> list[Proposal]:
        """See `Proposals`."""
        cycles = PROPOSALS.outerjoin(CYCLES, CYCLES.c.id == _ROWS.run)
        query = select(PROPOSALS, CYCLES.c.id.label("recorded")).select_from(cycles)
        query = query.where(
            _ROWS.cluster == self._cluster, _ROWS.state.in_((ProposalState.APPROVED, ProposalState.STARTED))
        )

        def look(connection: Connection) -> list[tuple[Proposal, bool]]:
            now, rows = read_clock(connection, self._clock), query.order_by(_ROWS.decided_at, _ROWS.id)
            return [(_proposal(row, now), row.recorded is not None) for row in connection.execute(rows)]

        found = read(self._engine, look)
        for each, recorded in found:
            # one at a time is carried out, so that its process is gone; it records its cycle before the first eviction
            if each.state is ProposalState.STARTED and recorded:
                self.close(each, state=ProposalState.CARRIED_OUT, reason=f"ended early: see cycle {each.run}")
            elif each.state is ProposalState.STARTED:
                self.close(each, state=ProposalState.REFUSED, reason="its process ended before the first eviction")
        return [each for each, _ in found if each.state is ProposalState.APPROVED]

    def begin(self, proposal: Proposal) -> bool:
        """See `Proposals`."""

        def work(connection: Connection) -> bool:
            now = read_clock(connection, self._clock)
            values = {"state": ProposalState.STARTED}
            return self._change(connection, proposal.id, (ProposalState.APPROVED,), now, **values)

        return write(self._engine, work)

    def close(self, proposal: Proposal, *, state: ProposalState, reason: str) -> None:
        """See `Proposals`."""
        from_ = (ProposalState.APPROVED, ProposalState.STARTED)
        query = update(PROPOSALS).where(*self._this(proposal.id), _ROWS.state.in_(from_))
        write(self._engine, lambda connection: connection.execute(query.values(state=state, reason=reason)).rowcount)

    # ---- inside

    def _decide(
        self, name: str, to: ProposalState, *, by: str, from_: Sequence[ProposalState], reason: str = ""
    ) -> Proposal:
        def work(connection: Connection) -> tuple[bool, Row[Any] | None, float]:
            now = read_clock(connection, self._clock)
            values = {"state": to, "decided_by": by, "decided_at": now, "reason": reason}
            done = self._change(connection, name, from_, now, **values)
            return done, connection.execute(select(PROPOSALS).where(*self._this(name))).one_or_none(), now

        done, row, now = write(self._engine, work)
        if row is None:
            raise UnsafeDataError(f"proposal {name}: cluster {self._cluster} has none of this id")
        found = _proposal(row, now)
        if not done:
            raise UnsafeDataError(f"proposal {name}: {found.closed}")
        return found

    def _change(
        self, connection: Connection, name: str, from_: Sequence[ProposalState], now: float, **values: Any
    ) -> bool:
        """Whether it was in one of these states, and not expired."""
        query = update(PROPOSALS).where(*self._this(name), _ROWS.state.in_(from_), _ROWS.expires_at > now)
        return connection.execute(query.values(values)).rowcount == 1

    def _this(self, name: str) -> tuple[ColumnElement[bool], ...]:
        return _ROWS.cluster == self._cluster, _ROWS.id == name

    def _expire(self, connection: Connection, now: float) -> None:
        late = (_ROWS.cluster == self._cluster, _ROWS.state.in_(OPEN), _ROWS.expires_at <= now)
        connection.execute(update(PROPOSALS).where(*late).values(state=ProposalState.EXPIRED))

    def _keep(
        self,
        connection: Connection,
        cycle: str,
        plan: ProposedPlan,
        stands: Callable[[ProposedPlan], bool],
        *,
        now: float,
        valid_seconds: float,
    ) -> Proposal | None:
        """The open proposal that stands for the plan, a new one where none does; None where one that is approved does
        not, and where one that does was rejected and would not have expired yet."""
        open_ = (
            _ROWS.cluster == self._cluster,
            _ROWS.pool == plan.pool,
            _ROWS.strategy == plan.strategy,
            _ROWS.state.in_(OPEN),
        )
        row = connection.execute(select(PROPOSALS).where(*open_).with_for_update()).one_or_none()
        rejected = select(PROPOSALS).where(*open_[:-1], _ROWS.state == ProposalState.REJECTED, _ROWS.expires_at > now)
        if any(stands(_proposal(each, now).plan) for each in connection.execute(rejected)):
            return None
        name = "".join(secrets.choice(LETTERS) for _ in range(ID_LENGTH))
        if row is not None:
            before = _proposal(row, now)
            if stands(before.plan):
                return before
            values = {"state": ProposalState.SUPERSEDED, "reason": f"superseded by {name}"}
            over = update(PROPOSALS).where(_ROWS.id == before.id, _ROWS.state == ProposalState.PROPOSED)
            if connection.execute(over.values(values)).rowcount != 1:
                return None
        made = Proposal(
            id=name,
            cluster=self._cluster,
            state=ProposalState.PROPOSED,
            cycle=cycle,
            run=uuid.uuid4().hex,
            proposed_at=now,
            expires_at=now + valid_seconds,
            plan=plan,
        )
        connection.execute(insert(PROPOSALS).values(_row(made)))
        return made


def _row(proposal: Proposal) -> dict[str, Any]:
    plan = proposal.plan
    return {
        "id": proposal.id,
        "cluster": proposal.cluster,
        "pool": plan.pool,
        "strategy": plan.strategy,
        "state": proposal.state.value,
        "cycle": proposal.cycle,
        "run": proposal.run,
        "policy_hash": plan.policy_hash,
        "proposed_at": proposal.proposed_at,
        "expires_at": proposal.expires_at,
        "reason": "",
        "evictions": [_known(asdict(each)) for each in plan.evictions],
        "thresholds": [_known(asdict(each)) for each in plan.thresholds],
        "due": [[*key, until] for key, until in plan.due.items()],
    }


def _proposal(row: Row[Any], now: float) -> Proposal:
    """The proposal of a row, as it is now."""
    found = Proposal(
        id=row.id,
        cluster=row.cluster,
        state=ProposalState(row.state),
        cycle=row.cycle,
        run=row.run,
        proposed_at=row.proposed_at,
        expires_at=row.expires_at,
        decided_by=row.decided_by or "",
        decided_at=row.decided_at,
        reason=row.reason,
        plan=ProposedPlan(
            pool=row.pool,
            strategy=row.strategy,
            policy_hash=row.policy_hash,
            evictions=tuple(_eviction(each) for each in row.evictions),
            thresholds=tuple(ThresholdOverride(**_numbers(each, "max_excess")) for each in row.thresholds),
            due={(node, resource): until for node, resource, until in row.due},
        ),
    )
    is_late = found.state in OPEN and found.expires_at <= now
    return replace(found, state=ProposalState.EXPIRED) if is_late else found


def _eviction(values: Mapping[str, Any]) -> PlannedEviction:
    targets = tuple(PlannedTarget(**each) for each in values["target_nodes"])
    return PlannedEviction(**{**_numbers(values, "cpu_millicores"), "target_nodes": targets})


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    """Without NaN and infinity, which JSON has not: they are null."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in values.items()
    }


def _numbers(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {**values, name: math.nan if values[name] is None else values[name]}
