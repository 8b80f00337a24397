"""The outline of an interned template agrees with the whole of it."""

from typing import Any

import msgspec
import pytest

from rebalancer.kube.snapshot.pod_templates import decode_template, outline_template


@pytest.mark.parametrize("spread", [None, [], [{"maxSkew": 1, "topologyKey": "zone"}]])
def test_an_outline_says_whether_a_template_spreads(spread: Any) -> None:
    fields: list[Any] = [{"app": "web"}, None, None, None, None, spread, None, [], None, None, None, None, 0, ""]
    blob = msgspec.json.encode([*fields, "default-scheduler", "Burstable", None])
    assert outline_template(blob).spreads is bool(decode_template(blob).topology_spread)
