"""Two running replicas on one database: what is approved is carried out once, by the leader, also by the next one after
the first was killed."""

import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from rebalancer.lab import Lab
from rebalancer.model.decisions.approval_links import ApprovalLinks
from rebalancer.model.decisions.proposals import Proposal, ProposalState
from rebalancer.store import SqlProposals, open_engine, upgrade
from tests.e2e.servers import DaemonProcess, alert_policy, daemon, until, warm_lab
from tests.programs.cli import rebalancer
from tests.real.servers.postgres import PostgresServer

pytestmark = [pytest.mark.quiet]

KEY = "0123456789abcdef0123456789abcdef"
HOSTNAME = "kubernetes.io/hostname"
THRESHOLDS = {"high": 60, "target": 50}
FIRST = {"key": HOSTNAME, "operator": "In", "values": ["warm-1"]}
SECOND = {"key": HOSTNAME, "operator": "NotIn", "values": ["warm-1"]}
POOLS = [
    {"name": name, "mode": "Approve", "selector": {"matchExpressions": [each]}, "thresholds": THRESHOLDS}
    for name, each in (("one", FIRST), ("rest", SECOND))
]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.real)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        made = f"sqlite:///{tmp_path / 'shared.db'}"
    else:
        postgres: PostgresServer = request.getfixturevalue("postgres")
        made = postgres.create_database("approvals")
    upgrade(made)
    return made


def test_what_is_approved_is_carried_out_once_also_by_the_next_leader(url: str, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(KEY)
    env = {"REBALANCER_APPROVAL_KEY_FILE": str(tmp_path / "key")}
    with warm_lab(warm=3) as lab:
        kubeconfig = lab.write_kubeconfig(tmp_path / "config")
        strategies = [{"name": "LowNodeUtilization", "interval": "10s"}]
        policy = alert_policy(lab.prometheus_url, pools=POOLS, strategies=strategies)
        shared: dict[str, Any] = {"database": url, "env": env}
        with (
            daemon(tmp_path, policy, kubeconfig, name="first", **shared) as first,
            daemon(tmp_path, policy, kubeconfig, name="second", **shared) as second,
        ):
            engine = open_engine(url)
            kept = SqlProposals(engine=engine, cluster=policy["cluster"])
            until(lambda: first.leads() or second.leads(), first.tail)
            leader, other = (first, second) if first.leads() else (second, first)
            of_pool = until(lambda: proposed(kept), leader.tail)
            assert lab.log.evictions(code=201) == ()
            # by a link, through the replica that doesn't lead
            link = ApprovalLinks(key=KEY.encode()).target(of_pool["one"], "approve")
            assert press(other, link.replace("approve", "reject")) == 403
            assert press(other, link) == 200
            until(lambda: is_over(kept, of_pool["one"]), leader.tail)
            assert press(other, link) == 410
            assert evicted(lab) == uids(of_pool["one"])
            # by the command, while no replica leads: the leader is gone, and its Lease isn't yet
            leader.process.kill()
            leader.ended()
            rest = until(lambda: proposed(kept), other.tail)["rest"]
            done = rebalancer("approve", rest.id, "-f", tmp_path / "first.yaml", "--database", url)
            assert done.code == 0, done.err
            until(lambda: is_over(kept, rest), other.tail)
            assert evicted(lab) == [*uids(of_pool["one"]), *uids(rest)]
            time.sleep(1.0)
            assert other.events("proposal")
            assert all(KEY not in each.log_file.read_text() for each in (first, second))
            assert link.rpartition("=")[2] not in other.log_file.read_text()
            engine.dispose()


def proposed(kept: SqlProposals) -> dict[str, Proposal]:
    """Pool -> its open proposal, once the second pool has one."""
    found = {each.plan.pool: each for each in kept.all() if each.state is ProposalState.PROPOSED}
    return found if "rest" in found else {}


def is_over(kept: SqlProposals, proposal: Proposal) -> bool:
    found = kept.named(proposal.id)
    assert found is not None
    assert found.state in (ProposalState.APPROVED, ProposalState.STARTED, ProposalState.CARRIED_OUT), found.closed
    return found.state is ProposalState.CARRIED_OUT


def uids(proposal: Proposal) -> list[str]:
    return [each.uid for each in proposal.plan.evictions]


def evicted(lab: Lab) -> list[str]:
    return [each.uid for each in lab.log.evictions(code=201)]


def press(web: DaemonProcess, link: str) -> int:
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Origin": web.url}
    request = urllib.request.Request(f"{web.url}{link}", b"", headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
