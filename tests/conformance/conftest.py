"""Small inputs, many instances: rows take turns after every second one, or all would go to the first instance."""

import pytest

from agiledart_dataflow import partitioning


@pytest.fixture(autouse=True)
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two records of a source to one instance, the next two to the next."""
    monkeypatch.setattr(partitioning, "TURN_BITS", 1)
