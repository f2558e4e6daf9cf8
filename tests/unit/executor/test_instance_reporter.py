"""Reports of an executor whose instances do little: figures with each second report, at once when something is new."""

from types import SimpleNamespace
from typing import Any

from agiledart_executor.programs.instance_reporter import QUIET_NS, InstanceReporter
from agiledart_executor.wire.agent_messages import InstanceName


def test_figures_of_quiet_instances_go_with_each_second_report() -> None:
    counts, sink = (SimpleNamespace(busy_ns=0, barrier=0, instance_name=InstanceName(stage, 0)) for stage in range(2))
    instances: list[Any] = [counts]
    reporter = InstanceReporter(lambda: instances, lambda _: None, lambda *_: None, lambda: None)
    assert not reporter.is_brief(7.51)  # the first figures of an instance wait for nothing
    assert not reporter.is_brief(8.01)
    assert reporter.is_brief(8.51)
    counts.busy_ns += QUIET_NS
    assert not reporter.is_brief(9.01)
    assert reporter.is_brief(9.51)
    counts.busy_ns += QUIET_NS + 1
    assert not reporter.is_brief(10.0)
    counts.busy_ns += QUIET_NS + 1
    assert not reporter.is_brief(10.51)
    instances.append(sink)
    assert not reporter.is_brief(11.51)
    assert reporter.is_brief(12.51)
    sink.barrier = 3
    assert not reporter.is_brief(12.51)
    assert reporter.is_brief(13.51)
