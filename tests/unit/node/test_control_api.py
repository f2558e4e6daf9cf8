"""The documented bodies: schema files are up to date, and the reference names every field.

Rewrite the files after a change of `agiledart_node.wire.responses`:  python -m tests.unit.node.test_control_api
"""

from pathlib import Path

import msgspec
import pytest

from agiledart_node.wire.responses import RESPONSES, schema_text

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"


@pytest.mark.parametrize("name", RESPONSES)
def test_schema_file_is_up_to_date(name: str) -> None:
    assert (REFERENCE / "schemas" / f"{name}.json").read_text() == schema_text(name), __doc__


@pytest.mark.parametrize("name", RESPONSES)
def test_reference_names_every_field(name: str) -> None:
    text = (REFERENCE / "control-api.md").read_text()
    assert f"schemas/{name}.json" in text
    for field in msgspec.structs.fields(RESPONSES[name]):
        assert f"`{field.name}`" in text, f"{name}: {field.name} is not documented"


if __name__ == "__main__":
    (REFERENCE / "schemas").mkdir(parents=True, exist_ok=True)
    for schema in RESPONSES:
        (REFERENCE / "schemas" / f"{schema}.json").write_text(schema_text(schema))
