"""Each finding that is mended or bounded has a probe and a lawful twin: else the suite could pass because everything fails."""

import ast
from pathlib import Path

import pytest

from tests.adversary.findings import FINDINGS, Outcome

TRIED = [number for number, finding in FINDINGS.items() if finding.outcome in (Outcome.MENDED, Outcome.BOUNDED)]


def marked(kind: str) -> set[int]:
    """Return the numbers of all findings that a test of this folder is marked with."""
    numbers: set[int] = set()
    for path in Path(__file__).parent.glob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            for decorator in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
                if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == kind:
                    numbers.update(ast.literal_eval(argument) for argument in decorator.args)
    return numbers


def test_there_are_thirty_findings() -> None:
    assert list(FINDINGS) == list(range(1, 31))


@pytest.mark.parametrize("kind", ["probe", "twin"])
def test_each_mended_finding_has_a_probe_and_a_lawful_twin(kind: str) -> None:
    assert set(TRIED) <= marked(kind) <= set(FINDINGS)


def test_no_open_finding_has_a_passing_probe_alone() -> None:
    assert marked("probe") - set(TRIED) == set(), "say what has become of it in FINDINGS"
