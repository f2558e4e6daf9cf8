"""State files of `provision plan`: each wrong value is named with its place, and a plan answers in the written form."""

import json
from typing import Any

import pytest

from agiledart_kernel.errors import ConfigurationError
from agiledart_provisioning.plan_file import EXAMPLE, plan, read_plan_file


def changed(path: str, value: Any) -> bytes:
    """Return the example with one value replaced; `path` has dots, numbers are indexes."""
    document = json.loads(json.dumps(EXAMPLE))
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    at = document
    for part in parents:
        at = at[part]
    at[last] = value
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("format", "x", "format: 'x' is not"),
        ("btu_s", 0, "btu_s = 0: must be more than 0"),
        ("types.0.slo_ms", 0, "types.parse.slo_ms = 0: must be more than 0"),
        ("types.0.queue", -1, "types.parse.queue = -1: must be at least 0"),
        ("types.1.name", "parse", "types: 'parse' stands there twice"),
        ("hosts.0.instances", {"prase": 1}, "hosts.h1: there is no type 'prase'"),
        ("hosts.0.instances", {"parse": 20}, "hosts.h1: its instances need 13200 cpu, it has 4096"),
        ("hosts.0.cost", -2, "hosts.h1.cost = -2"),
        ("hosts", [], "hosts: the file has none"),
        ("types.0.cpu", 9000, "hosts.h1: its instances need 18000 cpu"),
        ("settings", {"scaling_treshold": 5}, "Did you mean scaling_threshold?"),
        ("settings", {"w1": -1}, "settings: w1 = -1"),
        ("policy", "btv", "Did you mean btu?"),
        ("types.0.colour", "red", "unknown field `colour`"),
    ],
)
def test_a_wrong_value_is_named_with_its_place(path: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        plan(read_plan_file(changed(path, value)))
    assert message in str(raised.value)


def test_a_type_larger_than_any_offer_is_refused() -> None:
    document = json.loads(json.dumps(EXAMPLE))
    document["offer"] = {"cpu": 500, "memory": 7168, "cost": 1}
    with pytest.raises(ConfigurationError, match="parse needs 660 shares of CPU; the largest machine on offer has 500"):
        plan(read_plan_file(json.dumps(document).encode()))


def test_the_example_starts_a_delayed_type_and_releases_a_host_in_its_window() -> None:
    answer = plan(read_plan_file(json.dumps(EXAMPLE).encode()))
    assert answer["up_trigger"]["parse"] == {"fires": True, "prediction_ms": 1760.0}
    assert answer["window_s"] == 180
    assert [(action["do"], action.get("host") or action["to"]) for action in answer["actions"]] == [
        ("start", "h2"),
        ("migrate", "h2"),
        ("migrate", "h2"),
        ("release", "h1"),
    ]


def test_a_full_cluster_leases_a_host_like_the_largest_one() -> None:
    document = json.loads(json.dumps(EXAMPLE))
    document["hosts"] = [
        {
            "name": "h1",
            "cpu": 1500,
            "memory": 7168,
            "cost": 6,
            "paid_until_s": 9000,
            "instances": {"parse": 2, "report": 1},
        }
    ]
    actions = plan(read_plan_file(json.dumps(document).encode()))["actions"]
    assert [action["do"] for action in actions] == ["lease", "start"]
    assert actions[1] == actions[1] | {"type": "parse", "host": "new-1"}
    assert actions[1]["why"].endswith("it starts when the host runs")
