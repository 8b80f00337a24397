"""Strategies of others: the example of the page runs, and whatever a plugin does, nobody else suffers from it."""

# ruff: noqa: E501 (a table of wrong answers is read row by row)

import re
import sys
import textwrap
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rebalancer.cli.common import parse_policy
from rebalancer.model.errors import ConfigError
from rebalancer.model.reason import Reason
from rebalancer.strategies.external.plugins import plugin
from tests.builders import (
    a_budget,
    a_node,
    a_pod,
    a_policy,
    carry_out,
    cluster,
    planner_for,
    replicas,
    usage_of,
)
from tests.planner.builders.plans import ANY_REPLICAS, heavy, single

PAGE = Path(__file__).parents[2] / "docs" / "contributing" / "add-a-strategy.md"
QUIET = "example.com/quiet"

Install = Callable[..., None]


def page_block(language: str) -> str:
    (text,) = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), flags=re.S)
    return str(text)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Puts a module and its entry points on the path, as an installed distribution is there."""
    modules: list[str] = []

    def put(source: str, names: dict[str, str], module: str = "their_strategy") -> None:
        (tmp_path / f"{module}.py").write_text(source)
        info = tmp_path / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        lines = "".join(f"{name} = {target}\n" for name, target in names.items())
        (info / "entry_points.txt").write_text(f"[rebalancer.strategies]\n{lines}")
        modules.append(module)

    monkeypatch.syspath_prepend(str(tmp_path))
    plugin.cache_clear()
    yield put
    plugin.cache_clear()
    for module in modules:
        sys.modules.pop(module, None)


# ---- the example of the page


@pytest.fixture
def quiet_nodes(install: Install) -> None:
    project = tomllib.loads(page_block("toml"))["project"]
    install(page_block("python"), project["entry-points"]["rebalancer.strategies"], module="quiet_nodes")


def test_the_test_of_the_page_passes(quiet_nodes: None) -> None:
    names: dict[str, Any] = {}
    exec(page_block("py"), names)
    names["test_a_pod_leaves_the_node_with_the_label"]()


def quiet_policy(**fields: Any) -> Any:
    return a_policy(strategies=yaml.safe_load(page_block("yaml"))["strategies"], **fields)


NODES = [
    a_node("loud", labels={"pool": "general", QUIET: "yes"}),
    a_node("other", labels={"pool": "elsewhere", QUIET: "yes"}),
    *(a_node(name) for name in ("a", "b")),
]


def test_the_example_of_the_page_finds_pods_on_marked_nodes_of_its_pools(quiet_nodes: None) -> None:
    pods = [heavy("loud"), heavy("other"), single("two", "loud"), single("one", "loud"), single("far", "other")]
    snapshot = cluster(NODES, pods)
    usage = usage_of(snapshot, NODES, pods)
    outcome = carry_out(planner_for(snapshot, usage, quiet_policy(**ANY_REPLICAS)), snapshot)
    assert [(pod, there) for pod, there, _ in outcome.moves] == [("one", "loud"), ("two", "loud")]
    assert {where for _, _, where in outcome.moves} <= {"a", "b"}


def test_all_safety_holds_for_the_example(quiet_nodes: None) -> None:
    pods = [
        a_pod("alone", "loud", owner="alone", used=100.0),
        a_pod("bare", "loud", used=100.0),
        *replicas("kept", {"loud": 2, "a": 2}, used=100.0),
        *replicas("young", {"loud": 1, "a": 1}, used=100.0, age=60.0),
        heavy("loud"),
        heavy("other"),
        a_pod("gone", "loud", owner="leaving", terminating=True, used=0.0),
        *replicas("free", {"loud": 1, "a": 1}, used=100.0),
    ]
    snapshot = cluster(NODES, pods, budgets=[a_budget("kept", "kept", 0)])
    usage = usage_of(snapshot, NODES, pods)
    outcome = carry_out(planner_for(snapshot, usage, quiet_policy()), snapshot)
    assert outcome.pods == ["free-0"]
    assert outcome.refusals == {
        "alone": Reason.MIN_REPLICAS, "bare": Reason.BARE_POD, "kept-0": Reason.BUDGET_EXHAUSTED,
        "kept-1": Reason.BUDGET_EXHAUSTED, "young-0": Reason.TOO_YOUNG, "agent-loud": Reason.DAEMONSET_POD,
    }  # fmt: skip


def test_a_pod_of_the_example_lands_on_no_node_that_is_warm_or_marked(quiet_nodes: None) -> None:
    nodes = [NODES[0], a_node("warm", used=10_350.0), a_node("quiet", labels={"pool": "general", QUIET: ""})]
    pods = replicas("web", {"loud": 1, "warm": 1}, used=100.0)
    snapshot = cluster(nodes, pods)
    usage = usage_of(snapshot, nodes, pods)
    outcome = carry_out(planner_for(snapshot, usage, quiet_policy()), snapshot)
    assert outcome.pods == []
    assert set(outcome.refusals) == {"web-0"}


def test_the_policy_of_the_page_is_checked_with_the_arguments_of_its_own_model(quiet_nodes: None) -> None:
    for args, message in (
        ("{label: example.com/quiet}", None),
        ("{lable: x}", "p.yaml:8: strategies[0].args.lable: unknown field, did you mean label?"),
        ("{label: ''}", "p.yaml:8: strategies[0].args.label: expected text that is not empty"),
        ("{label: a, namespaces: {include: 5}}", "p.yaml:8: strategies[0].args.namespaces.include: expected a list, got 5: write [5]"),
    ):  # fmt: skip
        text = policy_text("example.com/QuietNodes", f"    args: {args}\n")
        if message is None:
            assert parse_policy(text.encode(), path=Path("p.yaml")).strategies[0].name == "example.com/QuietNodes"
            continue
        with pytest.raises(ConfigError) as caught:
            parse_policy(text.encode(), path=Path("p.yaml"))
        assert message in str(caught.value).splitlines()


# ---- installed or not


def policy_text(name: str, more: str = "") -> str:
    return textwrap.dedent(
        f"""\
        apiVersion: rebalancer.dev/v1alpha1
        kind: RebalancerPolicy
        cluster: c
        pools: [{{name: general, selector: {{}}}}]
        usage: {{source: MetricsServer}}
        strategies:
          - name: {name}
        """
    ) + more  # fmt: skip


def refused(name: str, more: str = "") -> str:
    with pytest.raises(ConfigError) as caught:
        parse_policy(policy_text(name, more).encode(), path=Path("p.yaml"))
    (line,) = str(caught.value).splitlines()
    return line


SOURCE = "def find(view):\n    raise NotImplementedError\n"


def test_a_plugin_that_is_not_installed_is_one_line_that_names_those_that_are(install: Install) -> None:
    install(SOURCE, {"a.example/One": "their_strategy", "b.example/Two": "their_strategy:find"})
    assert refused("c.example/Three") == (
        "p.yaml:7: strategies[0].name: expected a strategy that is installed, got c.example/Three; "
        "installed: a.example/One, b.example/Two"
    )


def test_without_any_plugin_the_group_is_named() -> None:
    plugin.cache_clear()
    assert refused("c.example/Three").endswith("nothing is installed in the group rebalancer.strategies")


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("import nothing_like_it\n", "their_strategy", "can't be loaded: ModuleNotFoundError: No module named 'nothing_like_it' (their_strategy.py:1)"),
        ("raise SystemExit(3)\n", "their_strategy", "can't be loaded: SystemExit: 3 (their_strategy.py:1)"),
        ("def find(:\n", "their_strategy", "can't be loaded: SyntaxError: "),
        ("x = 1\n", "their_strategy", "expected a function find(view)"),
        ("x = 1\n", "their_strategy:y", "can't be loaded: AttributeError: "),
        (SOURCE + "Args = dict\n", "their_strategy", "expected Args to be a pydantic model"),
    ],
)  # fmt: skip
def test_a_plugin_that_cannot_be_used_is_one_line(install: Install, source: str, target: str, message: str) -> None:
    install(source, {"a.example/Broken": target})
    line = refused("a.example/Broken")
    assert line.startswith(f"p.yaml:7: strategies[0].name: a.example/Broken ({target}) ") or "a.example/Broken" in line
    assert message in line


def test_two_installed_under_one_name_are_refused(install: Install) -> None:
    install(SOURCE, {"a.example/Same": "one_strategy"}, module="one_strategy")
    install(SOURCE, {"a.example/Same": "two_strategy"}, module="two_strategy")
    assert "expected one strategy a.example/Same, installed are one_strategy, two_strategy" in refused("a.example/Same")


def test_arguments_for_a_plugin_that_takes_none_are_a_mistake(install: Install) -> None:
    install(SOURCE, {"a.example/Plain": "their_strategy"})
    assert "strategies[0].args.x: unknown field" in refused("a.example/Plain", "    args: {x: 1}\n")


def test_only_plugins_that_the_policy_names_are_imported(install: Install) -> None:
    install(
        "raise RuntimeError('nobody asked for me')\n", {"a.example/Other": "other_strategy"}, module="other_strategy"
    )
    install(SOURCE, {"a.example/Named": "their_strategy"})
    parse_policy(policy_text("a.example/Named").encode(), path=Path("p.yaml"))
    assert "their_strategy" in sys.modules
    assert "other_strategy" not in sys.modules
