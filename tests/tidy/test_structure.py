"""The checks of the structure find what is planted."""

from pathlib import Path

from tools import structure


def _house(root: Path, files: dict[str, str]) -> list[str]:
    for name, text in files.items():
        path = root / "shop" / "agiledart_shop" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return ["shop/agiledart_shop"]


def test_an_indirect_import_cycle_is_found_even_in_a_function(tmp_path: Path) -> None:
    packages = _house(
        tmp_path,
        {
            "__init__.py": "",
            "a.py": "from agiledart_shop.b import x\n",
            "b.py": "from agiledart_shop import c\nx = 1\n",
            "c.py": "def late():\n    from agiledart_shop.a import y\n",
            "d.py": "import agiledart_shop.a\n",
        },
    )
    (problem,) = structure.check_circles(tmp_path, packages)
    assert problem == "circle of imports: agiledart_shop.a, agiledart_shop.b, agiledart_shop.c"


def test_a_duplicate_name_and_an_unnecessary_exception_are_found(tmp_path: Path) -> None:
    packages = _house(tmp_path, {"one/till.py": "", "two/till.py": "", "one/messages.py": "", "two/messages.py": ""})
    problems = structure.check_names(tmp_path, packages)
    assert [line for line in problems if "till" in line] == [
        "shop/agiledart_shop/one/till.py, shop/agiledart_shop/two/till.py: one name, several meanings"
    ]
    assert not any("messages" in line for line in problems)
    assert len(problems) == 1 + len(structure.SAME_NAMES)
