"""Advice on Jobs and on requests as tables and documents."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from rich.console import Console
from rich.text import Text

from rebalancer.cli.output.formats import Shown
from rebalancer.cli.output.json import encode
from rebalancer.cli.output.replay import when
from rebalancer.cli.output.tables import UNKNOWN, Screen, plain_table, print_paragraph
from rebalancer.model.notation.figures import counted, millicores
from rebalancer.model.notation.heat import change, hours
from rebalancer.replay.advice.jobs import JobAdvice
from rebalancer.replay.advice.requests import RequestAdvice
from rebalancer.replay.advice.results import Result
from rebalancer.replay.comparison.lines import GapLine, Replayed
from rebalancer.replay.comparison.messages import gap_sentence

MOST_ROWS: Final = 10
"""Without -o wide."""
MOST_REASONS: Final = 3
"""In a sentence."""
NUMBERS: Final = frozenset({"HELD", "NODES", "LEFT", "EVICTED", "PODS", "REQUEST", "PROPOSED", "EXCESS", "WAITING"})
PATCHED_KINDS: Final = frozenset({"CronJob", "Deployment", "ReplicaSet", "ReplicationController", "StatefulSet"})
"""A pod template of others has another place, or can't be changed."""
POD_LEVEL: Final = (
    "The request is of the whole pod (Kubernetes 1.34 or later); with an older version divide it among the containers. "
    "A HorizontalPodAutoscaler by CPU utilization scales by requests: change its target with them."
)


def jobs_shown(found: JobAdvice) -> Shown:
    """`advise jobs`"""
    return Shown(document=encode(found), draw=lambda screen: _print_jobs(screen, found), rows="jobs")


def requests_shown(found: RequestAdvice) -> Shown:
    """`advise requests`"""
    return Shown(document=encode(found), draw=lambda screen: _print_requests(screen, found), rows="services")


def _print_jobs(screen: Screen, found: JobAdvice) -> None:
    _print_replayed(screen, "Jobs that keep nodes hot", found.replayed, found.gaps)
    if found.all_evictable is None:
        print_paragraph(screen, "", f"No pod of a Job keeps a node hot. {_sentence(found.unchanged)}")
        return
    held = sum(each.held_node_hours for each in found.jobs)
    holders = f"Pods of {counted(len(found.jobs), 'Job')} hold {hours(held)} hot node-hours."
    print_paragraph(screen, "", f"{_sentence(found.unchanged)} {holders}")
    print_paragraph(screen, "If they could be evicted:", _changed(found.unchanged, found.all_evictable))
    if found.blocked:
        kept = ", ".join(f"{hours(each.hot_node_hours)} by {each.code}" for each in found.blocked[:MOST_REASONS])
        worst = found.blocked[0]
        print_paragraph(screen, "Kept hot then:", f"{kept}. {worst.code}: {worst.example or worst.meaning}")
    shown = found.jobs if screen.wide else found.jobs[:MOST_ROWS]
    table = plain_table(
        f"HELD: hot node-hours; LEFT: with this Job alone evictable{_more(shown, found.jobs)}",
        *("JOB", "KIND", "HELD", "NODES", "LEFT", "EVICTED"),
        right=NUMBERS,
    )
    for each in shown:
        left = each.evictable
        table.add_row(
            f"{each.namespace}/{each.name}",
            each.kind,
            hours(each.held_node_hours),
            str(each.nodes),
            UNKNOWN if left is None else hours(left.hot_node_hours),
            UNKNOWN if left is None else str(left.evictions),
        )
    screen.print()
    screen.print(table)
    if not _saves(found.unchanged, found.all_evictable):
        return
    patches = {each.kind: _patch(each.kind, "NAMESPACE", "NAME", each.patch) for each in found.jobs}
    _print_patches(screen, patches.values(), "Rules of a podFailurePolicy that is there come after this one.")


def _print_requests(screen: Screen, found: RequestAdvice) -> None:
    _print_replayed(screen, "Requests that make nodes hot", found.replayed, found.gaps)
    if found.all_proposed is None:
        none = "No service uses far more CPU than it requests on hot nodes."
        print_paragraph(screen, "", f"{none} {_sentence(found.unchanged)}")
        return
    print_paragraph(screen, "", _sentence(found.unchanged))
    count = counted(len(found.services), "service")
    print_paragraph(screen, f"If {count} had the proposed requests:", _changed(found.unchanged, found.all_proposed))
    shown = found.services if screen.wide else found.services[:MOST_ROWS]
    table = plain_table(
        f"LEFT: hot node-hours with it alone; WAITING: pod-hours without a node{_more(shown, found.services)}",
        *("SERVICE", "KIND", "PODS", "REQUEST", "PROPOSED", "LEFT", "EVICTED", "WAITING"),
        right=NUMBERS,
        wide=("KIND",),
    )
    for each in shown:
        left = each.proposed
        table.add_row(
            f"{each.namespace}/{each.name}",
            each.kind,
            str(each.pods),
            millicores(each.request_millicores),
            millicores(each.proposed_millicores),
            UNKNOWN if left is None else hours(left.hot_node_hours),
            UNKNOWN if left is None else str(left.evictions),
            UNKNOWN if left is None else hours(left.waiting_pod_hours),
        )
    screen.print()
    screen.print(table)
    if not _saves(found.unchanged, found.all_proposed):
        return
    patches = [_patch(each.kind, each.namespace, each.name, each.patch) for each in shown]
    _print_patches(screen, patches, POD_LEVEL)


def _print_replayed(console: Console, title: str, replayed: Replayed, gaps: Sequence[GapLine]) -> None:
    print_paragraph(
        console, f"{title} in cluster {replayed.cluster}:", f"{when(replayed.since)} to {when(replayed.until)}"
    )
    size = f"{counted(replayed.nodes, 'node')}, {counted(replayed.pods, 'pod')}, from {replayed.source}."
    print_paragraph(console, "", size)
    for gap in gaps:
        print_paragraph(console, "Gap:", gap_sentence(gap))


def _sentence(of: Result) -> str:
    evictions = counted(of.evictions, "eviction")
    return f"With the policy there are {hours(of.hot_node_hours)} hot node-hours and {evictions}."


def _changed(before: Result, after: Result) -> str:
    less = change(before.hot_node_hours, after.hot_node_hours)
    waiting = max(after.waiting_pod_hours - before.waiting_pod_hours, 0.0)
    return (
        f"{hours(after.hot_node_hours)} hot node-hours"
        + (f" ({less})" if less else "")
        + f" and {counted(after.evictions, 'eviction')}."
        + (f" Pods would wait {hours(waiting)} pod-hours more for a node." if waiting >= 0.05 else "")
    )


def _saves(before: Result, after: Result) -> bool:
    """Whether patches are worth printing; documents have them in any case."""
    return after.hot_node_hours < before.hot_node_hours


def _more(shown: Sequence[object], of: Sequence[object]) -> str:
    return f" ({len(shown)} of {len(of)}, all with -o wide)" if len(shown) < len(of) else ""


def _print_patches(console: Console, patches: Iterable[str], note: str) -> None:
    console.print()
    print_paragraph(console, "Patches:", note)
    for each in patches:
        console.print(Text(each), soft_wrap=True)


def _patch(kind: str, namespace: str, name: str, patch: Mapping[str, Any]) -> str:
    text = msgspec.json.encode(patch).decode()
    if kind not in PATCHED_KINDS:
        return f"In the manifest of {kind} {namespace}/{name}: {text}"
    words = ("kubectl", "-n", namespace, "patch", kind.lower(), name, "--type", "merge", "-p", text)
    return shlex.join(words)
