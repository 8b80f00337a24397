"""Advice for kube-scheduler as commented YAML and as a JSON document."""

import textwrap
from typing import Any

import yaml

from rebalancer.cli.output.explanations import placement_skew_document
from rebalancer.planner.advice.advice import SchedulerAdvice
from rebalancer.policy.kube_scheduler.config import API_VERSION, profile_fields

COMMENT_WIDTH = 116


def configuration(found: SchedulerAdvice) -> dict[str, Any]:
    """The advised KubeSchedulerConfiguration."""
    fields: dict[str, Any] = {"apiVersion": API_VERSION, "kind": "KubeSchedulerConfiguration"}
    if found.percentage_of_nodes_to_score:
        fields["percentageOfNodesToScore"] = found.percentage_of_nodes_to_score
    return {**fields, "profiles": [profile_fields(each.profile) for each in found.profiles]}


def advice_document(found: SchedulerAdvice) -> dict[str, Any]:
    """`advise scheduler -o json`"""
    return {
        "advice": [
            {
                "topic": each.topic,
                "subject": each.subject,
                "observation": each.observation,
                "recommendation": each.recommendation,
                "figures": each.figures,
            }
            for each in found.advice
        ],
        "placementSkews": [
            {"node": each.pod.node_name, **placement_skew_document(each)} for each in found.placement_skews
        ],
        "configuration": configuration(found),
    }


def advised_yaml(found: SchedulerAdvice) -> str:
    """The configuration; comments above each profile give its reasons, comments at the top all other advice."""
    document = configuration(found)
    profiles = document.pop("profiles")
    shown = " ".join({reason for each in found.profiles for reason in each.reasons})
    out = _comment(
        "Advice of rebalancer for kube-scheduler (--config). Only fields that differ from its defaults are set;"
    )
    out += _comment("copy leaderElection, clientConnection and extenders from your own file.")
    for each in found.advice:
        text = f"{each.topic}: {each.subject}: {each.observation}." if each.observation not in shown else ""
        out += _comment(f"{text or f'{each.topic}: {each.subject}:'} -> {each.recommendation}.")
    out += yaml.safe_dump(document, sort_keys=False) + "profiles:\n"
    for advised, fields in zip(found.profiles, profiles, strict=True):
        for reason in advised.reasons:
            out += _comment(reason)
        out += yaml.safe_dump([fields], sort_keys=False, width=COMMENT_WIDTH)
    return out


def _comment(text: str) -> str:
    """Comment lines; unprintable characters in names from the cluster cannot end them."""
    plain = " ".join("".join(each if each.isprintable() else " " for each in text).split())
    return textwrap.fill(plain, COMMENT_WIDTH, initial_indent="# ", subsequent_indent="#   ") + "\n"
