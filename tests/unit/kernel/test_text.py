"""Text from elsewhere: characters that control a terminal are escaped, all else stays."""

from agiledart_kernel.text import harmless, harmless_document, harmless_lines


def test_letters_of_all_languages_stay() -> None:
    assert harmless("Zähler ≤ 5 · 温度 🚕") == "Zähler ≤ 5 · 温度 🚕"


def test_terminal_control_characters_are_escaped() -> None:
    assert harmless("\x1b[2J\x9b1m\u202eabc\x7f\n") == "\\x1b[2J\\x9b1m\\u202eabc\\x7f\\x0a"
    assert harmless_lines("a\n\tb\r\x1b") == "a\n\tb\\x0d\\x1b"


def test_a_document_is_escaped_including_its_keys() -> None:
    document = {"\x1bkey": ["\x07", {"n": 1, "x": None}], "t": True}
    assert harmless_document(document) == {"\\x1bkey": ["\\x07", {"n": 1, "x": None}], "t": True}
