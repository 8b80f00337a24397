"""Sweeps over a policy, the goal, and the frontier."""

import numpy as np
import pytest
import yaml

from rebalancer.model.errors import ConfigError
from rebalancer.model.recordings.replay import ReplayRun
from rebalancer.policy import load_policy
from rebalancer.replay.comparison.variants import Variants, cheapest, frontier, read_goal, variants

POLICY = """\
apiVersion: rebalancer.dev/v1alpha1
kind: RebalancerPolicy
cluster: lab
pools:
  - name: general
    selector: {matchLabels: {pool: general}}
    thresholds: &marks {high: 75, target: 65, low: 55} # a comment
  - name: compute
    selector: {matchLabels: {pool: compute}}
    thresholds: *marks
usage: {prometheus: {url: "http://127.0.0.1:9090"}}
strategies: [{name: LowNodeUtilization}]
limits:
  service: {evictions: [{max: 25%, per: 1h, atLeast: 1}]}
"""
NIGHTS = '[{name: nights, kind: Allow, schedule: "0 22 * * *", duration: 8h}]'
END = 600.0


def swept(*sweeps: str) -> Variants:
    return variants(POLICY.encode(), source="p.yaml", sweeps=sweeps)


def run_of(label: str, *, hot: float, evictions: int, until: float = END) -> ReplayRun:
    """A run over two nodes and two steps; `hot` minutes of its 20."""
    return ReplayRun(
        label=label,
        until=until,
        share=np.full((2, 2), 0.5, dtype=np.float32),
        hot_minutes=np.full((2, 2), hot / 4, dtype=np.float32),
        evictions=(None,) * evictions,  # type: ignore[arg-type]
    )


def test_a_sweep_gives_one_policy_for_each_value() -> None:
    made = swept("pools[0].thresholds.high=70,75,80")
    assert [each.label for each in made.policies] == ["high=70", "high=75", "high=80"]
    assert [each.policy.pools[0].thresholds.high for each in made.policies] == [70, 75, 80]  # type: ignore[union-attr]
    assert made.left_out == ()
    # all else is as in the file
    assert made.policies[1].policy == load_policy(POLICY.encode(), source="p.yaml")


def test_sweeps_multiply_and_the_first_varies_slowest() -> None:
    made = swept("limits.perCycle=5,10", "pools[general].thresholds.high=70,80")
    assert [each.label for each in made.policies] == [
        "perCycle=5, high=70",
        "perCycle=5, high=80",
        "perCycle=10, high=70",
        "perCycle=10, high=80",
    ]


def test_a_pool_is_named_and_what_yaml_aliases_share_stays_as_it_is() -> None:
    policy = swept("pools[general].thresholds.high=80").policies[0].policy
    assert [each.thresholds.high for each in policy.pools] == [80, 75]  # type: ignore[union-attr]


def test_labels_have_as_much_of_the_fields_as_tells_them_apart() -> None:
    made = swept("pools[general].thresholds.high=80", "pools[compute].thresholds.high=85", "windows.cluster=[]")
    assert made.policies[0].label == "pools[general].thresholds.high=80, pools[compute].thresholds.high=85, cluster=[]"


def test_whole_windows_are_values() -> None:
    made = swept(f"windows.cluster=[],{NIGHTS}")
    assert [each.label for each in made.policies] == ["cluster=[]", "cluster=nights"]
    assert [len(each.policy.windows.cluster) for each in made.policies] == [0, 1]


@pytest.mark.parametrize(
    ("sweep", "message"),
    [
        (
            "pools[0].threshold.high=70,75",
            "--sweep pools[0].threshold.high=70: pools[0].threshold: unknown field, did you mean thresholds?",
        ),
        (
            "pools[genral].thresholds.high=70",
            "--sweep pools[genral].thresholds.high: no entry [genral], did you mean [general]?",
        ),
        ("pools[7].thresholds.high=70", "--sweep pools[7].thresholds.high: no entry [7]; known: [general], [compute]"),
        (
            "pools[0].thresholds.high=70,hot",
            "--sweep pools[0].thresholds.high=hot: pools[0].thresholds.high: "
            "expected a percentage between 1 and 100, got 'hot'",
        ),
        (
            "pools[0].thresholds.high=60,70",
            "--sweep pools[0].thresholds.high=60: pools[0].thresholds.target: "
            "expected target < high, got target 65 and high 60",
        ),
        (
            "pools[0].thresholds.high",
            "--sweep pools[0].thresholds.high: expected a field and its values, "
            "such as pools[0].thresholds.high=70,75,80",
        ),
        (
            "limits.pool.evictions[0].max=3",
            "--sweep limits.pool.evictions[0].max: the policy file has no limits.pool.evictions: "
            "write it there first, or give whole lists as values",
        ),
        ("cluster.name=a", "--sweep cluster.name: cluster is a value in the policy file, it has no fields"),
        ("limits.perCycle=5,5", "--sweep limits.perCycle: 5 is given twice"),
        (
            "limits.perCycle=[1",
            "--sweep limits.perCycle: expected YAML values separated by commas, got [1: "
            "write quotes around text with special characters",
        ),
        (
            f"limits.perCycle={','.join(map(str, range(1, 66)))}",
            "--sweep: expected at most 64 policies, got 65: give fewer values",
        ),
    ],
)
def test_a_mistake_in_a_sweep_is_one_line_with_what_to_type(sweep: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        swept(sweep)
    assert str(caught.value) == message
    assert caught.value.exit_code == 4


def test_a_field_in_two_sweeps_is_a_mistake() -> None:
    with pytest.raises(ConfigError, match=r"^--sweep limits\.perCycle: it is in --sweep limits too"):
        swept("limits={perCycle: 3}", "limits.perCycle=5")


def test_a_mistake_in_the_file_has_its_line() -> None:
    with pytest.raises(ConfigError, match=r"^p\.yaml:3: cluster: "):
        variants(POLICY.replace("lab", "My_Lab").encode(), source="p.yaml", sweeps=["limits.perCycle=5"])


def test_combinations_that_are_no_policy_are_left_out_and_named() -> None:
    made = swept("pools[0].thresholds.high=70,80", "pools[0].thresholds.target=60,70")
    assert [each.label for each in made.policies] == ["high=70, target=60", "high=80, target=60", "high=80, target=70"]
    assert made.left_out == (
        "high=70, target=70: pools[0].thresholds.target: expected target < high, got target 70 and high 70",
    )


def test_the_part_to_paste_has_the_swept_fields_only() -> None:
    made = swept(
        "pools[compute].thresholds.high=80", "limits.service.evictions[0].max=10%", "softTaint.mode=Off"
    ).policies[0]
    part = yaml.safe_load(made.part)
    assert part == {
        "pools": [{"name": "compute", "thresholds": {"high": 80}}],
        # its entries have no names, so the list is whole
        "limits": {"service": {"evictions": [{"max": "10%", "per": "1h", "atLeast": 1}]}},
        "softTaint": {"mode": "Off"},
    }
    # in the place of the file's own fields it gives the policy of the run
    pasted = yaml.safe_load(POLICY)
    pasted["pools"][1]["thresholds"] = {**pasted["pools"][1]["thresholds"], "high": 80}
    pasted |= {"limits": part["limits"], "softTaint": part["softTaint"]}
    assert load_policy(yaml.safe_dump(pasted).encode(), source="pasted") == made.policy


def test_the_cheapest_run_that_meets_the_goal_has_the_fewest_evictions_then_minutes() -> None:
    runs = [
        run_of("none", hot=8, evictions=0),
        run_of("few", hot=2, evictions=3),
        run_of("as few", hot=1, evictions=3),
        run_of("many", hot=0, evictions=9),
    ]
    assert cheapest(runs, read_goal("hot<=10%"), end=END) is runs[2]
    assert cheapest(runs, read_goal("hot<=1%"), end=END) is runs[3]
    assert cheapest(runs, read_goal("hot<=1% and evictions<=5"), end=END) is None
    assert cheapest(runs, read_goal("hot-node-hours<=0.02, evictions<=3"), end=END) is runs[2]
    assert cheapest(runs, read_goal("evictions<3"), end=END) is runs[0]


def test_a_run_that_was_interrupted_meets_no_goal() -> None:
    half = run_of("half", hot=0, evictions=0, until=END / 2)
    assert cheapest([half], read_goal("hot<=1%"), end=END) is None
    assert frontier([half], end=END) == []


def test_the_frontier_has_the_runs_that_no_other_beats_in_both() -> None:
    runs = [
        run_of("worse", hot=5, evictions=4),
        run_of("few", hot=4, evictions=3),
        run_of("none", hot=8, evictions=0),
        run_of("twin", hot=4, evictions=3),
        run_of("many", hot=1, evictions=9),
        run_of("more", hot=1, evictions=12),
    ]
    assert [each.label for each in frontier(runs, end=END)] == ["none", "few", "many"]


@pytest.mark.parametrize(
    ("goal", "message"),
    [
        ("hto<=1%", "--goal hto<=1%: unknown figure hto, did you mean hot?"),
        ("cost<=1", "--goal cost<=1: unknown figure cost, known: hot, hot-node-hours, evictions"),
        ("hot<=1", "--goal hot<=1: expected hot as a percentage: write hot<=1%"),
        ("evictions<=3%", "--goal evictions<=3%: expected evictions as a number: write 3"),
        (
            "hot>=1%",
            "--goal hot>=1%: expected bounds such as hot<=1%, hot-node-hours<=40 or evictions<=100, got hot>=1%",
        ),
    ],
)
def test_a_mistake_in_the_goal_is_one_line_with_what_to_type(goal: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_goal(goal)
    assert str(caught.value) == message
