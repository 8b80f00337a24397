"""Explanations of pods and nodes as tables and as JSON documents. Fields are only ever added."""

import math
from typing import Any

from rich.console import Console
from rich.text import Text

from rebalancer.cli.output.document import SCHEMA_VERSION
from rebalancer.cli.output.tables import plain_table
from rebalancer.model.reason import Refusal
from rebalancer.planner.explain.nodes import NodeExplanation
from rebalancer.planner.explain.pods import PodExplanation, ScoredNode
from rebalancer.planner.explain.skew import PlacementSkew

BEST_SHOWN = 20
LANDINGS_SHOWN = 5

SHORT = {
    "TaintToleration": "TAINT",
    "NodeAffinity": "AFFINITY",
    "PodTopologySpread": "SPREAD",
    "InterPodAffinity": "PODS",
    "NodeResourcesFit": "FIT",
    "NodeResourcesBalancedAllocation": "BALANCE",
    "ImageLocality": "IMAGE",
}

# ---- a pod


def pod_document(found: PodExplanation) -> dict[str, Any]:
    """`explain pod -o json`"""
    pod, eviction = found.pod, found.eviction
    return {
        "schemaVersion": SCHEMA_VERSION,
        "pod": {
            "namespace": pod.namespace,
            "name": pod.name,
            "uid": pod.uid,
            "node": pod.node_name or None,
            "pool": found.pool or None,
            "service": str(pod.service) if pod.service is not None else None,
            "owner": pod.owner.kind if pod.owner is not None else None,
            "schedulerName": pod.template.scheduler_name,
        },
        "nodes": [
            {
                "name": each.name,
                "feasible": True,
                "total": each.total,
                "chance": each.chance,
                "scores": dict(each.scores),
                "raw": dict(each.raw),
            }
            for each in found.scored
        ]
        + [
            {"name": each.name, "feasible": False, "filter": each.filter, "message": each.words}
            for each in found.failed
        ],
        "failures": found.failures,
        "landings": [{"node": node, "share": share} for node, share in found.landing],
        "noLanding": _refusal(found.no_landing),
        "checks": [
            {
                "name": each.name,
                "ok": each.ok,
                "code": str(each.code) if each.code is not None else None,
                "message": each.detail,
            }
            for each in found.checks
        ],
        "evictedNow": eviction is not None,
        "landing": eviction.target_nodes[0][0] if eviction is not None else None,
        "notModelled": list(found.unknown),
    }


def print_pod(console: Console, found: PodExplanation, *, wide: bool, all_nodes: bool) -> None:
    """`explain pod`"""
    pod = found.pod
    where = f"on {pod.node_name} (pool {found.pool or 'none'})" if pod.node >= 0 else "on no node"
    console.print(Text.assemble((f"Pod {pod}", "bold"), f" {where}, service {pod.service or 'none'}"))
    whose = "the pod's replacement" if pod.node >= 0 else "the pod"
    _print_scored(console, found, f"Nodes that would take {whose}, best first", wide=wide, all_nodes=all_nodes)
    _print_failed(console, found, each=all_nodes or len(found.scored) + len(found.failed) <= BEST_SHOWN)
    if found.no_landing is not None:
        console.print(Text.assemble(("No landing: ", "bold"), _said(found.no_landing)))
    elif found.landing:
        shown = ", ".join(f"{node} ({share:.0%})" for node, share in found.landing[:LANDINGS_SHOWN])
        more = len(found.landing) - LANDINGS_SHOWN
        console.print(Text.assemble(("Lands on: ", "bold"), shown + (f" and {more} more" if more > 0 else "")))
    if found.checks:
        answer = "yes" if found.eviction is not None else "no"
        table = plain_table(f"Would a run evict it now: {answer}", "CHECK", "", "CODE", "BECAUSE")
        for check in found.checks:
            mark = Text("ok", style="green") if check.ok else Text("no", style="red")
            table.add_row(check.name, mark, str(check.code or ""), check.detail)
        console.print(table)
    _print_unknown(console, found.unknown)


def _print_scored(console: Console, found: PodExplanation, title: str, *, wide: bool, all_nodes: bool) -> None:
    if not found.scored:
        return
    shown = found.scored if all_nodes else found.scored[:BEST_SHOWN]
    if len(shown) < len(found.scored):
        title += f" ({len(shown)} of {len(found.scored)}, the others with --all)"
    plugins = list(found.scored[0].scores)
    heads = [plugin if wide else SHORT.get(plugin, plugin) for plugin in plugins]
    table = plain_table(title, "NODE", "TOTAL", "CHANCE", *heads)
    for node in shown:
        chance = f"{node.chance:.0%}" if node.chance else "-"
        here = Text(node.name, style="bold" if node.name == found.pod.node_name else "")
        table.add_row(here, f"{node.total:g}", chance, *(_points(node, plugin, wide=wide) for plugin in plugins))
    console.print(table)


def _points(node: ScoredNode, plugin: str, *, wide: bool) -> str:
    points = f"{node.scores[plugin]:g}"
    return f"{points} (raw {node.raw[plugin]:.6g})" if wide else points


def _print_failed(console: Console, found: PodExplanation, *, each: bool) -> None:
    if not found.failed:
        return
    if each:
        table = plain_table("Nodes that a filter refuses", "NODE", "FILTER", "BECAUSE")
        for node in found.failed:
            table.add_row(node.name, node.filter, node.words)
    else:
        table = plain_table(
            "Nodes that a filter refuses (each with --all)", "FILTER", "COUNT", "FOR EXAMPLE", "BECAUSE"
        )
        for name, count in found.failures.items():
            first = next(node for node in found.failed if node.filter == name)
            table.add_row(name, str(count), first.name, first.words)
    console.print(table)


# ---- a node


def node_document(found: NodeExplanation) -> dict[str, Any]:
    """`explain node -o json`. Shares are 0..1; null means not known or not judged."""
    return {
        "schemaVersion": SCHEMA_VERSION,
        "node": {"name": found.name, "pool": found.pool or None, "hot": found.hot},
        "stopped": _refusal(found.stopped),
        "judgements": [
            {
                "strategy": each.strategy,
                "reason": each.reason or None,
                "skipped": _refusal(each.skipped),
                "marks": [
                    {
                        "resource": mark.resource,
                        "measuredShare": mark.measured,
                        "loadShare": mark.load,
                        "high": mark.high,
                        "target": mark.target,
                        "low": mark.low,
                        "hot": mark.hot,
                    }
                    for mark in each.marks
                ],
            }
            for each in found.judgements
        ],
        "pods": [
            {
                "namespace": each.namespace,
                "pod": each.name,
                "service": each.service or None,
                "cpuMillicores": each.cpu_millicores,
                "cpuShare": each.cpu_share,
                "cpuRequestMillicores": each.cpu_request_millicores,
                "landing": each.landing[0] if each.landing is not None else None,
                "landingShare": each.landing[1] if each.landing is not None else None,
                "code": str(each.code) if each.code is not None else None,
                "message": each.message or None,
            }
            for each in found.pods
        ],
        "attractions": [placement_skew_document(each) for each in found.attractions],
        "notModelled": list(found.unknown),
    }


def placement_skew_document(each: PlacementSkew) -> dict[str, Any]:
    """What brings a service's pods to a node."""
    decisive = each.decisive
    return {
        "service": str(each.service),
        "kind": each.service.kind,
        "heaped": each.heaped,
        "podsHere": each.here,
        "podsHereLately": each.lately,
        "pods": each.replicas,
        "fairShare": round(each.fair, 3),
        "nodes": each.eligible,
        "byChance": each.chance,
        "refusedBy": {"filter": each.refused_by[0], "message": each.refused_by[1]} if each.refused_by else None,
        "nextHere": each.next_here,
        "notKnown": _refusal(each.not_known),
        "decisivePlugin": decisive.plugin if decisive is not None else None,
        "plugins": [
            {"name": ahead.plugin, "here": ahead.here, "median": ahead.median, "ahead": ahead.by}
            for ahead in each.ahead
        ],
        "totalAhead": each.total_ahead,
        "images": [
            {
                "name": image.name,
                "bytes": image.size_bytes,
                "nodesWithIt": image.nodes_with,
                "nodesMissingIt": image.missing,
                "here": image.here,
            }
            for image in each.images
        ],
    }


def print_node(console: Console, found: NodeExplanation, *, wide: bool, all_pods: bool) -> None:
    """`explain node`"""
    console.print(Text.assemble((f"Node {found.name}", "bold"), f" (pool {found.pool or 'none'})"))
    if found.stopped is not None:
        console.print(Text.assemble(("Nothing is decided: ", "bold red"), _said(found.stopped)))
    table = plain_table(
        "Is it hot?", "STRATEGY", "RESOURCE", "MEASURED", "LOAD", "LOW", "TARGET", "HIGH", "", "BECAUSE"
    )
    others = plain_table("What else was found there", "STRATEGY", "BECAUSE")
    for judged in found.judgements:
        because = judged.reason or (_said(judged.skipped) if judged.skipped is not None else "")
        for mark in judged.marks:
            hot = Text("hot", style="bold red") if mark.hot else Text("not hot")
            shares = (mark.measured, mark.load, mark.low, mark.target, mark.high)
            table.add_row(judged.strategy, mark.resource, *map(_share, shares), hot, because)
        if because and not judged.marks:
            others.add_row(judged.strategy, because)
    for each in (table, others):
        if each.row_count:
            console.print(each)
    _print_pods(console, found, wide=wide, all_pods=all_pods)
    _print_attractions(console, found)
    _print_unknown(console, found.unknown)


def _print_pods(console: Console, found: NodeExplanation, *, wide: bool, all_pods: bool) -> None:
    if not found.pods:
        console.print("No pod is on it.")
        return
    shown = found.pods if all_pods else found.pods[:BEST_SHOWN]
    title = "Who could leave"
    if len(shown) < len(found.pods):
        title += f" ({len(shown)} of {len(found.pods)}, the others with --all)"
    wider = ("SERVICE", "REQUEST") if wide else ()
    table = plain_table(title, "POD", *wider, "CPU", "OF NODE", "", "BECAUSE")
    for pod in shown:
        cpu = "?" if pod.cpu_millicores is None else f"{pod.cpu_millicores:.0f}m"
        if pod.landing is not None:
            verdict, because = Text("leaves", style="cyan"), f"-> {pod.landing[0]} ({pod.landing[1]:.0%})"
        else:
            verdict, because = Text(str(pod.code or "stays")), pod.message
        extra = (pod.service or "-", f"{pod.cpu_request_millicores:.0f}m") if wide else ()
        table.add_row(f"{pod.namespace}/{pod.name}", *extra, cpu, _share(pod.cpu_share), verdict, because)
    console.print(table)


def _print_attractions(console: Console, found: NodeExplanation) -> None:
    if not found.attractions:
        return
    table = plain_table("Why pods come here", "SERVICE", "HERE", "FAIR", "LAST HOUR", "NEXT ONE HERE", "", "BECAUSE")
    for each in found.attractions:
        table.add_row(
            str(each.service),
            f"{each.here} of {each.replicas}",
            f"{each.fair:.1f}",
            str(each.lately),
            "?" if each.next_here is None else f"{each.next_here:.0%}",
            Text("heap", style="bold red") if each.heaped else Text(""),
            because_of(each),
        )
    console.print(table)


def because_of(each: PlacementSkew) -> str:
    """The plugin that decides, with its numbers."""
    if not each.takes_more:
        filter_name, words = each.refused_by or ("", "")
        return f"no more come for now: {filter_name}: {words}"
    if each.not_known is not None:
        return each.not_known.message
    decisive = each.decisive
    if decisive is None:
        return f"no plugin speaks for it any more ({each.total_ahead:+g} points against the median node)"
    text = (
        f"{decisive.plugin}: {decisive.here:g} points here, "
        f"{decisive.median:g} on the median of {each.feasible} nodes; "
        f"{each.total_ahead:+g} in total"
    )
    if decisive.plugin == "ImageLocality":
        here = [image for image in each.images if image.here and image.size_bytes is not None]
        text += "".join(
            f"; {image.name}, {size_of(image.size_bytes)}, is on {image.nodes_with} node(s)" for image in here[:2]
        )
    return text


def size_of(size: float | None) -> str:
    """Bytes for people."""
    if size is None or not math.isfinite(size):
        return "size not known"
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"


# ---- both


def _refusal(refusal: Refusal | None) -> dict[str, str] | None:
    return None if refusal is None else {"code": str(refusal.code), "message": refusal.message}


def _said(refusal: Refusal) -> str:
    return f"{refusal.message} ({refusal.code})"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _print_unknown(console: Console, unknown: tuple[str, ...]) -> None:
    if unknown:
        console.print(Text.assemble(("Not in the model of the scheduler: ", "yellow"), ", ".join(unknown)))
