"""Settings of a gate: no money without limits, and no value that makes no sense."""

import pytest

from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.instants import SECOND
from agiledart_provisioning.gate.gate_settings import GateSettings


def settings(**values: object) -> GateSettings:
    given: dict[str, object] = {
        "mode": "act", "max_hosts": 2, "max_spend": 10, "offer": "small", "price": 1, "btu_ns": 600 * SECOND, **values,
    }  # fmt: skip
    return GateSettings(**given)  # type: ignore[arg-type]


def test_limits_that_are_given_are_accepted() -> None:
    settings().validate()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"max_hosts": 0}, "needs max_hosts"),
        ({"max_spend": 0}, "needs max_spend"),
        ({"mode": "atc"}, "Did you mean act"),
        ({"price": 0}, "price must be more than 0"),
        ({"price": -1}, "price must be more than 0"),
        ({"btu_ns": 0}, "btu_s must be more than 0"),
        ({"capacity": 0}, "capacity must be more than 0"),
        ({"window_ns": 600 * SECOND}, "window_s must be shorter"),
        ({"max_spend": 1}, "pays no host"),
        ({"mode": "advise", "max_hosts": -1}, "max_hosts must be more than 0"),
    ],
)
def test_wrong_values_are_refused_in_a_sentence(values: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        settings(**values).validate()


def test_advice_needs_no_limit() -> None:
    settings(mode="advise", max_hosts=0, max_spend=0).validate()
