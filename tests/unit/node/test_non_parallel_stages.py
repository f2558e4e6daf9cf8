"""Non-parallel stages are distinguished from those planned for one instance, with the reason."""

from typing import Any

import pytest

from agiledart_dataflow.plan.stages import plan_stages
from agiledart_node.context.node_context import CommandRefused
from agiledart_node.user_commands.non_parallel_stages import refuse_non_parallel
from agiledart_node.wire.commands import ScaleStage
from tests.unit.node.test_scaling_advice import job

SPECIFICATION = job().specification()
PLAN = plan_stages(SPECIFICATION, {"counts": (1, 4)})


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        ("rows", "rows runs once: it is a source."),
        ("best", "best runs once: it is a top, which has to see all rows."),
        ("out", "out runs once: it is a sink."),
        ("bset", "No stage 'bset' in job. Did you mean best?"),
    ],
)
@pytest.mark.parametrize("asked", [{"number": 2}, {"number": 0}, {"number": 1, "is_auto": True}])
def test_a_non_parallel_stage_is_refused_with_this_message(stage: str, words: str, asked: dict[str, Any]) -> None:
    with pytest.raises(CommandRefused) as refused:
        refuse_non_parallel(PLAN, SPECIFICATION, ScaleStage("job", stage, **asked))
    assert str(refused.value).startswith(words)
    assert refused.value.exit_code == 2


@pytest.mark.parametrize(("stage", "number"), [("best", 1), ("work", 2), ("counts", 9)])
def test_an_unchanged_or_parallel_stage_passes_the_check(stage: str, number: int) -> None:
    refuse_non_parallel(PLAN, SPECIFICATION, ScaleStage("job", stage, number))
