"""Durations of waiting in reports: they begin with the first report that sees a state, and end with the first that does not."""

from agiledart_executor.instances.waiting_figures import MAX_TARGETS, WaitingFigures
from agiledart_kernel.instants import SECOND


def test_a_blocked_output_is_counted_until_it_has_credit_again() -> None:
    figures = WaitingFigures()
    seen = [
        figures.look(second * SECOND, receivers, is_sink_full=False, progress=None)
        for second, receivers in enumerate([[], [(2, 1)], [(2, 1), (2, 0)], [], [(2, 1)]])
    ]
    assert seen == [
        {},
        {"blocked_ms": 0, "blocked_by": [[2, 1]]},
        {"blocked_ms": 1_000, "blocked_by": [[2, 1], [2, 0]]},
        {},
        {"blocked_ms": 0, "blocked_by": [[2, 1]]},
    ]


def test_a_report_names_few_receivers() -> None:
    blocked_by = WaitingFigures().look(0, [(1, index) for index in range(100)], is_sink_full=False, progress=None)[
        "blocked_by"
    ]
    assert isinstance(blocked_by, list)
    assert len(blocked_by) == MAX_TARGETS


def test_a_full_sink() -> None:
    figures = WaitingFigures()
    figures.look(0, [], is_sink_full=True, progress=None)
    assert figures.look(5 * SECOND, [], is_sink_full=True, progress=None) == {"sink_full_ms": 5_000}


def test_a_source_is_silent_while_neither_lines_nor_event_time_advance() -> None:
    figures = WaitingFigures()

    def look(second: int, progress: tuple[int, int | None] | None) -> object:
        return figures.look(second * SECOND, [], is_sink_full=False, progress=progress).get("silent_ms")

    assert look(0, (0, None)) is None
    assert look(1, (0, None)) == 0
    assert look(2, (0, None)) == 1_000
    assert look(3, (9, 500)) is None, "lines came"
    assert look(4, (9, 900)) is None, "a clock let its event time pass"
    assert look(5, (9, 900)) == 0
    assert look(6, None) is None, "it waits itself"
    assert look(7, (9, 900)) is None
