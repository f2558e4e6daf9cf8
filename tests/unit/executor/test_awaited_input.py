"""Reports of an instance whose rows wait for a silent input: which sources are silent, and since when."""

from typing import NamedTuple

from agiledart import Topology, collect, records
from agiledart_dataflow.data.batch import Batch
from agiledart_dataflow.data.position import covering
from agiledart_dataflow.plan.stages import plan_stages
from agiledart_dataflow.runtime.instance import Instance
from agiledart_dataflow.runtime.program import compile_program
from agiledart_executor.instances.awaited_input import AwaitedInput
from agiledart_kernel.instants import SECOND


class Reading(NamedTuple):
    """A row."""

    at: int
    value: int


def merging_instance() -> Instance:
    """An instance behind two sources, of which one comes through a filter of its own."""
    made = Topology("two")
    payments, orders = (
        made.source(name, records([], row_type=Reading), event_time=lambda reading: reading.at)
        for name in ("payments", "orders")
    )
    payments.union(orders, name="both").sink("out", collect)
    program = compile_program(made, plan_stages(made.specification(), 1, "positions"))
    stage = next(stage.index for stage in program.plan.stages if len(program.plan.incoming(stage.index)) == 2)
    return Instance(program, stage, 0)


def test_the_report_names_the_silent_sources_and_since_when() -> None:
    instance, observed = merging_instance(), AwaitedInput()
    payments, orders = instance.inputs
    assert observed.figures(instance, 5 * SECOND, 105 * SECOND) is None
    position = (1, 1, 0, 0)
    instance.offer(*payments, Batch([Reading(1, 1)], [position], covering(position)))
    instance.work(lambda edge, target, batch: None)
    first = observed.figures(instance, 7 * SECOND, 107 * SECOND)
    silent = {"sources": ["orders"], "held": ["payments"], "since_ms": 107_000, "rows": 1}
    assert first == {**silent, "silent_ms": 0}
    assert observed.figures(instance, 59 * SECOND, 159 * SECOND) == {**silent, "silent_ms": 52_000}
    instance.offer(*orders, Batch([], [], covering((0, 1, 1, 0))))
    instance.work(lambda edge, target, batch: None)
    later = observed.figures(instance, 60 * SECOND, 160 * SECOND)
    assert later is not None
    assert later["since_ms"] == 160_000, "its time has passed a little"
    instance.offer(*orders, Batch([], [], covering((2, 1, 1, 0))))
    instance.work(lambda edge, target, batch: None)
    assert observed.figures(instance, 61 * SECOND, 161 * SECOND) is None
