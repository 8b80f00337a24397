"""Options and words that kubectl's users type."""

import csv
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from rebalancer.cli import common
from rebalancer.cli.registry import COMMANDS
from rebalancer.lab import Lab
from rebalancer.policy.metrics_servers import FoundServer
from tests.programs.cli import Result
from tests.programs.in_process import run_here

DEMO = Path(__file__).parents[2] / "policies" / "demo.yaml"


@pytest.fixture(scope="module")
def connected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, ...]]:
    folder = tmp_path_factory.mktemp("habits")
    with Lab.start("demo") as lab, pytest.MonkeyPatch.context() as patch:
        patch.setenv("REBALANCER_HISTORY_DIR", str(folder / "history"))
        policy, kubeconfig = folder / "policy.yaml", lab.write_kubeconfig(folder / "kubeconfig")
        policy.write_text(re.sub(r"url: .*", f"url: {lab.prometheus_url}", DEMO.read_text()))
        database = f"sqlite:///{folder / 'rebalancer.db'}"
        yield ("-f", str(policy), "--kubeconfig", str(kubeconfig), "--database", database)


def refused(*words: str) -> str:
    done = run_here(words)
    assert done.code == 4
    return done.err


def works(*words: str) -> Result:
    done = run_here(words)
    assert done.code == 0, done.err
    return done


# ---- without a cluster


@pytest.mark.parametrize("name", COMMANDS)
def test_minus_h_is_help(name: str) -> None:
    assert works(name, "-h").out == works(name, "--help").out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(shell: str) -> None:
    assert "_REBALANCER_COMPLETE" in works("completion", shell).out


def test_a_shell_gets_the_words_that_may_follow() -> None:
    asked = {"_REBALANCER_COMPLETE": "complete_bash", "COMP_WORDS": "rebalancer pol", "COMP_CWORD": "1"}
    code = "import sys; sys.argv[0] = 'rebalancer'; from rebalancer.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **asked}, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["policy"], done.stderr


def test_every_command_with_a_policy_reads_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "_stdin", DEMO.read_bytes)
    assert "stdin: ok: cluster demo" in works("policy", "validate", "-f", "-").err
    assert "no change windows" in works("windows", "-f", "-").err
    monkeypatch.setattr(common, "_stdin", lambda: b"kind: 1")
    assert refused("windows", "-f", "-").startswith("stdin:1:")


def test_policy_validate_takes_the_file_as_others_do() -> None:
    for words in ((str(DEMO),), ("-f", str(DEMO)), ("--policy", str(DEMO))):
        assert "ok: cluster demo" in works("policy", "validate", *words).err
    assert "policy validate -f FILE" in refused("policy", "validate")


def test_policy_show_says_where_each_value_comes_from() -> None:
    table = works("policy", "show", "-f", str(DEMO)).out
    assert re.search(r"^line \d+ +guards\.minAge: 1m$", table, re.M)
    assert re.search(r"^default +guards\.minReplicas: 2$", table, re.M)
    values = works("policy", "show", "-f", str(DEMO), "-o", "json").document["values"]
    assert {"field": "guards.minReplicas", "value": 2, "line": None} in values


def test_policy_example_prints_what_ships(tmp_path: Path) -> None:
    names = [line.split()[0] for line in works("policy", "example").out.splitlines()]
    assert names == sorted(path.stem for path in DEMO.parent.glob("*.yaml"))
    for name in names:
        (tmp_path / name).write_text(works("policy", "example", name).out)
        assert "ok" in works("policy", "validate", "-f", str(tmp_path / name)).err
    assert "balanced" in refused("policy", "example", "balance")


@pytest.mark.parametrize(
    ("words", "there"),
    [
        (("pause", "pool/gen", "--reason", "x", "-f", str(DEMO)), "general, compute"),
        (("windows", "-n", "shop", "-A", "--services", "-f", str(DEMO)), "-n and -A"),
        (("plan", "-n", "shop", "-A", "-f", str(DEMO)), "-n and -A"),
    ],
)
def test_what_is_not_there_is_refused_without_a_cluster(words: tuple[str, ...], there: str) -> None:
    assert there in refused(*words)


# ---- with the practice cluster


def test_one_document_in_three_formats(connected: tuple[str, ...]) -> None:
    as_json = works("limits", "-o", "json", *connected).document
    assert yaml.safe_load(works("limits", "-o", "yaml", *connected).out) == as_json
    rows = list(csv.DictReader(io.StringIO(works("limits", "-o", "csv", *connected).out)))
    assert [(each["scope"], each["key"], int(each["left"])) for each in rows] == [
        (each["scope"], each["key"], each["left"]) for each in as_json["limits"]
    ]


def test_kinds_stand_before_names_as_for_kubectl(connected: tuple[str, ...]) -> None:
    slashed = works("explain", "node/gen-2", "-o", "json", *connected).document
    assert slashed["node"]["name"] == "gen-2"
    pod = slashed["pods"][0]
    explained = works("explain", "pod/" + pod["pod"], "-n", pod["namespace"], "-o", "json", *connected).document
    assert explained["pod"]["name"] == pod["pod"]


def test_names_that_are_not_there_are_refused_with_those_that_are(connected: tuple[str, ...]) -> None:
    assert "node gen-9: not found; expected one of gen-" in refused("explain", "node/gen-9", *connected)
    assert "namespace shop: pod cart: not found; expected one of cart-" in refused(
        "explain", "pod", "shop/cart", *connected
    )
    assert "namespace shopp: not found; expected one of shop" in refused("plan", "-n", "shopp", *connected)
    assert "namespace shopp: not found; expected one of shop" in refused(
        "windows", "--services", "-n", "shopp", *connected[:4]
    )
    assert "node gen-9: not found" in refused("forecast", "--node", "node/gen-9", *connected)


def test_minus_l_selects_nodes_by_their_labels(connected: tuple[str, ...]) -> None:
    found = json.loads(works("forecast", "-l", "pool=compute", "-o", "json", *connected).out)
    assert {each["node"] for each in found["nodes"]} == {"cmp-1", "cmp-2", "cmp-3", "cmp-4"}
    planned = works("plan", "-l", "pool!=compute", "-o", "json", *connected).document
    assert {each["name"][:3] for each in planned["nodes"]} == {"gen"}
    assert "expected a label selector" in refused("plan", "-l", "pool in", *connected)
    assert "-l pool=nope: no node has these labels" in refused("plan", "-l", "pool=nope", *connected)


def test_minus_l_changes_what_is_printed_and_not_whether_the_plan_is_empty(connected: tuple[str, ...]) -> None:
    cool = ("plan", "-l", "kubernetes.io/hostname=gen-1", "--detailed-exitcode", *connected)
    printed = run_here(cool)
    assert printed.code == 2
    assert "gen-2" not in printed.out
    assert "No hot nodes and no other findings among the selected nodes." in printed.out
    assert "that -l does not select are not shown" in " ".join(printed.out.split())


def test_policy_init_asks_the_cluster_and_its_prometheus(connected: tuple[str, ...], tmp_path: Path) -> None:
    (url,) = re.findall(r"url: (\S+)", Path(connected[1]).read_text())
    made = tmp_path / "first.yaml"
    init = ("policy", "init", "--prometheus", url, "--cluster", "demo", "-f", str(made), *connected[2:4])
    assert "next: rebalancer doctor" in works(*init).err
    assert "exists already" in refused(*init)
    assert "recording rules of kube-prometheus-stack" in made.read_text()
    planned = works("plan", "-f", str(made), *connected[2:], "-o", "json").document
    assert {each["pool"] for each in planned["nodes"]} == {"compute", "general"}
    assert planned["evictions"]


def test_policy_init_finds_prometheus_in_the_cluster_or_says_what_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Lab.start("demo") as lab:
        init = ("policy", "init", "--kubeconfig", str(lab.write_kubeconfig(tmp_path / "config")))
        assert "rebalancer policy init --prometheus http://HOST:PORT" in refused(*init)
        spec = {"ports": [{"name": "http-web", "port": 9090}]}
        meta = {"name": "kps-prometheus", "namespace": "shop", "labels": {"app": "kube-prometheus-stack-prometheus"}}
        lab.cluster.store.create("services", {"metadata": meta, "spec": spec})
        # its name is known in the cluster only
        outside = run_here(init)
        monkeypatch.setattr(FoundServer, "url", lab.prometheus_url)
        inside = works(*init)
    assert outside.code == 5
    assert "http://kps-prometheus.shop.svc:9090" in outside.err
    assert "kubectl -n shop port-forward service/kps-prometheus 9090:9090" in outside.err
    assert "rebalancer policy init --prometheus http://127.0.0.1:9090" in outside.err
    assert f"Prometheus: {lab.prometheus_url} (Service shop/kps-prometheus)" in inside.err
    assert f"url: {lab.prometheus_url}" in inside.out
