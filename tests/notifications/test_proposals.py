"""Notifications of proposals: of new ones only, with links where there are any."""

from dataclasses import replace

import pytest

from rebalancer.model.decisions.approval_links import ApprovalLinks
from rebalancer.model.decisions.proposals import Proposal, ProposalState
from rebalancer.model.records.notifications import Event
from rebalancer.notifications import messages
from rebalancer.notifications.rendering import alertmanager, message
from tests.builders import NOW
from tests.notifications.test_notifications import a_cycle
from tests.store.test_proposals import a_plan

LINKS = ApprovalLinks(key=b"k" * 32, base="https://rebalancer.example")


def a_proposal(cycle: str = "c", *numbers: int) -> Proposal:
    return Proposal(
        id="7bk2xw",
        cluster="prod",
        state=ProposalState.PROPOSED,
        cycle=cycle,
        run="r",
        proposed_at=NOW,
        expires_at=NOW + 1800.0,
        plan=a_plan(*(numbers or (1, 2))),
    )


@pytest.mark.parametrize("links", [None, replace(LINKS, base="")])
def test_a_new_proposal_is_one_notification_that_names_the_command(links: ApprovalLinks | None) -> None:
    report = a_cycle()
    report.proposals = [a_proposal(), replace(a_proposal("an earlier one"), id="older")]
    [sent] = messages.proposals(report, links)
    assert (sent.event, sent.title) == (
        Event.PROPOSAL,
        "prod: proposal 7bk2xw: 2 evictions from pool a by LowNodeUtilization",
    )
    assert sent.text.splitlines()[1:] == ["rebalancer approve 7bk2xw", "n1: shop/web-1, shop/web-2"]
    assert (sent.at, sent.ends_at, sent.labels) == (NOW, NOW + 1800.0, {"proposal": "7bk2xw", "pool": "a"})
    [alert] = alertmanager(sent, None)
    assert alert["labels"]["alertname"] == "RebalancerProposal"


def test_its_links_are_whole_however_many_evictions_it_has() -> None:
    report = a_cycle()
    report.proposals = [a_proposal("c", *range(2000))]
    [sent] = messages.proposals(report, LINKS)
    text = message(sent, None)
    for action in ("approve", "reject"):
        line = next(each for each in text.splitlines() if each.startswith(f"{action}: "))
        assert line.partition(": ")[2] == LINKS.url(report.proposals[0], action)  # type: ignore[arg-type]
        target = line.partition("https://rebalancer.example")[2]
        assert target == LINKS.target(report.proposals[0], action)  # type: ignore[arg-type]
