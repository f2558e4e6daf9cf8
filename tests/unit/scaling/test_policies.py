"""Behaviour of each policy, case by case; and what becomes of the policies of users."""

from collections.abc import Sequence
from importlib import metadata
from importlib.metadata import EntryPoint

import pytest

from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.instants import MILLISECOND
from agiledart_scaling import registry
from agiledart_scaling.ask_policy import ask
from agiledart_scaling.limits import Limits
from agiledart_scaling.measures import StageMeasures
from agiledart_scaling.policies.ds2 import FLINK_SETTINGS, Ds2, Ds2Settings
from agiledart_scaling.policies.paper import Paper, PaperSettings
from agiledart_scaling.policies.secant import Secant, SecantSettings
from agiledart_scaling.registry import POLICIES, is_shipped, policy_named
from agiledart_scaling.scaling_policy import ScalingDecision, ScalingPolicy

LIMITS = Limits(1, 64)


def stage(
    instances: int, offered: Sequence[float], backlog: Sequence[float] = (0.0,), rate: float = 100.0
) -> StageMeasures:
    """Even shares of rows."""
    return StageMeasures((rate,) * instances, (1 / instances,) * instances, tuple(offered), tuple(backlog))


def decisions(
    policy: ScalingPolicy, intervals: Sequence[StageMeasures], limits: Limits = LIMITS
) -> list[ScalingDecision]:
    """One after the other, each with the memory of the one before."""
    memory: object = None
    made = []
    for measures in intervals:
        made.append(policy.decide(measures, limits, memory))
        memory = made[-1].memory
    return made


def test_secant_grows_at_once_when_every_second_was_short() -> None:
    (made,) = decisions(Secant(), [stage(4, [1200] * 5, [500] * 5)])
    assert made.wanted == 17, "(1,200 + 500/5) / 80 = 16.25"
    assert made.terms["f"] == pytest.approx(0.8 * 400 / 1300)
    assert "0.25" in made.why


def test_secant_waits_an_interval_when_only_some_seconds_were_short() -> None:
    mixed = stage(4, [100, 500, 500, 500, 500], [900, 950, 990, 999, 999])
    first, second = decisions(Secant(SecantSettings(burst_s=0)), [mixed, mixed])
    assert (first.wanted, second.wanted > 4) == (4, True)
    assert "1 of 2" in first.why


def test_secant_counts_a_backlog_as_far_as_it_stood_all_the_time() -> None:
    (made,) = decisions(Secant(), [stage(4, [300] * 5, [5000, 2000, 0, 700, 900])])
    assert made.terms["backlog"] == 0


def test_secant_ignores_a_burst() -> None:
    """The rate fits, and what stands is gone within 20 s."""
    made = decisions(Secant(), [stage(4, [300] * 5, [1500] * 5)] * 6)
    assert [one.wanted for one in made] == [4] * 6
    assert "gone in 15 s" in made[0].why
    made = decisions(Secant(), [stage(4, [300] * 5, [2500] * 5)] * 2)
    assert made[1].wanted > 4, "that would take 25 s"


def test_secant_shrinks_after_a_minute_to_what_its_busiest_interval_needs() -> None:
    calm, busy = stage(20, [300] * 5), stage(20, [700] * 5)
    made = decisions(Secant(), [calm] * 12)
    assert [one.wanted for one in made] == [20] * 11 + [5]
    made = decisions(Secant(), [calm, busy, *[calm] * 10])
    assert made[-1].wanted == 11, "700 / (100·0.8·0.85) = 10.3"


def test_secant_takes_at_most_four_times_plus_one() -> None:
    (made,) = decisions(Secant(), [stage(2, [10_000] * 5)])
    assert made.wanted == 9


def test_secant_uses_two_points_where_capacity_bends() -> None:
    """Each instance does less as they become more: the line through two trials, not through the origin."""
    made = decisions(
        Secant(SecantSettings(max_factor=64)), [stage(4, [1000] * 5, rate=100), stage(13, [1000] * 5, rate=70)]
    )
    assert made[0].wanted == 13
    slope = (13 * 70 - 4 * 100) / 9
    assert made[1].wanted == 19
    assert (1000 / 0.8 - 13 * 70) / slope + 13 == pytest.approx(19, abs=1)
    assert made[1].why.startswith("secant")


def test_secant_discards_its_trials_when_demand_moves() -> None:
    """The two points of the phase before would say that an instance more brings less than it does."""
    phase = [stage(4, [1000] * 5, rate=100), stage(13, [1000] * 5, rate=70)]
    (*_, same) = decisions(Secant(SecantSettings(max_factor=64)), [*phase, stage(14, [1050] * 5, rate=69)])
    (*_, new) = decisions(Secant(SecantSettings(max_factor=64)), [*phase, stage(13, [2000] * 5, rate=70)])
    assert same.why.startswith("secant")
    assert new.why.startswith("proportional")
    assert new.wanted == 36, "2,000 / (70·0.8) = 35.7"


def test_secant_at_its_limit_reports_it_and_an_idle_stage_shrinks_to_the_lower() -> None:
    (made,) = decisions(Secant(), [stage(4, [5000] * 5)], Limits(1, 4))
    assert made.wanted == 4
    assert "limit of 4" in made.why
    idle = decisions(Secant(), [stage(4, [0.0] * 5)] * 12, Limits(2, 8))
    assert [one.wanted for one in idle] == [4] * 11 + [2]
    assert "idle" in idle[-1].why


@pytest.mark.parametrize("name", POLICIES)
def test_a_stage_outside_its_limits_returns_within(name: str) -> None:
    policy = policy_named(name)
    assert decisions(policy, [stage(2, [300] * 5)], Limits(4, 8))[0].wanted >= 4
    assert decisions(policy, [stage(20, [300] * 5)] * 13, Limits(1, 8))[-1].wanted <= 8


def test_paper_shrinks_slowly_and_not_soon_after_a_change() -> None:
    settings = PaperSettings(smoothing=1.0)
    made = decisions(Paper(settings), [stage(10, [300]), stage(10, [300]), stage(10, [300])])
    assert [one.wanted for one in made] == [10, 10, 4], "κ leaves 10/2 - 1"


def test_the_papers_score_follows_from_the_figures_beside_it() -> None:
    """[AgileDART] IV-C: f = α·x·r/R + (1 - α)·x·q/Q."""
    for offered, waiting in ((300, 700), (800, 90), (410, 5_000)):
        (made,) = decisions(policy_named("paper"), [stage(4, [offered], [waiting])])
        t = made.terms
        f = t["weight"] * 4 * t["rate_each"] / t["offered"] + (1 - t["weight"]) * 4 * t["backlog_each"] / t["backlog"]
        assert t["f"] == pytest.approx(f, rel=1e-9)
        assert t["weight"] == 0.5


def test_paper_has_no_floor_and_paper_floor_has_one() -> None:
    """A small backlog hides that 4 instances of 100 rows/s take a third of what arrives."""
    wanted = {}
    for name in ("paper", "paper-floor"):
        (made,) = decisions(policy_named(name), [stage(4, [1_200], [60])])
        wanted[name] = made.wanted
    assert wanted["paper"] <= 4 < wanted["paper-floor"]


def test_paper_smooths_rate_and_backlog() -> None:
    made = decisions(Paper(), [stage(4, [400], [0]), stage(4, [800], [100])])
    assert made[1].terms["offered"] == 600
    assert made[1].terms["backlog"] == 50


def test_flinks_options_wait_and_ignore_a_wide_band() -> None:
    policy = Ds2(FLINK_SETTINGS)
    assert decisions(policy, [stage(4, [300])])[0].wanted == 4, "0.75 is within 0.7 ± 0.3"
    assert decisions(policy, [stage(4, [1200])])[0].wanted == 18


@pytest.mark.parametrize(
    "make",
    [
        lambda: SecantSettings(drain_s=0),
        lambda: SecantSettings(busy_share=1.1),
        lambda: SecantSettings(up_intervals=0),
        lambda: PaperSettings(floor="drian"),
        lambda: PaperSettings(weight=2),
        lambda: PaperSettings(smoothing=0),
        lambda: Ds2Settings(window=0),
    ],
)
def test_impossible_settings_are_rejected(make: object) -> None:
    assert callable(make)
    with pytest.raises(ConfigurationError):
        make()


# ---- policies of users


class Odd:
    """A policy that answers what it is given."""

    def __init__(self, answer: object) -> None:
        self.answer = answer

    def decide(self, measures: StageMeasures, limits: Limits, memory: object) -> ScalingDecision:
        """Whatever."""
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer  # type: ignore[return-value]


def asked(answer: object, took_ms: int = 1) -> ScalingDecision:
    """The decision that becomes of an answer; the clock goes on by so much while it is made."""
    clock = iter((0, took_ms * MILLISECOND))
    return ask("mine", Odd(answer), stage(3, [300]), Limits(1, 8), "kept", lambda: next(clock))


def test_a_valid_answer_is_used() -> None:
    answer = ScalingDecision(5, "because", {"f": 0.5}, "new")
    assert asked(answer) is answer


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (ZeroDivisionError("oh"), "raised ZeroDivisionError: oh"),
        (None, "returned NoneType instead of ScalingDecision"),
        (7, "returned int instead of"),
        (ScalingDecision(2.5, "half"), "'2.5' instances, which is not an integer"),  # type: ignore[arg-type]
        (ScalingDecision(True, "yes"), "not an integer"),
        (ScalingDecision(9, "many"), "returned 9 instances, outside the limits 1..8"),
        (ScalingDecision(0, "none"), "outside the limits"),
        (ScalingDecision(2, "x" * 201), "a reason that is not a text of at most 200"),
        (ScalingDecision(2, None), "a reason that is not a text"),  # type: ignore[arg-type]
        (ScalingDecision(2, "", {"f": float("nan")}), "'f' that is not finite"),
        (ScalingDecision(2, "", {"f": "1"}), "'f' that is not a number"),  # type: ignore[dict-item]
        (ScalingDecision(2, "", [("f", 1)]), "not a mapping"),  # type: ignore[arg-type]
    ],
)
def test_a_policy_with_an_invalid_answer_is_named_and_the_stage_unchanged(answer: object, words: str) -> None:
    made = asked(answer)
    assert made.wanted == 3
    assert made.memory == "kept"
    assert made.why.startswith("policy mine ")
    assert words in made.why
    assert made.why.endswith("the stage stays as it is")


def test_a_policy_that_is_late_is_named_too() -> None:
    assert asked(ScalingDecision(5, ""), 100).wanted == 5
    late = asked(ScalingDecision(5, ""), 101)
    assert late.wanted == 3
    assert "took 101 ms, at most 100" in late.why


def test_an_unknown_policy_is_rejected_with_a_suggestion() -> None:
    with pytest.raises(ConfigurationError, match="Did you mean secant"):
        policy_named("secent")


def loads(monkeypatch: pytest.MonkeyPatch, value: str, name: str = "mine") -> None:
    """A package brings a policy."""
    point = EntryPoint(name, value, registry.GROUP)
    monkeypatch.setattr(metadata, "entry_points", lambda group: [point] if group == registry.GROUP else [])


def test_a_package_provides_a_policy_by_its_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    loads(monkeypatch, "tests.unit.scaling.test_policies:mine")
    assert policy_named("mine").decide(stage(1, [1]), Limits(1, 2), None).wanted == 2
    assert not is_shipped("mine")
    assert is_shipped("secant")


def test_a_package_does_not_replace_a_shipped_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    loads(monkeypatch, "tests.unit.scaling.test_policies:mine", "secant")
    assert isinstance(policy_named("secant"), Secant)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("tests.nowhere:it", "could not be loaded: ModuleNotFoundError"),
        ("tests.unit.scaling.test_policies:broken", "could not be loaded: RuntimeError: no licence"),
        ("builtins:dict", "no method decide"),
    ],
)
def test_a_policy_that_cannot_be_loaded_is_named(monkeypatch: pytest.MonkeyPatch, value: str, words: str) -> None:
    loads(monkeypatch, value)
    with pytest.raises(ConfigurationError, match=f"'mine' of .*{words}"):
        policy_named("mine")


def mine() -> ScalingPolicy:
    """Value of a package's entry point."""
    return Odd(ScalingDecision(2, "always two"))


def broken() -> ScalingPolicy:
    """One that cannot be made."""
    raise RuntimeError("no licence")
