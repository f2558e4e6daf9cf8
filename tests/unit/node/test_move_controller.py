"""Decisions about moves: gain against cost, one a minute, back-off, users' moves, void figures."""

from dataclasses import replace

import msgspec
import pytest

from agiledart_dataflow.plan.specification import Specification
from agiledart_kernel.instants import SECOND
from agiledart_kernel.node_id import NodeId
from agiledart_node.live_placement.move_controller import (
    ADVISE,
    MOVE,
    NOTHING,
    OFF,
    ON,
    MoveController,
    MoveProposal,
    SmoothedFigures,
)
from agiledart_node.records.command_verifier import command_terms, moves_of
from agiledart_node.wire.commands import Submit
from tests.properties.test_admission_fuzzed import signed_command

LOOK = 30 * SECOND


def proposal(gain: float = 34.0, **fields: object) -> MoveProposal:
    """From 58 ms to 24 ms, at 100 rows/s."""
    usual: dict[str, object] = {"gained": gain / 1_000 * 100 * 600, "cost": 100 * 0.5**2 / 2}
    return MoveProposal("work", ("work",), NodeId(2), "b", 58.0, gain, **(usual | fields))  # type: ignore[arg-type]


def test_a_move_has_the_reason_that_metrics_show() -> None:
    more = (("next", NodeId(3), "c"),)
    assert [p.reason for p in (proposal(), proposal(others=more), proposal(others=more, ends_violation=True))] == [
        "gain",
        "plan",
        "rule",
    ]


def test_advice_moves_nothing_and_names_the_gain() -> None:
    decision = MoveController(ADVISE).decide(0, {}, [proposal()])
    assert (decision.action, decision.why) == (ADVISE, "it would gain 59% of 58")
    assert MoveController(OFF).decide(0, {}, [proposal()]).action == NOTHING


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"gain": 2.8}, "work to b gains 4.8%, less than 5%"),
        ({"gain": -3.0}, "work to b gains 0.0%, less than 5%"),
        ({"gained": 12.5}, "work to b gains 12.5 in 600 s and costs 12.5"),
        ({"gained": 0.0, "cost": 0.0}, "work to b gains 0 in 600 s and costs 0"),
    ],
)
def test_a_move_that_does_not_pay_is_none(fields: dict[str, float], why: str) -> None:
    decision = MoveController(ON).decide(0, {}, [proposal(**fields)])
    assert (decision.action, decision.why) == (NOTHING, why)


def test_rests_double_while_moves_follow_each_other_within_ten_minutes() -> None:
    controller, started = MoveController(ON), []
    for look in range(40):
        now = look * LOOK
        decision = controller.decide(now, {}, [proposal()])
        if decision.action == MOVE:
            started.append(look)
            controller.started(now, proposal())
            controller.finished(is_done=True)
    assert started == [0, 2, 4, 8, 16, 22, 26, 30, 36]
    waiting = controller.decide(39 * LOOK, {}, [proposal()])
    assert (waiting.action, waiting.why) == (ADVISE, "it would gain 59% of 58, waits: 4 minutes after 4 moves")
    assert controller.decide(39 * LOOK, {}, [proposal(ends_violation=True)]).action == MOVE


def test_an_instance_returns_to_a_node_that_it_left_only_after_ten_minutes_or_to_end_a_broken_constraint() -> None:
    """A link that is slow for 20 s of each 40 s draws its instance away once, not to and fro."""
    controller = MoveController(ON)
    away = MoveProposal("work", ("work",), NodeId(2), "b", 58.0, 34.0, origins=(NodeId(1),))
    back = MoveProposal("work", ("work",), NodeId(1), "a", 58.0, 34.0, origins=(NodeId(2),))
    controller.started(0, away)
    controller.finished(is_done=True)
    decision = controller.decide(19 * LOOK, {}, [back])
    assert (decision.action, decision.why) == (NOTHING, "work to a would return within 10 minutes")
    assert controller.left_nodes(19 * LOOK, "work") == {NodeId(1)}
    assert controller.left_nodes(19 * LOOK, "other") == frozenset()
    assert controller.decide(19 * LOOK, {}, [replace(back, ends_violation=True)]).action == MOVE
    assert controller.decide(20 * LOOK, {}, [back]).action == MOVE


def test_a_failed_move_leaves_no_node() -> None:
    controller = MoveController(ON)
    controller.started(0, MoveProposal("work", ("work",), NodeId(2), "b", 58.0, 34.0, origins=(NodeId(1),)))
    controller.finished(is_done=False)
    assert controller.left_nodes(LOOK, "work") == frozenset()


def test_only_the_share_counts_where_a_cost_has_no_unit() -> None:
    assert MoveController(ON).decide(0, {}, [proposal(gained=None, cost=None)]).action == MOVE


def test_the_end_of_a_broken_constraint_needs_no_gain_and_goes_first() -> None:
    mends = proposal(-9.0, ends_violation=True)
    decision = MoveController(ON).decide(0, {}, [proposal(), mends])
    assert (decision.action, decision.proposal) == (MOVE, mends)


def test_a_run_moves_once_a_minute_and_never_twice_at_a_time() -> None:
    controller = MoveController(ON)
    assert controller.decide(0, {}, [proposal()]).action == MOVE
    controller.started(0, proposal())
    assert controller.decide(LOOK, {}, [proposal()]).why == "its own move is under way"
    controller.finished(is_done=True)
    assert "one move a minute" in controller.decide(2 * LOOK - 2 * SECOND, {}, [proposal()]).why
    assert controller.decide(2 * LOOK - SECOND // 100, {}, [proposal()]).action == MOVE, (
        "surveys take longer and shorter"
    )


def test_failed_moves_wait_twice_as_many_looks_each_time_up_to_32() -> None:
    controller, now, waited = MoveController(ON), 0, []
    for _ in range(7):
        looks = 0
        while controller.decide(now, {}, [proposal()]).action != MOVE:
            looks, now = looks + 1, now + 2 * LOOK
        waited.append(looks)
        controller.started(now, proposal())
        controller.finished(is_done=False)
        now += 2 * LOOK
    assert waited == [0, 1, 2, 4, 8, 16, 32]
    while controller.decide(now, {}, [proposal()]).action != MOVE:
        now += 2 * LOOK
    controller.started(now, proposal())
    controller.finished(is_done=True)
    assert controller.decide(now + 2 * LOOK, {}, [proposal()]).action == MOVE, (
        "a move that is done forgets the failures"
    )


def test_a_run_that_cannot_change_now_keeps_its_wish_and_is_looked_at_again() -> None:
    controller, figures = MoveController(ON), {"rate": 1.0}
    decision = controller.decide(0, figures, [proposal()], "it is being restarted")
    assert (decision.action, decision.why) == (ADVISE, "it would gain 59% of 58, waits: it is being restarted")
    assert controller.is_due(figures)


def test_stages_that_a_user_has_moved_stay_with_all_that_must_run_together_with_them() -> None:
    linked = MoveProposal("work", ("work", "next"), NodeId(2), "b", 58, 34)
    assert MoveController(ON).decide(0, {}, [linked], held=["next"]).why == "a user has moved all that may move"


def test_a_look_is_due_when_a_figure_changes_by_a_tenth_or_appears_or_goes() -> None:
    controller = MoveController(ON)
    controller.decide(0, {"rate": 100.0, "node": 1.0}, [])
    assert not controller.is_due({"rate": 109.0, "node": 1.0})
    assert controller.is_due({"rate": 111.0, "node": 1.0})
    assert controller.is_due({"rate": 100.0})
    assert controller.is_due({"rate": 100.0, "node": 1.0, "other": 1.0})


def test_a_missing_figure_is_forgotten_and_never_averaged_with_0() -> None:
    smoothed = SmoothedFigures()
    assert smoothed.update({"delay": 10.0}) == {"delay": 10.0}
    assert smoothed.update({"delay": 20.0}) == {"delay": 13.0}
    assert smoothed.update({}) == {}
    assert smoothed.update({"delay": 20.0}) == {"delay": 20.0}


def test_the_users_word_about_moves_is_a_term_of_the_signed_command() -> None:
    specification = msgspec.msgpack.encode(Specification("x", ()))
    assert moves_of(signed_command(Submit("x", specification, b"", moves="on"))) == "on"
    assert moves_of(signed_command(Submit("x", specification, b""))) == ""
    assert moves_of(b"") == moves_of(b"nonsense") == ""
    with_word, without = (command_terms(Submit("x", b"", b"", moves=word)) for word in ("off", ""))
    assert with_word != without, "an agent that hands it over can change no word"
