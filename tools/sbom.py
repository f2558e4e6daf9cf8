"""Software bill of materials of an installed environment: CycloneDX 1.6, as JSON, from the metadata of its distributions.

    python -m tools.sbom SITE_PACKAGES > agiledart.cdx.json

The same environment and `SOURCE_DATE_EPOCH` give the same text.
"""

import datetime
import json
import os
import re
import sys
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

ROOT = "agiledart"
_NAME = re.compile(r"[A-Za-z0-9._-]+")


def bill_of_materials(folder: Path) -> dict[str, Any]:
    """Return the document about the distributions of a folder `site-packages`, among which `agiledart` is the subject."""
    installed = {_normal(item.metadata["Name"]): item for item in distributions(path=[str(folder)])}
    subject = installed[ROOT]
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat().replace("+00:00", "Z"),
            "component": {**_component(subject), "type": "application"},
        },
        "components": [_component(installed[name]) for name in sorted(installed) if name != ROOT],
        "dependencies": [
            {"ref": _reference(installed[name]),
             "dependsOn": [_reference(installed[other]) for other in _needed(installed[name], installed)]}
            for name in sorted(installed)
        ],
    }  # fmt: skip


def _component(about: Distribution) -> dict[str, Any]:
    reference = _reference(about)
    component = {
        "type": "library", "bom-ref": reference, "name": about.metadata["Name"], "version": about.version, "purl": reference,
    }  # fmt: skip
    expressions, names = about.metadata.get_all("License-Expression"), about.metadata.get_all("Classifier") or []
    licences = [name.rpartition(" :: ")[2] for name in names if name.startswith("License :: ")]
    if expressions:
        return {**component, "licenses": [{"expression": expressions[0]}]}
    return {**component, "licenses": [{"license": {"name": name}} for name in licences]} if licences else component


def _needed(about: Distribution, installed: dict[str, Distribution]) -> list[str]:
    """Return the installed distributions that this one names, those of its extras included."""
    names = {_normal(match[0]) for text in about.requires or () if (match := _NAME.match(text))}
    return sorted(names & installed.keys() - {_normal(about.metadata["Name"])})


def _reference(about: Distribution) -> str:
    return f"pkg:pypi/{_normal(about.metadata['Name'])}@{about.version}"


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    print(json.dumps(bill_of_materials(Path(sys.argv[1])), indent=1))
