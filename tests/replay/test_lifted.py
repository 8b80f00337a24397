"""A run for each rule of a policy, with it alone lifted."""

from pathlib import Path

import pytest
import yaml

from rebalancer.replay.comparison.lifted import LIFTS, lifted

POLICIES = sorted((Path(__file__).parents[2] / "policies").glob("*.yaml"))


@pytest.mark.parametrize("path", POLICIES, ids=[path.stem for path in POLICIES])
def test_every_variant_is_a_policy_that_differs_and_restricts_less(path: Path) -> None:
    made = {each.label: each.policy for each in lifted(path.read_bytes(), source=path.name)}
    assert "limits.perCycle lifted" in made
    assert len({id(each) for each in made.values()}) == len(made)
    if "limits.pool lifted" in made:
        policy = made["limits.pool lifted"]
        assert (policy.limits.pool.in_flight, policy.limits.pool.evictions) == (None, ())
        assert all(pool.limits is None for pool in policy.pools)


def test_a_rule_that_the_policy_does_not_have_is_left_out() -> None:
    balanced = next(path for path in POLICIES if path.stem == "balanced")
    document = yaml.safe_load(balanced.read_text())
    labels = [each.label for each in lifted(balanced.read_bytes(), source="p.yaml")]
    assert "windows lifted" not in labels
    document["windows"] = {"cluster": [{"kind": "Deny", "schedule": "0 9 * * *", "duration": "1h"}]}
    document["planner"] = {"worth": "Aggressive"}
    labels = [each.label for each in lifted(yaml.safe_dump(document).encode(), source="p.yaml")]
    assert "windows lifted" in labels
    assert "planner.worth lifted" not in labels


def test_every_lift_names_its_setting() -> None:
    for each in LIFTS:
        assert all(".".join(path).startswith(each.rule) for path in each.values)
