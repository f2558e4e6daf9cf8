"""A spreadsheet's CSV to a webhook by the how-to: its file, its one command, and a server that notes what comes."""

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "how-to" / "connect-your-data.md"


@pytest.fixture
def webhook() -> Iterator[tuple[str, list[Any]]]:
    """The address of a server, and the bodies that were posted to it."""
    bodies: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the base class's name
            """Print nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/alarm", bodies
        server.shutdown()


def test_a_spreadsheet_reaches_a_webhook_with_one_file_and_one_command(
    tmp_path: Path, webhook: tuple[str, list[Any]]
) -> None:
    url, bodies = webhook
    code = re.search(r"^```python\n(# keller\.py\n.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert code is not None
    (tmp_path / "keller.py").write_text(code[1])
    lines = [
        "Logger 7", "", "Zeit;Raum;Temperatur;Notiz", '01.06.2026 14:00;Küche;20,5;"neu\nkalibriert"',
        "01.06.2026 14:01;Küche;31,5;", "01.12.2026 14:02;Küche;1.031,5;", "01.12.2026 14:03;Küche;30,25;Tür; offen",
        '01.12.2026 14:04;Küche;30,25;"Tür; offen"',
    ]  # fmt: skip
    (tmp_path / "keller.csv").write_bytes("\r\n".join(lines).encode("cp1252"))
    words = [sys.executable, "-m", "agiledart_cli.main", "run", "keller.py:alarm", "--set", f"report={url}?body=row"]
    ran = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    assert bodies == [
        {"at": "2026-06-01T12:01:00", "room": "Küche", "celsius": 31.5, "note": None},
        {"at": "2026-12-01T13:04:00", "room": "Küche", "celsius": 30.25, "note": "Tür; offen"},
    ]
    assert "malformed" in ran.stderr
    assert "1.031,5" in ran.stderr
