"""Whatever happens, no window ever holds more than its limit, and nothing is lost.

Random limits, clusters, services and clocks (that jump ahead and are set back), answers of all kinds, refunds,
landings, images to pull, old entries that are dropped, and processes that die between the reservation and its outcome.
After each step a reader that shares no code with the ledger looks at the rows; and its own arithmetic says beforehand
whether a reservation must be let through.
"""

import math
from contextlib import ExitStack

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule
from hypothesis.stateful import run_state_machine_as_test as run

from rebalancer.model.decisions.eviction import Outcome
from rebalancer.model.decisions.limits import Check, Denied, Scope
from rebalancer.store import SqlLedger, SqlRecords, open_engine
from rebalancer.store.ledger.reconcile import CALL_GRACE_SECONDS
from rebalancer.store.retention.pruning import prune_in
from tests.builders import set_fields
from tests.store.builders import FakeReader, PodSeen, SteppingClock, build_eviction, build_report
from tests.store.readers import (
    MICRO,
    being_pulled,
    counted_times,
    fullest_window,
    in_flight_now,
    raw_connection,
    read_rows,
)

CLUSTERS, SERVICES, NODES = ("blue", "green"), ("web", "db"), ("n1", "n2")
KINDS = ("global", "cluster", "node", "service")
POOLS = ("general", "batch")
DURATIONS = (1.0, 7.5, 30.0)
OLD_SECONDS = 60.0
"""What is older is dropped now and then: no window is longer, and no clock is set back as far."""
EMPTY = ("entries", "evictions", "scopes", "cycles")

rates = st.lists(st.tuples(st.integers(1, 4), st.sampled_from(DURATIONS)), max_size=2)
limits = st.fixed_dictionaries(
    {
        kind: st.fixed_dictionaries(
            {
                "rate": rates,
                "spacing": st.none() | st.sampled_from(DURATIONS),
                "inFlight": st.none() | st.integers(1, 5),
            }
        )
        for kind in KINDS
    }
)


class LedgerMachine(RuleBasedStateMachine):
    """Several clusters and one ledger; `url` is set by the test."""

    url = ""
    reservations = Bundle("reservations")

    def __init__(self):
        super().__init__()
        self.clock = SteppingClock()
        self.engine = self.raw = None
        self.resources = ExitStack()
        self.expected: dict[int, tuple[bool, bool]] = {}
        """Eviction -> (counted, in flight), as it must be; without those whose entries were dropped."""
        self.scopes: dict[int, int] = {}
        """Eviction -> how many scopes it counts in."""
        self.of: dict[int, tuple[str, object]] = {}
        self.pods = 0

    @initialize(
        limits=limits, separation=st.none() | st.sampled_from(DURATIONS), pull_at_most=st.none() | st.integers(0, 9)
    )
    def begin(self, limits, separation, pull_at_most):
        self.limits, self.separation, self.pull_at_most = limits, separation, pull_at_most
        self.raw = self.resources.enter_context(raw_connection(self.url))
        for table in EMPTY:
            self.raw.execute(f"DELETE FROM {table}")
        self.open()
        self.reports = {}
        for cluster in CLUSTERS:
            self.reports[cluster] = build_report(cycle=f"cycle-of-{cluster}")
            self.records[cluster].begin(self.reports[cluster])

    def open(self):
        self.engine = open_engine(self.url)
        self.ledgers = {name: SqlLedger(engine=self.engine, cluster=name, clock=self.clock) for name in CLUSTERS}
        self.records = {name: SqlRecords(engine=self.engine, cluster=name, clock=self.clock) for name in CLUSTERS}

    def teardown(self):
        self.resources.close()
        if self.engine is not None:
            self.engine.dispose()

    def checks(self, scopes, service, amount):
        out = []
        for scope in scopes:
            if scope.kind == "pulls":
                if self.pull_at_most is not None:
                    out.append(Check(scope=scope, kind="bytes", at_most=self.pull_at_most, amount=amount))
                continue
            of_kind = self.limits[scope.kind]
            out += [
                Check(scope=scope, kind="rate", at_most=at_most, per_seconds=per) for at_most, per in of_kind["rate"]
            ]
            if of_kind["spacing"] is not None:
                out.append(Check(scope=scope, kind="spacing", at_most=1, per_seconds=of_kind["spacing"]))
            if of_kind["inFlight"] is not None:
                out.append(Check(scope=scope, kind="inFlight", at_most=of_kind["inFlight"]))
        if self.separation is not None:
            scope = Scope("service", service)
            out.append(Check(scope=scope, kind="separation", at_most=1, per_seconds=self.separation))
        return out

    def frees_up(self, check, cluster, rows, now_us):
        """By the reader's rows: when the check has room, in microseconds; 0 for now, inf for not by itself."""
        counted = [row for row in rows if row.scope == tuple(check.scope) and row.counted]
        if check.kind == "inFlight":
            return 0 if sum(row.in_flight for row in counted) < check.at_most else math.inf
        if check.kind == "bytes":
            pulled = sum(row.pull_bytes for row in counted if row.in_flight)
            return 0 if pulled + check.amount <= check.at_most else math.inf
        if check.kind == "separation":
            counted = [row for row in counted if row.cluster != cluster]
        leaves = sorted(row.at_us + round(check.per_seconds * MICRO) for row in counted)
        blocking = [each for each in leaves if each > now_us]
        return blocking[-check.at_most] if len(blocking) >= check.at_most else 0

    @rule(seconds=st.sampled_from((0.000001, 0.3, 1.0, 7.5, 29.9, 100.0)))
    def time_passes(self, seconds):
        self.clock.sleep(seconds)

    @rule(seconds=st.sampled_from((0.5, 5.0)))
    def the_clock_is_set_back(self, seconds):
        self.clock.sleep(-seconds)

    @rule(
        target=reservations,
        cluster=st.sampled_from(CLUSTERS),
        service=st.sampled_from(SERVICES),
        node=st.sampled_from(NODES),
        amount=st.sampled_from((0.0, 1.0, 3.0, 8.0, 10.0)),
        pool=st.sampled_from(POOLS),
    )
    def reserve(self, cluster, service, node, amount, pool):
        self.pods += 1
        identity = f"shop/{service}"
        scopes = [
            Scope("service", identity),
            Scope("node", f"{cluster}/{node}"),
            Scope("global", ""),
            Scope("cluster", cluster),
        ]
        if amount:
            scopes.append(Scope("pulls", f"{cluster}/{pool}"))
        checks = self.checks(scopes, identity, amount)
        rows, now_us = read_rows(self.raw), round(self.clock.now() * MICRO)
        frees_up = {check: self.frees_up(check, cluster, rows, now_us) for check in checks}
        name = f"p{self.pods}"
        eviction = build_eviction(
            pod=name, node=node, service=service, scopes=tuple(scopes), pull_bytes=amount, target_pool=pool
        )
        answer = self.ledgers[cluster].reserve(self.reports[cluster], eviction, checks=checks, term=1)
        full_until = max(frees_up.values(), default=0)
        if isinstance(answer, Denied):
            assert full_until, "denied although every check had room"
            assert frees_up[answer.check] == full_until
            expected = None if full_until == math.inf else full_until
            assert (answer.next_at and round(answer.next_at * MICRO)) == expected
            assert answer.used + answer.check.amount >= answer.check.at_most
            return multiple()
        assert not full_until, "let through although a check was used up"
        set_fields(eviction, record=answer)
        self.expected[answer] = (True, True)
        self.scopes[answer] = len(scopes)
        self.of[answer] = (cluster, eviction)
        return answer

    @rule(record=reservations, outcome=st.sampled_from(list(Outcome)[1:]))
    def the_call_answers(self, record, outcome):
        cluster, eviction = self.of[record]
        if eviction.answered.outcome is not Outcome.PLANNED:
            return
        set_fields(eviction, outcome=outcome)
        self.ledgers[cluster].outcome(eviction)
        if outcome in (Outcome.REFUSED, Outcome.FAILED) and record in self.expected:
            self.expected[record] = (False, False)

    @rule(record=reservations, times=st.integers(1, 3))
    def cancel_reservation(self, record, times):
        cluster, eviction = self.of[record]
        for _ in range(times):
            self.ledgers[cluster].cancel_reservation(record)
        set_fields(eviction, outcome=Outcome.FAILED)
        if record in self.expected:
            self.expected[record] = (False, False)

    @rule(record=reservations)
    def land(self, record):
        cluster, _ = self.of[record]
        self.ledgers[cluster].landed(record, at=self.clock.now())
        if record in self.expected:
            self.expected[record] = (self.expected[record][0], False)

    @rule(record=reservations)
    def is_late(self, record):
        self.ledgers[self.of[record][0]].late(record)

    @rule(cluster=st.sampled_from(CLUSTERS), alive=st.sets(st.integers(1, 30)), wait=st.booleans())
    def dies_and_reconciles_at_its_next_start(self, cluster, alive, wait):
        self.engine.dispose()
        self.open()
        self.clock.sleep(CALL_GRACE_SECONDS + 1.0 if wait else 0.0)
        pods = {("shop", f"p{number}"): PodSeen(uid=f"uid-p{number}") for number in alive}
        for each in self.ledgers[cluster].reconcile_outcomes(FakeReader(pods=pods)):
            set_fields(self.of[each.reserved.record][1], outcome=each.answered.outcome)
            if each.answered.outcome is Outcome.FAILED and each.reserved.record in self.expected:
                self.expected[each.reserved.record] = (False, False)

    @rule()
    def old_entries_are_dropped(self):
        before_us = round((self.clock.now() - OLD_SECONDS) * MICRO)
        gone = {row.eviction for row in read_rows(self.raw) if row.at_us < before_us and not row.in_flight}
        prune_in(self.engine, clock=self.clock, older_than=OLD_SECONDS, dry_run=False)
        for record in gone:
            del self.expected[record]

    @invariant()
    def no_window_is_over_its_limit(self):
        rows = read_rows(self.raw) if self.raw else []
        flying = in_flight_now(rows)
        for scope, amount in being_pulled(rows).items():
            assert self.pull_at_most is None or amount <= self.pull_at_most, scope
        for scope, times in counted_times(rows).items():
            if scope[0] == "pulls":
                continue
            of_kind = self.limits[scope[0]]
            for at_most, per in of_kind["rate"]:
                assert fullest_window(times, per) <= at_most, (scope, at_most, per)
            if of_kind["spacing"] is not None:
                assert fullest_window(times, of_kind["spacing"]) <= 1, scope
            if of_kind["inFlight"] is not None:
                assert flying[scope] <= of_kind["inFlight"], scope

    @invariant()
    def nothing_is_lost_and_nothing_goes_below_zero(self):
        rows = read_rows(self.raw) if self.raw else []
        found = {}
        for row in rows:
            found.setdefault(row.eviction, []).append((row.counted, row.in_flight))
        assert {record: set(each) for record, each in found.items()} == {
            record: {each} for record, each in self.expected.items()
        }
        assert all(len(each) == self.scopes[record] for record, each in found.items())
        if self.engine:
            for cluster, ledger in self.ledgers.items():
                open_ones = {each.reserved.record for each in ledger.open_evictions()}
                assert open_ones == {
                    record for record, (_, flies) in self.expected.items() if flies and self.of[record][0] == cluster
                }


# several statements for each step, each committed to the disk: what is slow here is not what is tested
SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)


def run_at(url: str, *, examples: int) -> None:
    machine = type("LedgerMachineHere", (LedgerMachine,), {"url": url})
    steps = settings(max_examples=examples, stateful_step_count=40, deadline=None, suppress_health_check=SLOW)
    run(machine, settings=steps)


def test_no_history_breaks_a_limit_on_sqlite(newest_sqlite_url: str):
    run_at(newest_sqlite_url, examples=25)


@pytest.mark.real
def test_no_history_breaks_a_limit_on_postgresql(newest_postgres_url: str):
    run_at(newest_postgres_url, examples=15)
