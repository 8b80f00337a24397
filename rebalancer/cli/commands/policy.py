"""`rebalancer policy`: validate, show and write policy files, print their JSON Schema, import a DeschedulerPolicy."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rebalancer.cli.common import read_file, read_policy, say, shown_path, unknown, write_file
from rebalancer.cli.invocation import TABLES, Invocation, options
from rebalancer.cli.proposing import ClusterOption, PrometheusOption, proposed_policy
from rebalancer.model.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rebalancer.cli.output.formats import Shown
    from rebalancer.policy.descheduler.folder import ManifestOutcome
    from rebalancer.policy.descheduler.importer import Imported
    from rebalancer.policy.descheduler.notes import Difference

app = typer.Typer(help="Validate, show, write and import policy files.", no_args_is_help=True)


@app.command()
def validate(
    paths: Annotated[list[Path] | None, typer.Argument(metavar="[FILE]...", help="Policy files.")] = None,
    policy: Annotated[
        list[Path] | None,
        typer.Option(
            "--policy",
            "-f",
            envvar="REBALANCER_POLICY",
            help="Path to a policy file, a ConfigMap or Helm values with one; - for stdin. Repeat it for several.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Validate policy files. Each mistake is one line with file, line, field and the expected value."""
    from rebalancer.policy.modes import parts_in

    files = [*(paths or policy or [])]
    if not files:
        raise ConfigError("expected a policy file: rebalancer policy validate -f FILE")
    for path in files:
        read = read_policy(path)
        pools, strategies = len(read.pools), len(read.strategies)
        ok = f"{shown_path(path)}: ok: cluster {read.cluster}, pools: {pools}, strategies: {strategies}"
        held = (("dry run in", parts_in(read, "DryRun")), ("approval needed in", parts_in(read, "Approve")))
        say(", ".join([ok, *(f"{what} {parts}" for what, parts in held if parts)]))


@app.command()
@options("policy", *TABLES)
def show(invocation: Invocation) -> None:
    """Show every value in force, and where it comes from.

    That is a line of the file, or the default.
    """
    from rich.text import Text

    from rebalancer.cli.output.formats import Shown
    from rebalancer.cli.output.tables import HEADS, Screen, print_paragraph
    from rebalancer.policy.effective import effective_values
    from rebalancer.policy.source import policy_in

    source = shown_path(invocation.policy_path)
    data = policy_in(read_file(invocation.policy_path), source=source)
    values = effective_values(invocation.policy, data, source=source)

    def draw(screen: Screen) -> None:
        for each in values:
            begins = "default" if each.line is None else f"line {each.line}"
            print_paragraph(screen, Text(f"{begins:8}", style=HEADS), f"{each.field}: {each.shown}")

    document = {
        "policy": source,
        "values": [{"field": each.field, "value": each.value, "line": each.line} for each in values],
    }
    invocation.show(lambda: Shown(document=document, draw=draw, rows="values"))


@app.command()
@options("kubeconfig", "context")
def init(
    invocation: Invocation,
    prometheus: PrometheusOption = None,
    cluster: ClusterOption = "my-cluster",
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="File to write instead of stdout; it must not exist yet.")
    ] = None,
) -> None:
    """Write a first policy for this cluster, with comments.

    It has the pools of the cluster by their nodes' labels, and the queries that its Prometheus answers. Changes
    nothing in the cluster.
    """
    if file is not None and file.exists():
        raise ConfigError(f"--file {file}: exists already: expected a new file")
    made = proposed_policy(invocation, prometheus, cluster=cluster, command="rebalancer policy init")
    if file is None:
        typer.echo(made.text, nl=False)
    else:
        write_file(file, made.text, option="--file")
        say(f"{file}: written; next: rebalancer doctor -f {file}, then rebalancer plan -f {file}")
    if not made.has_usage:
        say(f"{made.url}: no usage found: `rebalancer doctor` says what is missing")


@app.command()
def example(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Name of the example.")] = None,
) -> None:
    """Print a policy that ships with the program, or list all."""
    from rebalancer.bootstrap.process.paths import shipped
    from rebalancer.cli.output.tables import Screen, print_paragraph

    there = {path.stem: path for path in sorted(shipped("policies").glob("*.yaml"))}
    if name is None:
        screen = Screen()
        for each, path in there.items():
            print_paragraph(screen, f"{each:12}", _summary(path.read_text(encoding="utf-8")))
        return
    if name not in there:
        raise unknown("example", name, there)
    typer.echo(there[name].read_text(encoding="utf-8"), nl=False)


def _summary(text: str) -> str:
    """The first sentence of an example's comment, without its name."""
    comment = " ".join(line.removeprefix("# ") for line in text.splitlines())
    return comment.partition(": ")[2].partition(". ")[0] + "."


@app.command()
def schema() -> None:
    """Print the JSON Schema of policy files, for editors."""
    from rebalancer.policy.schema.policy import policy_schema

    sys.stdout.write(json.dumps(policy_schema(), indent=2) + "\n")


@app.command("import")
@options(*TABLES)
def import_(
    invocation: Invocation,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="PATH",
            help="A manifest with a DeschedulerPolicy, descheduler/v1alpha2; - for stdin; or a folder.",
            show_default=False,
        ),
    ],
    cluster: Annotated[str | None, typer.Option(help="Name of the cluster.", show_default=False)] = None,
    prometheus_url: Annotated[
        str | None,
        typer.Option(help="URL of Prometheus, instead of the one in the DeschedulerPolicy.", show_default=False),
    ] = None,
) -> None:
    """Convert a DeschedulerPolicy of kubernetes-sigs/descheduler.

    It is a file of its own, or inside a ConfigMap, Helm values, a HelmRelease or an Application.

    Prints the policy on stdout and its differences, with reasons, on stderr. With `-o json` both are on stdout.
    Of a folder, prints a table with the outcome of each file; the exit code is 4 if one is refused.
    """
    from rebalancer.policy.descheduler.folder import REFUSED
    from rebalancer.policy.descheduler.importer import import_policy
    from rebalancer.policy.descheduler.manifests import only_policy_in

    if file.is_dir():
        outcomes = _outcomes(file, cluster, prometheus_url)
        invocation.show(lambda: _shown_folder(outcomes))
        if refused := sum(each.outcome == REFUSED for each in outcomes):
            raise ConfigError(f"{file}: expected manifests that can be imported, got {refused} that can't: see REASON")
        return
    source = shown_path(file)
    found = only_policy_in(read_file(file), source=source)
    made = import_policy(
        found.data, source=source, cluster=cluster, prometheus_url=prometheus_url, interval=found.interval
    )
    invocation.show(lambda: _shown_import(made, found.form))


def _shown_import(made: "Imported", form: str) -> "Shown":
    from rebalancer.cli.output.formats import Shown
    from rebalancer.cli.output.tables import UNKNOWN, Screen, plain_table

    def draw(_: Screen) -> None:
        sys.stdout.write(made.text)
        sys.stdout.flush()
        table = plain_table("Differences", "LINE", "FIELD", "", "POLICY FIELD", "REASON")
        for each in made.differences:
            line = str(each.line) if each.field else ""
            table.add_row(line, each.field or UNKNOWN, each.kind, each.ours or UNKNOWN, each.why)
        Screen(stderr=True, markup=False).print(table)

    document = {"form": form, "policy": made.text, "differences": _documents(made.differences)}
    return Shown(document=document, draw=draw, rows="differences")


def _documents(differences: "Sequence[Difference]") -> list[dict[str, object]]:
    return [
        {
            "field": each.field or None,
            "line": each.line if each.field else None,
            "kind": each.kind,
            "policyField": each.ours or None,
            "why": each.why,
        }
        for each in differences
    ]


def _outcomes(folder: Path, cluster: str | None, prometheus_url: str | None) -> "list[ManifestOutcome]":
    """Of each manifest below the folder. Raises ConfigError where there is none."""
    from rebalancer.policy.descheduler.folder import SUFFIXES, import_manifest

    paths = sorted(
        path
        for path in folder.rglob("*")
        if path.suffix in SUFFIXES and path.is_file() and not _is_hidden(path.relative_to(folder))
    )
    if not paths:
        raise ConfigError(f"{folder}: expected a folder with manifests: {', '.join(sorted(SUFFIXES))}")
    return [
        each
        for path in paths
        for each in import_manifest(
            read_file(path), source=str(path.relative_to(folder)), cluster=cluster, prometheus_url=prometheus_url
        )
    ]


def _shown_folder(outcomes: "Sequence[ManifestOutcome]") -> "Shown":
    from rebalancer.cli.output.formats import Shown
    from rebalancer.cli.output.tables import UNKNOWN, Screen, plain_table

    def draw(screen: Screen) -> None:
        heads = ("FILE", "LINE", "FORM", "OUTCOME", "STRATEGIES", "DIFFERENCES", "TO DECIDE", "REASON")
        table = plain_table("Manifests", *heads)
        for each in outcomes:
            counts = (str(len(each.differences)), str(each.to_decide)) if each.policy else ("", "")
            line, strategies = "" if each.line is None else str(each.line), ", ".join(each.strategies)
            table.add_row(each.file, line, each.form or UNKNOWN, each.outcome, strategies or UNKNOWN, *counts, each.why)
        screen.print(table)

    files = [
        {
            "file": each.file,
            "line": each.line,
            "form": each.form or None,
            "outcome": each.outcome,
            "strategies": list(each.strategies),
            "why": each.why or None,
            "policy": each.policy or None,
            "differences": _documents(each.differences),
        }
        for each in outcomes
    ]
    return Shown(document={"files": files}, draw=draw, rows="files")


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)
