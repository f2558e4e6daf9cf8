"""`agiledart web` in front of real agents; where there is a Chromium, it shows the page."""

import http.client
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.mesh import Mesh, cli, mesh, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
AXE = Path(os.environ.get("AGILEDART_AXE", "node_modules/axe-core/axe.min.js"))
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip

CODE = """
from typing import NamedTuple

from agiledart import Sink, Source, Topology


class Reading(NamedTuple):
    at: int
    text: str


def build(readings: Source[Reading], report: Sink[Reading], name: str = "rooms") -> Topology:
    topology = Topology(name)
    rows = topology.source("readings", readings, event_time=lambda reading: reading.at)
    rows.filter(lambda reading: reading.at >= 0, name="kept").sink("report", report)
    return topology
"""

HOSTILE = "<img src=x onerror=document.title='owned'>"


needs_browser = pytest.mark.skipif(
    CHROMIUM is None or find_spec("playwright") is None,
    reason="no Chromium or Playwright here (Debian: apt install chromium; pip install playwright)",
)


@pytest.fixture(scope="module")
def ring() -> Iterator[Mesh]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGILEDART_AGENT__WEB", "true")
        with mesh(3) as made:
            yield made


class Tab:
    """A page of Chromium; notes what it complains about and what it requests.

    Args:
        tab: of Playwright.
    """

    def __init__(self, tab: Any) -> None:
        self.tab = tab
        self.complaints: list[str] = []
        self.urls: list[str] = []
        tab.on("console", lambda message: self.complaints.append(message.text) if message.type == "error" else None)
        tab.on("pageerror", lambda error: self.complaints.append(str(error)))
        tab.on("request", lambda request: self.urls.append(request.url))

    def is_clean(self, *origins: str) -> bool:
        """Whether it complained about nothing and requested nothing from elsewhere."""
        assert self.complaints == []
        return all(url.startswith(origins) for url in self.urls)


@contextmanager
def chromium() -> Iterator[Tab]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as drivers:
        browser = drivers.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield Tab(browser.new_page(viewport={"width": 380, "height": 800}))
        browser.close()


@contextmanager
def page(ring: Mesh, *words: str) -> Iterator[str]:
    """Start `agiledart web`; yields the address that it prints."""
    program = [sys.executable, "-m", "agiledart_cli.main", "web", "--no-open", *words]
    process = subprocess.Popen(
        [*program, "--agent", str(ring.agents[0].state_dir)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        assert process.wait(20) == 143


def submit(ring: Mesh, folder: Path, name: str) -> None:
    (folder / "rooms.py").write_text(CODE)
    (folder / "rows.csv").write_text("".join(f"{number * 10},{HOSTILE}\n" for number in range(12_000)))
    told = cli(
        "submit", "rooms.py:build", "--set", f"readings=csv:{folder / 'rows.csv'}?speed=1@a1",
        "--set", f"report=log:{name}@a2", "--set", f"name={name}", "--agent", str(ring.agents[0].state_dir), cwd=folder,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr


class Browser:
    """Requests of a browser without a browser."""

    def __init__(self, address: str) -> None:
        self._host, token = address.removeprefix("http://").split("/#")
        status, headers, _ = self.post("/session", {"token": token})
        assert status == 200
        self._cookie = headers["Set-Cookie"].partition(";")[0]

    def post(self, path: str, body: Any) -> tuple[int, Any, Any]:
        connection = http.client.HTTPConnection(self._host, timeout=60)
        headers = {"Origin": f"http://{self._host}", "Cookie": getattr(self, "_cookie", "")}
        connection.request("POST", path, json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, json.loads(answer.read())

    def events(self, application: str = "") -> Iterator[dict[str, Any]]:
        connection = http.client.HTTPConnection(self._host, timeout=60)
        connection.request("GET", f"/events?application={application}", headers={"Cookie": self._cookie})
        for line in connection.getresponse():
            if line.startswith(b"data: "):
                yield json.loads(line.removeprefix(b"data: "))


def test_rates_and_rows_of_a_running_application_arrive(ring: Mesh, tmp_path: Path) -> None:
    submit(ring, tmp_path, "measured")
    with page(ring) as address:
        browser = Browser(address)
        for event in browser.events("measured"):
            steps = {line["step"]: line for line in event["details"].get("measured", {}).get("steps", ())}
            if steps and (steps["kept"]["out_rate"] or 0) > 0:
                break
        assert sorted(row["name"] for row in event["nodes"]) == ["a1", "a2", "a3"]
        assert event["details"]["measured"]["edges"] == [["readings", "kept"], ["kept", "report"]]

        def rows() -> list[Any]:
            status, _, told = browser.post("/read/tap", {"name": "measured", "step": "kept", "after": {}})
            assert status == 200
            return list(told["rows"])

        assert wait_for(rows, 30, "a sample of rows")[0]["row"]["text"] == HOSTILE
        assert browser.post("/read/recovery", {"name": "measured"})[0] == 200
        status, _, told = browser.post("/write/stop", {"name": "measured"})
        assert (status, "only reads" in told["error"]) == (409, True)
    with page(ring, "--write") as address:
        browser = Browser(address)
        status, _, told = browser.post("/write/stop", {"name": "measured", "now": True})
        assert (status, told["state"]) == (200, "stopped")


def test_a_page_of_an_agent_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    told = cli("web", "--no-open", "--agent", str(tmp_path / "none"))
    assert told.returncode == 3
    assert "Traceback" not in told.stderr


def page_processes() -> list[int]:
    """Processes of pages that agents have started."""
    pids = []
    for folder in Path("/proc").iterdir():
        with suppress(OSError):
            if b"agiledart_cli.web.page_program" in (folder / "cmdline").read_bytes():
                pids.append(int(folder.name))
    return pids


def get(address: str, accept: str) -> tuple[int, str]:
    """Status and Location of a request to the root of an agent's own port."""
    connection = http.client.HTTPConnection(address, timeout=60)
    connection.request("GET", "/", headers={"Accept": accept})
    answer = connection.getresponse()
    return answer.status, answer.headers.get("Location", "")


@needs_browser
def test_an_agent_starts_its_page_at_a_visit_only(ring: Mesh) -> None:
    agent = ring.agents[0]
    bookmark = (agent.state_dir / "web.address").read_text().strip()
    own = bookmark.removeprefix("http://").partition("/")[0]
    assert get(own, "application/openmetrics-text, */*;q=0.1")[0] == 404
    assert page_processes() == []
    with chromium() as seen:
        seen.tab.goto(bookmark)
        seen.tab.get_by_role("heading", name="3 nodes").wait_for(timeout=30_000)
        (pid,) = page_processes()
        origin = get(own, "text/html")[1]
        assert page_processes() == [pid]
        assert seen.is_clean(f"http://{own}/", origin)
    Browser(f"{origin}#{bookmark.partition('#')[2]}")  # the secret works again


FAILING = """

def broken(reading: Reading) -> bool:
    raise ValueError("the sensor is <b>upside down</b>")
"""


@needs_browser
def test_an_application_fails_and_is_submitted_again(
    ring: Mesh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # `agiledart web` takes files of this folder only
    lambda_text = "lambda reading: reading.at >= 0"
    Path("rooms.py").write_text(
        CODE.replace("def build", f"{FAILING.strip()}\n\n\ndef build").replace(lambda_text, "broken")
    )
    Path("rows.csv").write_text("".join(f"{number * 10},cold\n" for number in range(12_000)))
    with page(ring, "--write") as address, chromium() as seen:
        tab = seen.tab
        tab.goto(address)
        tab.get_by_role("link", name="Applications").click()
        tab.get_by_role("link", name="Submit an application").click()
        tab.get_by_label("Function that builds it").fill("rooms.py:build")
        tab.get_by_label("Settings").fill(
            f"readings=csv:{tmp_path / 'rows.csv'}?speed=1@a1\nreport=log:again@a2\nname=again"
        )
        for state in ("failed", "running"):
            tab.get_by_role("button", name="Show where it would run").click()
            tab.get_by_role("region", name="Placement").wait_for(timeout=60_000)
            tab.get_by_role("button", name="Submit rooms.py:build").click()
            tab.get_by_role("heading", name="again v").wait_for(timeout=60_000)
            tab.locator(".facts .state", has_text=state).first.wait_for(timeout=60_000)
            if state == "failed":
                tab.get_by_text("<b>upside down</b>").first.wait_for(timeout=30_000)
                Path("rooms.py").write_text(CODE)
                tab.get_by_role("link", name="Submit it again").click()
                expected = "document.querySelector('form').elements.target.value === 'rooms.py:build'"
                tab.wait_for_function(expected, timeout=30_000)
        tab.get_by_role("button", name="Stop …").click()
        tab.get_by_role("checkbox").check()
        tab.get_by_role("button", name="Stop it").click()
        tab.locator(".facts .state", has_text="stopped").first.wait_for(timeout=60_000)
        assert seen.is_clean(address.partition("#")[0])


def open_views(tab: Any, address: str, name: str) -> Iterator[str]:
    """Open one view after the other; yields the name of each once it is shown."""
    root = address.partition("#")[0]
    tab.goto(address)
    tab.get_by_role("heading", name="3 nodes").wait_for(timeout=60_000)
    yield "mesh"
    for view, role, shown in (
        ("applications", "region", "Applications"),
        (f"application/{name}", "img", f"Graph of {name}"),
        ("node/a1", "region", "Peers"),
        (f"logs/{name}", "heading", f"Output of {name}"),
        (f"recovery/{name}", "heading", "failure costs"),
        ("submit", "button", "Show where"),
    ):
        tab.goto(f"{root}#/{view}")
        tab.get_by_role(role, name=shown).wait_for(timeout=60_000)
        if view.startswith("application/"):
            tab.locator('path.first[d*="L"]').first.wait_for(state="attached", timeout=60_000)  # rates of two samples
        yield view.partition("/")[0]


@needs_browser
@pytest.mark.soak
@pytest.mark.skipif(not AXE.is_file(), reason="no axe here: npm install axe-core, or AGILEDART_AXE=…/axe.min.js")
def test_axe_has_no_serious_finding_in_any_view(ring: Mesh, tmp_path: Path) -> None:
    submit(ring, tmp_path, "read-aloud")
    with page(ring, "--write") as address, chromium() as seen:
        findings = []
        for view in open_views(seen.tab, address, "read-aloud"):
            for scheme in ("light", "dark"):
                seen.tab.emulate_media(color_scheme=scheme)
                seen.tab.evaluate(AXE.read_text())
                result = seen.tab.evaluate("axe.run()")
                serious = [found for found in result["violations"] if found["impact"] in ("serious", "critical")]
                findings += [(view, scheme, found["id"], found["nodes"][0]["html"][:200]) for found in serious]
        assert findings == []


@needs_browser
@pytest.mark.soak
@pytest.mark.skipif(
    "AGILEDART_SCREENSHOTS" not in os.environ, reason="AGILEDART_SCREENSHOTS=docs/images makes the docs' images"
)
def test_screenshots_of_the_docs_are_taken(ring: Mesh, tmp_path: Path) -> None:
    folder = Path(os.environ["AGILEDART_SCREENSHOTS"]).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    submit(ring, tmp_path, "rooms")
    with page(ring, "--write") as address, chromium() as seen:
        seen.tab.set_viewport_size({"width": 1000, "height": 700})
        for view in open_views(seen.tab, address, "rooms"):
            if view in ("mesh", "application"):
                seen.tab.screenshot(path=folder / f"web-{view}.png")
                assert (folder / f"web-{view}.png").stat().st_size > 10_000


@needs_browser
def test_chromium_shows_the_mesh_hostile_texts_and_a_killed_node(ring: Mesh, tmp_path: Path) -> None:
    submit(ring, tmp_path, "shown")
    with page(ring) as address, chromium() as seen:
        tab = seen.tab
        tab.goto(address)
        tab.get_by_role("heading", name="3 nodes").wait_for(timeout=30_000)
        assert tab.evaluate("document.documentElement.scrollWidth") <= 380
        tab.get_by_role("link", name="Applications").click()
        tab.get_by_role("region", name="Applications").get_by_role("link", name="shown").click()
        tab.get_by_role("img", name="Graph of shown").wait_for(timeout=30_000)
        tab.goto(address.partition("#")[0] + "#/tap/shown/kept")
        tab.get_by_text(HOSTILE).first.wait_for(timeout=30_000)
        assert tab.title() == "shown · AgileDart"
        assert tab.locator("img[src=x]").count() == 0
        tab.get_by_role("link", name="Mesh").click()
        ring.agent("a3").kill()
        tab.get_by_text("gone for").or_(tab.get_by_text("does not answer")).first.wait_for(timeout=60_000)
        assert seen.is_clean(address.partition("#")[0])
