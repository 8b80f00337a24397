"""Writes docs/reference from the code: policy fields, reasons, commands, metrics, the schemas of documents. And of
the Helm chart its README.md and the schema by which it checks policies.

`--check` only compares.
"""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

os.environ.update(COLUMNS="100", TERMINAL_WIDTH="100", NO_COLOR="1")

from chart import CHART, chart_page

from rebalancer.cli.main import app
from rebalancer.cli.output.plan_file import plan_file_schema
from rebalancer.cli.output.replay import replay_schema
from rebalancer.cli.output.report_document import report_schema
from rebalancer.model.reason import Reason
from rebalancer.policy.schema.policy import policy_schema
from rebalancer.policy.schema.types import DURATION_PATTERN
from rebalancer.web.metrics import described

REFERENCE = Path(__file__).parent / "reference"
SCHEMA = policy_schema()
NOTE = "<!-- Made by `make docs`. Don't edit. -->\n\n"


def policy_page() -> str:
    """Every section and field of the policy file, strategies first."""
    sections = SCHEMA["$defs"]
    strategies = [_name_of(each) for each in SCHEMA["properties"]["strategies"]["items"]["oneOf"]]
    told = {*strategies, *(_args_of(sections[name]) for name in strategies)}
    out = "# Policy file\n\nEditors can use the JSON Schema that `rebalancer policy schema` prints.\n"
    out += _section("RebalancerPolicy", SCHEMA) + _strategies({name: sections[name] for name in strategies}, sections)
    return out + "".join(_section(name, section) for name, section in sections.items() if name not in told)


def _section(name: str, section: dict[str, Any]) -> str:
    return f"\n## {name}\n\n{_line(section.get('description', ''))}\n\n{_table(section)}"


def _table(section: dict[str, Any]) -> str:
    out = "| field | type | default | |\n|---|---|---|---|\n"
    required = section.get("required", [])
    for field, spec in section["properties"].items():
        default = "required" if field in required else _default(spec)
        out += f"| `{field}` | {_type(spec)} | {default} | {_line(_description(spec))} |\n"
    return out


def _description(spec: dict[str, Any]) -> str:
    """Of a field; pydantic leaves out one that is that of its section."""
    section = SCHEMA["$defs"].get(_name_of(spec), {})
    return str(spec.get("description", section.get("description", "")))


def _strategies(strategies: dict[str, dict[str, Any]], sections: dict[str, Any]) -> str:
    """What all have in common, once, and the arguments of each."""
    names = ", ".join(f"[{name}](#{name.lower()})" for name in strategies)
    of_all = next(iter(strategies.values()))["properties"]
    shared = {
        "name": {"type": "string", "description": "Name of the strategy."},
        "args": {"type": "object", "description": "Arguments, see below."},
        **{field: spec for field, spec in of_all.items() if field not in ("name", "args")},
    }
    out = f"\n## Strategies\n\nEach entry of `strategies` enables one: {names}.\n\n"
    out += _table({"properties": shared, "required": ["name"]})
    for name, section in strategies.items():
        arguments = sections.get(_args_of(section), {})
        out += f"\n### {name}\n\n{_line(section['description'])}\n"
        if "args" in section.get("required", []):
            out += "It needs `args`.\n"
        if arguments:
            out += f"\n{_table(arguments)}"
        else:
            fields = {field: section["properties"][field] for field in ("name", "args")}
            out += f"\n{_table({'properties': fields, 'required': ['name']})}"
    return out


def _args_of(strategy: dict[str, Any]) -> str:
    return _name_of(strategy["properties"]["args"])


def _name_of(spec: dict[str, Any]) -> str:
    return str(spec.get("$ref", "")).rsplit("/", 1)[-1]


def _type(spec: dict[str, Any]) -> str:
    if "$ref" in spec:
        name = spec["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{name.lower()})"
    if "oneOf" in spec:
        return "[a strategy](#strategies)"
    if "anyOf" in spec:
        return " or ".join(_type(each) for each in spec["anyOf"] if each.get("type") != "null")
    if "const" in spec:
        return f"`{spec['const']}`"
    if "enum" in spec:
        return ", ".join(f"`{each}`" for each in spec["enum"])
    if spec.get("pattern") == DURATION_PATTERN:
        return "duration"
    kind = str(spec.get("type", "any"))
    if kind == "array":
        return f"list of {_type(spec.get('items', {}))}"
    if kind == "object" and isinstance(spec.get("additionalProperties"), dict):
        return f"map to {_type(spec['additionalProperties'])}"
    if kind in ("number", "integer") and "minimum" in spec:
        top = f"..{spec['maximum']:g}" if "maximum" in spec else " or more"
        return f"{kind}, {spec['minimum']:g}{top}"
    return kind


def _default(spec: dict[str, Any]) -> str:
    value = spec.get("default")
    if value is None or value in ({}, []) or isinstance(value, dict):
        return "-"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def reasons_page() -> str:
    """Every reason code with its sentence and what lifts it."""
    out = (
        "# Reasons\n\nWhy a pod was not evicted or a node left alone. Tables, JSON and the database use the same "
        "codes.\n\nA refusal is judged in every cycle by the cluster, the policy and the ledger as they are then. It "
        "ends in the first cycle after what lifts it. Where only time lifts it, its message states when.\n\n"
        "| code | meaning | lifted by |\n|---|---|---|\n"
    )
    return out + "".join(
        f'| <a id="{code.lower()}"></a>`{code}` | {code.sentence} | {code.lifted_by} |\n' for code in Reason
    )


def actors_page() -> str:
    """The matrix by actor of the tests."""
    from tests.faults.actors import ACTORS

    out = (
        "# Actors\n\nWhat each of these can do at worst to the pods of others and to the daemon, and what bounds it. "
        "Each row is held by tests; `make faults` runs them with a verdict for each, beside the [faults](faults.md). "
        "Secrets, and users who write the policy: [threat model](threat-model.md).\n"
    )
    for actor, powers in ACTORS.items():
        out += f"\n## {actor}\n\n| does | costs others at worst | bounded by |\n|---|---|---|\n"
        out += "".join(f"| {each.name} | {each.worst} | {each.bound} |\n" for each in powers)
    return out


def commands_page() -> str:
    """The help of every command."""
    out = "# Commands\n"
    for name, command in _commands(typer.main.get_command(app), "rebalancer"):
        context = typer.Context(
            command, info_name=name, terminal_width=100, max_content_width=100, help_option_names=["-h", "--help"]
        )
        out += f"\n## {name}\n\n```\n{command.get_help(context).strip()}\n```\n"
    return out


def _commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    yield name, command
    for sub, inner in sorted(getattr(command, "commands", {}).items()):
        yield from _commands(inner, f"{name} {sub}")


def metrics_page() -> str:
    """What the daemon's /metrics shows."""
    out = (
        "# Metrics\n\nExposed by the daemon at `/metrics`. No label holds the name of a pod or node, and the number of "
        "services in labels is limited. Counters "
        "also have `_created`; the standard `process_` and `python_` metrics are included.\n\n"
        "| metric | type | labels | |\n|---|---|---|---|\n"
    )
    return out + "".join(
        f"| `{each.name}` | {each.type} | {', '.join(f'`{label}`' for label in each.labels) or '-'} | {each.help} |\n"
        for each in sorted(described())
    )


LAST_RUNS = """Last runs, seed 1, on two busy cores (2026-11-26):

| command | result |
|---|---|
| `make soak ARGS="--failovers 0 --together 0"` | held in 403 s: 485 simulated minutes, 1,440 faults of 48 kinds, 291 evictions, 8 calls that arrived after their refund and were counted again |
| `make soak ARGS="--hours 0"` | held in 251 s: 1,000 failovers, 467 evictions, 42 calls under way at a failover, 808 leaders that stood by |
| `make kills` | held in 675 s on SQLite and 839 s on PostgreSQL: 200 kills each, 57 and 53 of them in a call, 313 and 286 evictions |
| `make fuzz` | held in 475 s: 100,000 objects, 239,271 events, 90 cycles, 262 MiB at the end |
| `make mutants` | 210 of 211 caught by their own rows (82), 5,636 s of tests beside other work |
"""  # noqa: E501


def faults_page() -> str:
    """The fault matrix of the tests."""
    from tests.faults.matrix import MATRIX
    from tests.faults.readers import read_mutants
    from tests.faults.scenarios.live import FAULT_SECONDS, KINDS, RECOVERY_SECONDS, SIDES

    out = (
        "# Faults\n\nEach row is held by tests; a parametrized one has many cases. `make faults` runs them with a "
        "verdict for each. Real servers that are missing are skipped. Then it puts a running daemon through the faults "
        "of [recovery](#recovery).\n\n`make soak` lets three practice clusters with "
        "two replicas each share a database for eight simulated hours, with a random fault in each cluster every "
        "minute, and then loses 1,000 leaders. At the end the ledger and the clusters must agree on every eviction.\n"
        "\n`make kills` ends a running daemon with SIGKILL at 200 random moments on SQLite and at 200 on PostgreSQL: "
        "the same must hold. `make fuzz` lets 100,000 odd objects, which a real API server accepts, come to a running "
        "daemon, change and go: it must not end, lose a watch, or evict a pod that it would not have evicted without "
        "them. `make mutants` breaks what each row promises, one place after the other: the row's own tests must find "
        f"it. The list of {len(read_mutants())} breaks is `tests/faults/data/mutants.toml`.\n\n{LAST_RUNS}"
    )
    for title, faults in MATRIX.items():
        out += (
            f"\n## {title}\n\n| fault | what happens | ends after the fault | seen | to do |\n|---|---|---|---|---|\n"
        )
        out += "".join(
            f"| {each.name} | {each.outcome} | {each.ends} | {each.seen} | {each.action} |\n" for each in faults
        )
    out += (
        "\n## Recovery\n\nA daemon whose strategy has an interval of 10 s is put through each of these faults for "
        f"{FAULT_SECONDS:g} s (slow answers longer). A fault is held when the daemon evicts nothing unasked, and has "
        f"ended a complete cycle as a ready leader within {RECOVERY_SECONDS:g} s of the fault's end. `make faults` "
        "prints the measured time. Evictions are tried during the faults of their calls; afterwards the ledger must "
        "count exactly those that happened. A daemon that lost its lease stands by and leads again, as the same "
        "process.\n\n"
        "With `KUBEBUILDER_ASSETS` set to a folder with `kube-apiserver` and `etcd`, all but those of Prometheus, the "
        "daemon and the database are repeated with a real API server.\n\n"
        f"Where: {', '.join(SIDES)}. Each with:\n\n"
    )
    out += "".join(f"- {kind}\n" for kind in KINDS)
    return out + (
        "\nAnd the daemon: SIGKILL, SIGKILL during an alert, SIGTERM, SIGSTOP and SIGCONT. The database: away, a "
        "commit is lost, the answer of a commit is lost.\n\n"
        "## A proxy of your own\n\nThe proxy that makes these faults runs alone too, in front of any API server or "
        "Prometheus:\n\n```sh\n"
        "python3 -m tests.faults.programs.proxy --to https://10.0.0.1:6443 --ca ca.crt --port 6444 \\\n"
        "  --kind '503, Retry-After of an hour' --requests /leases --after 60 --for 40\n```\n\n"
        "Give the daemon `http://127.0.0.1:6444` as its server, with the credentials that the real one expects. "
        "`--kind list` prints the kinds, `--requests` is a regular expression over `METHOD /path?query`, and `--share` "
        "hits a part of the requests. In tests use `fault_proxy` of `tests/faults/servers/proxy.py`: `begin` and `end` "
        "switch a `ProxyFault`.\n"
    )


EXPECTED = {
    DURATION_PATTERN: "a duration such as 90s, 5m, 1h30m or 8d",
    r"^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$": "a name such as prod-eu-1: lower-case letters, digits, - and .",
    r"^([1-9]\d?|100)%$": "a whole number or a percentage such as 10%",
    r"^\d{1,3}(\.\d{1,6})?%$": "a number or a percentage such as 75%",
    r"^https?://\S+$": "a URL such as http://prometheus.monitoring.svc:9090",
}
"""Pattern of the policy's schema -> what the chart's message names in its place."""


def chart_policy_schema() -> str:
    """The policy's schema by which the chart's templates check policies.

    Patterns that have words carry them as `expected`; texts that only editors show are left out. Raises ValueError for
    a pattern that no field has.
    """
    text = json.dumps(_bare(SCHEMA), indent=1, sort_keys=True) + "\n"
    if stale := [pattern for pattern, words in EXPECTED.items() if json.dumps(words) not in text]:
        raise ValueError(f"EXPECTED: no field of the policy has the pattern {' '.join(stale)}")
    return text


def _bare(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_bare(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    out = {key: _bare(value) for key, value in schema.items() if key not in ("title", "description", "default")}
    for key in ("properties", "$defs"):
        if key in schema:
            out[key] = {name: _bare(value) for name, value in schema[key].items()}
    pattern = schema.get("pattern")
    return out | ({"expected": EXPECTED[pattern]} if isinstance(pattern, str) and pattern in EXPECTED else {})


def main() -> None:
    """Write the pages, or with --check fail when one is out of date."""
    pages = {
        "policy.md": NOTE + policy_page(),
        "reasons.md": NOTE + reasons_page(),
        "commands.md": NOTE + commands_page(),
        "metrics.md": NOTE + metrics_page(),
        "../operations/faults.md": NOTE + faults_page(),
        "../operations/actors.md": NOTE + actors_page(),
        os.path.relpath(CHART / "README.md", REFERENCE): NOTE + chart_page(),
        os.path.relpath(CHART / "files" / "policy.schema.json", REFERENCE): chart_policy_schema(),
        "report.schema.json": json.dumps(report_schema(), indent=2) + "\n",
        "plan-file.schema.json": json.dumps(plan_file_schema(), indent=2) + "\n",
        "replay.schema.json": json.dumps(replay_schema(), indent=2) + "\n",
    }
    stale = []
    REFERENCE.mkdir(exist_ok=True)
    for name, text in pages.items():
        path = REFERENCE / name
        if path.exists() and path.read_text() == text:
            continue
        stale.append(name)
        if "--check" not in sys.argv:
            path.write_text(text)
    if stale and "--check" in sys.argv:
        sys.exit(f"docs/reference is out of date: {', '.join(stale)}: run `make docs`")


if __name__ == "__main__":
    main()
