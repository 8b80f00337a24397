"""What a real kube-scheduler decided, replayed: no program is needed. `tests/real/programs.py` records anew."""

from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from rebalancer.model.cluster.scheduler import DEFAULT_WEIGHTS, FILTERS
from tests.real.oracles.agreement import Agreement, compare
from tests.real.readers.decisions import DECISIONS, Recording

FILES = sorted(DECISIONS.glob("*.json.gz"))


@cache
def recording_in(path: Path) -> Recording:
    return Recording.read(path)


@cache
def agreement_on(path: Path) -> Agreement:
    return compare(recording_in(path))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.split(".")[0])
def test_every_recorded_decision_is_the_models_own(path: Path) -> None:
    agreement = agreement_on(path)
    assert not agreement.disagreements, "\n".join(agreement.disagreements)
    assert agreement.chosen_is_best == agreement.same_ties == agreement.placed > 20
    assert agreement.same_feasible == agreement.decisions
    assert agreement.same_scores == agreement.scores > 1000


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.split(".")[0])
def test_decisions_stay_right_while_landings_are_put_on_the_board(path: Path) -> None:
    agreement = compare(recording_in(path), longest=15)
    assert not agreement.disagreements, "\n".join(agreement.disagreements)
    assert agreement.decisions == agreement_on(path).decisions


def test_every_filter_and_every_score_is_in_the_recordings() -> None:
    plugins: Counter[str] = Counter()
    refusals: Counter[str] = Counter()
    for path in FILES:
        plugins += agreement_on(path).plugins
        refusals += agreement_on(path).refusals
    assert set(DEFAULT_WEIGHTS) <= set(plugins)
    # a pod that names its node never comes to the scheduler; the recorded clusters have no CSI drivers
    assert set(FILTERS) - {"NodeName", "NodeVolumeLimits"} <= set(refusals)
    assert sum(agreement_on(path).sampled for path in FILES) > 5
