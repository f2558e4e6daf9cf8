"""Addresses of executors: texts and what an agent makes of an executor's claim."""

from typing import Any, cast

import pytest

from agiledart_agent.executors.executor_process import ExecutorProcess
from agiledart_executor.wire.executor_address import ExecutorAddress
from agiledart_kernel.node_id import NodeId

EXECUTOR, ANOTHER = NodeId(77), NodeId(78)


@pytest.mark.parametrize("at_agent", [False, True])
def test_its_text_is_read_back(at_agent: bool) -> None:
    where = ExecutorAddress("[2001:db8::1]:9464", EXECUTOR, at_agent)
    assert ExecutorAddress.parse(where.text) == where


@pytest.mark.parametrize("text", ["192.0.2.1:1", f"192.0.2.1:1/{EXECUTOR.hex}/else", "192.0.2.1:1/nonsense"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        ExecutorAddress.parse(text)


def claimed(address: str, agent: str = "192.0.2.1:9464") -> str:
    """Address that the agent makes of a claim."""
    anything = cast(Any, None)
    process = ExecutorProcess("taxi", 1, 0, anything, anything, own_node=EXECUTOR, agent_address=agent)
    return process.address_at(address)


def test_user_code_chooses_a_port_of_its_own_machine_and_no_more() -> None:
    assert claimed(ExecutorAddress("198.51.100.1:40000", ANOTHER).text) == f"192.0.2.1:40000/{EXECUTOR.hex}"
    assert claimed(ExecutorAddress("198.51.100.1:40000", ANOTHER, at_agent=True).text) == (
        f"192.0.2.1:9464/{EXECUTOR.hex}/agent"
    )
    assert claimed(ExecutorAddress("[::1]:40000", EXECUTOR).text, "[2001:db8::1]:9464") == (
        f"[2001:db8::1]:40000/{EXECUTOR.hex}"
    )


@pytest.mark.parametrize("address", ["", "192.0.2.1:0/4d", "192.0.2.1:70000/4d", "192.0.2.1:1", "nonsense"])
def test_an_executor_without_a_port_is_nowhere(address: str) -> None:
    assert claimed(address) == ""
