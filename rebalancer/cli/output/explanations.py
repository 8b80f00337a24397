"""Explanations of pods and nodes as tables and as JSON documents."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from rebalancer.cli.output.cycle import target_text
from rebalancer.cli.output.cycle_document import target_nodes
from rebalancer.cli.output.json import pick
from rebalancer.cli.output.tables import FIGURES, UNKNOWN, plain_table, print_paragraph, refusal_text
from rebalancer.model.notation.figures import counted, millicores, percent, size
from rebalancer.model.reason import Refusal
from rebalancer.planner.explain.nodes import NodeExplanation
from rebalancer.planner.explain.pods import PodExplanation, ScoredNode
from rebalancer.planner.explain.skew import PlacementSkew

BEST_SHOWN = 20
TARGETS_SHOWN = 5

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
        "pod": {
            "namespace": pod.namespace,
            "name": pod.name,
            "uid": pod.uid,
            "node": pod.node_name or None,
            "pool": found.pool or None,
            "service": pod.service,
            "owner": pod.owner.kind if pod.owner is not None else None,
            "schedulerName": pod.template.scheduler_name,
        },
        "nodes": [
            {
                "name": each.name,
                "feasible": True,
                "total": each.total,
                "probability": each.probability,
                "scores": each.scores,
                "raw": each.raw,
            }
            for each in found.scored
        ]
        + [
            {"name": each.name, "feasible": False, "filter": each.filter, "message": each.message}
            for each in found.failed
        ],
        "failures": found.failures,
        "targetNodes": target_nodes(found.target_nodes),
        "noTargetNode": _refusal(found.no_target_node),
        "checks": [
            {**pick(each, "name", "ok", "code"), "message": each.detail, "liftedBy": each.lifted_by}
            for each in found.checks
        ],
        "room": found.room,
        "nextMinutes": found.soon,
        "wouldEvict": eviction is not None and not eviction.answered.detail,
        "targetNode": (eviction.target_node or None) if eviction is not None else None,
        "notModelled": found.unknown,
    }


def print_pod(console: Console, found: PodExplanation, *, wide: bool, all_nodes: bool) -> None:
    """`explain pod`"""
    pod = found.pod
    where = f"on {pod.node_name} (pool {found.pool or 'none'})" if pod.node >= 0 else "on no node"
    print_paragraph(console, f"Pod {pod}", f"{where}, service {pod.service or 'none'}")
    whose = "the pod's replacement" if pod.node >= 0 else "the pod"
    without = f", without the plan's {counted(found.planned, 'eviction')}" if found.planned else ""
    _print_scored(console, found, f"Feasible nodes for {whose}, best first", wide=wide, all_nodes=all_nodes)
    _print_failed(console, found, each=all_nodes or len(found.scored) + len(found.failed) <= BEST_SHOWN)
    if found.no_target_node is not None:
        print_paragraph(console, f"No target node{without}:", refusal_text(found.no_target_node))
    elif found.target_nodes:
        shown = ", ".join(f"{node} ({share:.0%})" for node, share in found.target_nodes[:TARGETS_SHOWN])
        more = len(found.target_nodes) - TARGETS_SHOWN
        print_paragraph(console, f"Target nodes{without}:", shown + (f" and {more} more" if more > 0 else ""))
    if found.room:
        print_paragraph(console, "Room:", found.room)
    if found.checks:
        in_dry_run = "" if found.eviction is None else found.eviction.answered.detail
        answer = f"no, {in_dry_run}" if in_dry_run else "no" if found.eviction is None else "yes"
        table = plain_table(f"Would a run evict it now: {answer}", "CHECK", "", "CODE", "REASON")
        for check in found.checks:
            mark = Text("ok", style="green") if check.ok else Text("no", style="red")
            table.add_row(check.name, mark, str(check.code or ""), check.detail)
        console.print(table)
        refused = {check.code: check.lifted_by for check in found.checks if not check.ok and check.code is not None}
        for code, lifted_by in refused.items():
            print_paragraph(console, f"{code} is lifted by:", lifted_by)
    _print_soon(console, found.soon)
    _print_unknown(console, found.unknown)


def _print_soon(console: Console, soon: Sequence[str]) -> None:
    if soon:
        print_paragraph(console, "In the next minutes:", "; ".join(soon))


def _print_scored(console: Console, found: PodExplanation, title: str, *, wide: bool, all_nodes: bool) -> None:
    if not found.scored:
        return
    shown = found.scored if all_nodes else found.scored[:BEST_SHOWN]
    if len(shown) < len(found.scored):
        title += f" ({len(shown)} of {len(found.scored)}, all with --all)"
    plugins = list(found.scored[0].scores)
    heads = [plugin if wide else SHORT.get(plugin, plugin) for plugin in plugins]
    table = plain_table(title, "NODE", "TOTAL", "PROBABILITY", *heads)
    for node in shown:
        probability = f"{node.probability:.0%}" if node.probability else UNKNOWN
        here = Text(node.name, style="bold" if node.name == found.pod.node_name else "")
        table.add_row(here, f"{node.total:g}", probability, *(_points(node, plugin, wide=wide) for plugin in plugins))
    console.print(table)


def _points(node: ScoredNode, plugin: str, *, wide: bool) -> str:
    points = f"{node.scores[plugin]:g}"
    return f"{points} (raw {node.raw[plugin]:.6g})" if wide else points


def _print_failed(console: Console, found: PodExplanation, *, each: bool) -> None:
    if not found.failed:
        return
    if each:
        table = plain_table("Nodes rejected by a filter", "NODE", "FILTER", "REASON")
        for node in found.failed:
            table.add_row(node.name, node.filter, node.message)
    else:
        title = "Nodes rejected by a filter (each node with --all)"
        table = plain_table(title, "FILTER", "COUNT", "EXAMPLE", "REASON")
        for name, count in found.failures.items():
            first = next(node for node in found.failed if node.filter == name)
            table.add_row(name, str(count), first.name, first.message)
    console.print(table)


# ---- a node


def node_document(found: NodeExplanation) -> dict[str, Any]:
    """`explain node -o json`. Shares are 0..1; null = unknown or not evaluated."""
    return {
        "node": {"name": found.name, "pool": found.pool or None, "hot": found.hot},
        "stopped": _refusal(found.stopped),
        "nextMinutes": found.soon,
        "evaluations": [
            {
                "strategy": each.strategy,
                "reason": each.reason or None,
                "skipped": _refusal(each.skipped),
                "thresholds": [
                    {
                        "resource": load.resource,
                        "measuredShare": load.measured,
                        "loadShare": load.load,
                        **pick(load, "high", "target", "low", "hot"),
                    }
                    for load in each.thresholds
                ],
            }
            for each in found.evaluations
        ],
        "pods": [
            {
                "namespace": each.namespace,
                "pod": each.name,
                "service": each.service or None,
                **pick(each, "cpu_millicores", "cpu_share", "cpu_request_millicores"),
                "resources": [{"resource": name, "share": of} for name, of in each.resource_shares.items()],
                "targetNode": each.target_node[0] if each.target_node is not None else None,
                "targetNodeProbability": each.target_node[1] if each.target_node is not None else None,
                "code": each.code,
                "message": each.message or None,
            }
            for each in found.pods
        ],
        "attractions": [placement_skew_document(each) for each in found.attractions],
        "notModelled": found.unknown,
    }


def placement_skew_document(each: PlacementSkew) -> dict[str, Any]:
    """Why pods of a service are scheduled to a node."""
    next_pod = each.next_pod
    decisive, refused_by = next_pod.decisive, next_pod.refused_by
    return {
        "service": each.service,
        "kind": each.service.kind,
        "skewed": each.skewed,
        "podsHere": each.here,
        "podsHereLastHour": each.last_hour,
        "pods": each.replicas,
        "fairShare": round(each.fair, 3),
        "nodes": each.eligible,
        "pValue": each.p_value,
        "refusedBy": {"filter": refused_by[0], "message": refused_by[1]} if refused_by else None,
        "nextPodProbability": next_pod.probability,
        "unknownReason": _refusal(next_pod.unknown_reason),
        "decisivePlugin": decisive.plugin if decisive is not None else None,
        "plugins": [
            {"name": ahead.plugin, "here": ahead.here, "median": ahead.median, "scoreLead": ahead.lead}
            for ahead in next_pod.leads
        ],
        "totalScoreLead": next_pod.total_lead,
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
    print_paragraph(console, f"Node {found.name}", f"(pool {found.pool or 'none'})")
    if found.stopped is not None:
        print_paragraph(console, Text("No decisions:", style="bold red"), refusal_text(found.stopped))
    shares = ("MEASURED", "LOAD", "LOW", "TARGET", "HIGH")
    table = plain_table("Is it hot?", "STRATEGY", "RESOURCE", *shares, "", "REASON")
    others = plain_table("Other findings", "STRATEGY", "REASON")
    for judged in found.evaluations:
        because = judged.reason or (refusal_text(judged.skipped) if judged.skipped is not None else "")
        for load in judged.thresholds:
            hot = Text("hot", style="bold red") if load.hot else Text("not hot")
            values = (load.measured, load.load, load.low, load.target, load.high)
            table.add_row(judged.strategy, load.resource, *map(percent, values), hot, because)
        if because and not judged.thresholds:
            others.add_row(judged.strategy, because)
    for each in (table, others):
        if each.row_count:
            console.print(each)
    _print_soon(console, found.soon)
    _print_pods(console, found, wide=wide, all_pods=all_pods)
    _print_attractions(console, found)
    _print_unknown(console, found.unknown)


def _print_pods(console: Console, found: NodeExplanation, *, wide: bool, all_pods: bool) -> None:
    if not found.pods:
        console.print("No pods.")
        return
    shown = found.pods if all_pods else found.pods[:BEST_SHOWN]
    title = "Pods on this node, and whether they would be evicted"
    if len(shown) < len(found.pods):
        title += f" ({len(shown)} of {len(found.pods)}, all with --all)"
    wider = ("SERVICE", "REQUEST") if wide else ()
    resources = [f"OF {name.upper()}" for name in shown[0].resource_shares]
    columns = ("POD", *wider, "CPU", "OF NODE", *resources, "DECISION", "REASON")
    table = plain_table(title, *columns, right=(*FIGURES, *resources), legend="DECISION", keys=1)
    for pod in shown:
        cpu = millicores(pod.cpu_millicores)
        if pod.target_node is not None:
            verdict, because = Text(f"evict, to {target_text(pod.target_node)}", style="cyan"), ""
        else:
            verdict, because = Text(str(pod.code or "keep")), pod.message
        extra = (pod.service or "-", f"{millicores(pod.cpu_request_millicores)}") if wide else ()
        others = map(percent, pod.resource_shares.values())
        table.add_row(f"{pod.namespace}/{pod.name}", *extra, cpu, percent(pod.cpu_share), *others, verdict, because)
    console.print(table)


def _print_attractions(console: Console, found: NodeExplanation) -> None:
    if not found.attractions:
        return
    table = plain_table(
        "Services scheduled to this node, those with most pods here",
        "SERVICE",
        "HERE",
        "FAIR",
        "LAST HOUR",
        "NEXT POD HERE",
        "",
        "REASON",
    )
    for each in found.attractions:
        table.add_row(
            str(each.service),
            f"{each.here} of {each.replicas}",
            f"{each.fair:.1f}",
            str(each.last_hour),
            "?" if each.next_pod.probability is None else f"{each.next_pod.probability:.0%}",
            Text("skewed", style="bold red") if each.skewed else Text(""),
            _reason_of(each),
        )
    console.print(table)


def _reason_of(each: PlacementSkew) -> str:
    """The decisive plugin, with its scores."""
    next_pod = each.next_pod
    if not next_pod.takes_more:
        filter_name, words = next_pod.refused_by or ("", "")
        return f"no further pods for now: {filter_name}: {words}"
    if next_pod.unknown_reason is not None:
        return next_pod.unknown_reason.message
    decisive = next_pod.decisive
    if decisive is None:
        return f"no plugin favours this node; {_lead(next_pod.total_lead)}"
    text = (
        f"{decisive.plugin}: {decisive.here:g} points here, {decisive.median:g} on the median of "
        f"{next_pod.feasible} nodes; {_lead(next_pod.total_lead)}"
    )
    if decisive.plugin == "ImageLocality":
        here = [image for image in each.images if image.here and image.size_bytes is not None]
        text += "".join(
            f"; {image.name}, {size(image.size_bytes)}, is on {counted(image.nodes_with, 'node')}" for image in here[:2]
        )
    return text


def _lead(points: float) -> str:
    """Of all plugins together."""
    if not points:
        return "in total as the median node"
    return f"in total {abs(points):g} points {'above' if points > 0 else 'below'} the median node"


# ---- both


def _refusal(refusal: Refusal | None) -> dict[str, Any] | None:
    return None if refusal is None else pick(refusal, "code", "message")


def _print_unknown(console: Console, unknown: tuple[str, ...]) -> None:
    if unknown:
        print_paragraph(console, Text("Not modelled:", style="yellow"), ", ".join(unknown))
