"""Packages: bill of materials, extras that have wheels, and the page that names those that have none."""

import json
import tomllib
from pathlib import Path

import pytest
from tools import wheels
from tools.sbom import bill_of_materials
from tools.wheels import PAGE, page, requirements_of, without_wheel

ROOT = Path(__file__).parents[3]


def distribution(folder: Path, name: str, *lines: str) -> None:
    about = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(
        "\n".join(["Metadata-Version: 2.4", f"Name: {name}", "Version: 1.0", *lines]) + "\n"
    )


def test_the_bill_of_materials_names_parts_and_their_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    distribution(
        tmp_path,
        "agiledart",
        "License-Expression: Apache-2.0",
        "Requires-Dist: Some_Thing>=1",
        "Requires-Dist: gone; extra == 'x'",
    )
    distribution(tmp_path, "some-thing", "Classifier: License :: OSI Approved :: BSD License")
    bill = bill_of_materials(tmp_path)
    assert bill["metadata"]["timestamp"] == "1970-01-02T00:00:00Z"
    assert bill["metadata"]["component"]["purl"] == "pkg:pypi/agiledart@1.0"
    (part,) = bill["components"]
    assert (part["name"], part["licenses"]) == ("some-thing", [{"license": {"name": "BSD License"}}])
    assert bill["dependencies"][0] == {"ref": "pkg:pypi/agiledart@1.0", "dependsOn": ["pkg:pypi/some-thing@1.0"]}
    assert json.dumps(bill) == json.dumps(bill_of_materials(tmp_path))


def test_every_extra_stands_on_the_page_with_its_requirements() -> None:
    written = (ROOT / PAGE).read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    rows = [line for line in page({}, requirements_of(project)).splitlines() if line.startswith("| ")]
    for row in rows:
        assert row.rpartition(" | ")[0] in written, "run: python -m tools.wheels"


def test_an_extra_that_names_others_has_their_requirements() -> None:
    extras = {"a": ["x>=1"], "b": ["agiledart[a]", "y"], "dev": ["z"]}
    assert requirements_of({"dependencies": ["core"], "optional-dependencies": extras}) == {
        "": ["core"], "a": ["x>=1"], "b": ["x>=1", "y"],
    }  # fmt: skip


def test_each_distribution_without_a_wheel_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    without = {"zfec<2,>=1.6": "zfec<2", "libp2p==0.8.1": "fastecdsa==2.3"}

    def resolve(requirements: list[str], python: str, machine: str) -> str:
        for text in requirements:
            if python == "3.13" and text in without:
                return f"ERROR: No matching distribution found for {without[text]}\n"
        return ""

    monkeypatch.setattr(wheels, "_resolve", resolve)
    texts = ["click>=8", "zfec<2,>=1.6", "libp2p==0.8.1"]
    assert without_wheel(texts, "3.12", "aarch64") == []
    assert without_wheel(texts, "3.13", "aarch64") == ["zfec", "fastecdsa"]
    made = page({("", "3.13", "aarch64"): ["zfec"], ("", "3.12", "x86_64"): []}, {"": ["zfec<2,>=1.6"]})
    assert "| (none) | `zfec<2,>=1.6` | `zfec`: aarch64 3.13 |" in made


def test_an_index_that_does_not_answer_is_no_missing_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheels, "_resolve", lambda *_: "ERROR: connection refused")
    with pytest.raises(OSError, match="connection refused"):
        without_wheel(["click"], "3.13", "x86_64")
