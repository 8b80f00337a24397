"""From a violation to a repaired cluster in the lab, and then fifty cycles in which nothing more moves.

What is wrong is counted plainly on the lab's own objects, and never taken from what a strategy found.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rebalancer.lab import Lab, Scenario
from rebalancer.lab.log import Entry
from rebalancer.model.decisions.eviction import Eviction, Outcome
from rebalancer.model.reason import Reason
from tests.stories.oracles.violations import is_ready, running, service_name, uids
from tests.stories.readers import Log, Moved
from tests.stories.scenarios.stage import TURN_SECONDS, Stage, a_stage, codes

CALM_CYCLES = 50
REPAIRED_WITHIN = 15

Wrong = Callable[[Lab], Set[str]]
"""What is wrong in the lab now, by names that a test compares."""

NEVER_EVICT = {"rebalancer.dev/evict": "false"}
"""Annotation of pods that stay."""
SEVERAL_AT_ONCE = {"service": {"inFlight": 10}}
"""Limits: no limit of ours keeps a service's pods together, so its PodDisruptionBudget has to."""

OPTED_OUT = {str(Reason.OPTED_OUT)}
NO_BUDGET = {str(Reason.BUDGET_EXHAUSTED)}
"""What `Repair.refused` says of pods with the annotation, and under a budget without room."""
KEPT_BACK = {
    str(each)
    for each in (
        Reason.CIRCUIT_BREAKER_OPEN,
        Reason.PAUSED,
        Reason.EVICTION_BACKOFF,
        Reason.REPLACEMENT_LATE,
        Reason.LIMIT_CYCLE,
    )
}


# ---- the story


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """A stage on which something is to be put right."""

    stage: Stage
    wrong: Wrong
    ready_at_start: Mapping[str, Set[str]]
    """Service -> uids of its Ready pods before the first cycle."""

    @property
    def lab(self) -> Lab:
        return self.stage.lab

    def log(self) -> Log:
        return self.stage.log

    def until_only(self, *stays: str) -> None:
        """Cycles until nothing is wrong but what has to stay."""
        left: set[str] = set()
        for _ in range(REPAIRED_WITHIN):
            self.lab.clock.sleep(TURN_SECONDS)
            left = set(self.wrong(self.lab))
            assert left >= set(stays), f"expected to stay: {sorted(set(stays) - left)}"
            if left == set(stays):
                assert self.log().evicted, "nothing was wrong"
                return
            self.stage.cycle()
        refused = [(each.namespace, each.name, each.message) for each in self.stage.reports[-1].refusals]
        raise AssertionError(f"still wrong: {sorted(left - set(stays))}; refused: {refused}")

    def then_nothing_moves(self, *stays: str) -> None:
        """Fifty more cycles: no eviction, and what was repaired stays so."""
        before = self.log().evicted
        for number in range(CALM_CYCLES):
            self.stage.turn()
            assert self.log().evicted == before, f"in cycle {number} after the repair"
            assert set(self.wrong(self.lab)) == set(stays)
        # and not because a limit, a brake or a bad memory kept the rest of the pods where they were
        assert not codes(self.stage.reports[-CALM_CYCLES:]) & KEPT_BACK

    # ---- what must not have happened

    def why(self) -> dict[str, Eviction]:
        """Uid of an evicted pod -> the eviction."""
        all_ = (each for report in self.stage.reports for each in report.evictions)
        return {each.uid: each for each in all_ if each.answered.outcome is Outcome.EVICTED}

    def moved(self) -> list[Moved]:
        """Evictions with what came in the pods' places; without those of pods that had finished."""
        finished = {uid for uid, each in self.why().items() if not each.target_nodes}
        return Log(each for each in self.log() if not (each.event == "eviction" and each.uid in finished)).moves

    def moved_twice(self) -> list[str]:
        """Of each replica of a service that was moved for the same reason again, whatever moved it in between: the
        strategies, in order. A replica is a pod and what came in its place, and so on."""
        why, reasons = self.why(), dict[str, tuple[str, ...]]()
        for each in self.moved():
            reasons[each.new_uid] = (*reasons.get(each.uid, ()), why[each.uid].strategy)
        return sorted(" ".join(each) for each in reasons.values() if len(set(each)) < len(each))

    def repairs(self, moved: Mapping[str, int], *, stuck: Collection[str], unmoved: Collection[str]) -> None:
        """Cycles until nothing is wrong but with the `stuck`, then fifty more. So many pods of each service moved, none
        for the same reason again, each to a node of the plan; those of `unmoved` services are the same as before."""
        before = {name: uids(running(self.lab, name)) for name in unmoved}
        self.until_only(*stuck)
        assert Counter(each.service for each in self.moved()) == moved
        self.then_nothing_moves(*stuck)
        assert self.moved_twice() == []
        self.all_landed_as_planned()
        self.the_api_server_refused_nothing()
        assert {name: uids(running(self.lab, name)) for name in unmoved} == before

    def all_landed_as_planned(self) -> None:
        """On one of the nodes that the plan had named, and got Ready."""
        why = self.why()
        for each in self.moved():
            assert each.target in {name for name, _ in why[each.uid].target_nodes}, each
            assert each.ready_at is not None, each

    def the_api_server_refused_nothing(self) -> None:
        """What a budget forbids isn't even asked for."""
        refused = [each for each in self.lab.log.evictions() if each.code != 201]
        assert refused == []

    def fewest_ready(self, service: str) -> int:
        """Of a service's pods: how many were Ready and not leaving when there were fewest."""
        ready = set(self.ready_at_start[service])
        fewest = len(ready)
        ours = {each.uid for each in self.log() if each.event == "created" and _is_of(each, service)} | ready
        for each in self.log():
            if each.uid in ours and each.event == "ready":
                ready.add(each.uid)
            elif each.event in ("terminating", "broken", "failed"):
                ready.discard(each.uid)
            fewest = min(fewest, len(ready))
        return fewest

    def refused(self, service: str) -> set[str]:
        """Why pods of a service stay, by the last cycle."""
        return codes(self.stage.reports[-1], f"{service}-")


def _is_of(entry: Entry, service: str) -> bool:
    return entry.name.startswith(f"{service}-")


@contextmanager
def a_repair(
    cluster: Scenario, folder: Path, wrong: Wrong, *strategies: Mapping[str, Any], **sections: Any
) -> Iterator[Repair]:
    """A run with these strategies. Cooldowns are off and young pods may move: nothing but the strategies themselves
    keeps a replacement where it has landed."""
    with a_stage(cluster, folder, **{"strategies": list(strategies), "limits": SEVERAL_AT_ONCE, **sections}) as stage:
        ready: dict[str, set[str]] = {}
        for pod in running(stage.lab):
            ready.setdefault(service_name(pod), set()).update(uids([pod]) if is_ready(pod) else ())
        yield Repair(stage=stage, wrong=wrong, ready_at_start=ready)


def strategy(name: str, **args: Any) -> dict[str, Any]:
    """An entry of the policy's `strategies`."""
    return {"name": name, "args": args}
