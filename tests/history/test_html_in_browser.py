from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from opensesh.history.import_export.destinations import to_folder
from opensesh.history.import_export.exporting import Export, Selection
from opensesh.storage.json_tree.store import JsonTree

from ..browser import Browser, needs_browser
from .sample_tree import Sample
from .test_html import HOSTILE, hostile_session

pytestmark = [needs_browser, pytest.mark.xdist_group("browser")]
LOUD = (
    "<script>window.pwned=1;alert(1)</script>",
    "<img src={there}/picture onerror=window.pwned=1>",
    "<link rel=stylesheet href={there}/style><style>@import '{there}/import'</style>",
    "<iframe src={there}/frame></iframe><object data={there}/object></object><embed src={there}/embed>",
    "<svg><script href={there}/svg /></svg><math href=javascript:window.pwned=1>x</math>",
    "<meta http-equiv=refresh content='0;url={there}/refresh'><base href={there}/base>",
    "![picture]({there}/markdown.png) [click](javascript:window.pwned=1)",
    "<video src={there}/video autoplay></video><audio src={there}/audio autoplay></audio>",
    "<body onload=window.pwned=1><details open ontoggle=window.pwned=1>x</details>",
    "</pre></section><form action={there}/form><input autofocus onfocus=window.pwned=1></form>",
)


class Listener(ThreadingHTTPServer):
    """A server elsewhere, which records every request of a page."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Listener)
        self.server.requests.append(self.path)
        self.send_response(404)
        self.end_headers()

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        return


@pytest.fixture
def elsewhere() -> Iterator[Listener]:
    listener = Listener()
    thread = Thread(target=listener.serve_forever, args=(0.05,))
    thread.start()
    yield listener
    listener.shutdown()
    thread.join()
    listener.server_close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    browser = Browser()
    yield browser
    browser.close()


def exported(sample: Sample, folder: Path) -> Path:
    to_folder(Export(JsonTree(sample.root), Selection(children=True), "html"), str(folder), lambda done, total: None)
    return folder


def unfold_all(browser: Browser) -> None:
    browser.click("#unfold")
    browser.until("[...document.querySelectorAll('details')].every(each => each.open)")


def test_nothing_that_a_session_says_runs_or_reaches_the_network(
    sample: Sample, browser: Browser, elsewhere: Listener, tmp_path: Path
) -> None:
    words = [item.format(there=elsewhere.address) for item in LOUD] + list(HOSTILE)
    sessions = [hostile_session(sample, word)["id"] for word in words]
    whole = hostile_session(sample, "\n\n".join(words))["id"]
    folder = exported(sample, tmp_path / "out")
    browser.look()
    pages = [folder / "index.html", folder / f"{whole}.html", *(folder / f"{name}.html" for name in sessions[:10])]
    for page in pages:
        browser.open(page)
        title = browser.ask("document.title")
        if page.name != "index.html":
            unfold_all(browser)
            browser.ask("document.getElementById('find').focus()")
            browser.type("script")
            browser.until("document.getElementById('found').textContent !== ''")
        assert browser.ask("window.pwned === undefined && document.scripts.length === 1")
        assert browser.ask("document.title") == title != "PWNED"
        assert browser.ask("document.querySelectorAll('iframe, object, embed, form, base, video, svg').length") == 0
        assert {request.split(":")[0] for request in browser.requests} <= {"file", "data"}
        assert [request for request in browser.requests if request.startswith("file:")] == [page.as_uri()]
        assert browser.dialogs == browser.complaints == []
    assert elsewhere.requests == []


def test_the_listener_detects_a_page_that_sends_requests(browser: Browser, elsewhere: Listener, tmp_path: Path) -> None:
    (tmp_path / "asks.html").write_text(f"<img src={elsewhere.address}/picture><script>window.pwned=1</script>")
    browser.open(tmp_path / "asks.html")
    assert browser.ask("window.pwned") == 1
    assert elsewhere.requests == ["/picture"]
    assert f"{elsewhere.address}/picture" in browser.requests


def test_even_unescaped_a_script_would_not_run(
    sample: Sample, browser: Browser, elsewhere: Listener, tmp_path: Path
) -> None:
    session = sample.talk("quiet")
    page = exported(sample, tmp_path / "out") / f"{session['id']}.html"
    foul = f"<script>window.pwned=1</script><img src={elsewhere.address}/x onerror=window.pwned=1><main>"
    page.write_text(page.read_text().replace("<main>", foul))
    browser.open(page)
    assert browser.ask("document.scripts.length") == 2
    assert browser.ask("window.pwned === undefined")
    assert elsewhere.requests == []
    assert any("Content Security Policy" in complaint for complaint in browser.complaints)


def test_a_search_shows_what_fits_and_unfolds_it(sample: Sample, browser: Browser, tmp_path: Path) -> None:
    session = sample.talk("findable", answers=3)
    answer = next(info for info in sample.messages(session) if info["role"] == "assistant")
    sample.tool(answer, output="a needle in hay")
    browser.look()
    browser.open(exported(sample, tmp_path / "out") / f"{session['id']}.html")
    shown = "[...document.querySelectorAll('article.turn')].filter(each => each.offsetParent !== null).length"
    assert browser.ask(shown) == 6
    browser.ask("document.getElementById('find').focus()")
    browser.type("NEEDLE hay")
    browser.until("document.getElementById('found').textContent === '1 of 6'")
    assert browser.ask(shown) == 1
    assert browser.ask("document.querySelector('details').open")
    assert browser.ask("[...CSS.highlights.get('found')].map(String).sort().join()") == "hay,needle"
    browser.ask("document.getElementById('find').select()")
    browser.type("nowhere")
    browser.until("document.getElementById('found').textContent === '0 of 6'")
    assert not browser.ask("document.querySelector('details').open")


def test_the_index_is_searched_and_leads_on(sample: Sample, browser: Browser, tmp_path: Path) -> None:
    sessions = [sample.talk(title) for title in ("pear", "quince", "plum")]
    folder = exported(sample, tmp_path / "out")
    browser.look()
    browser.open(folder / "index.html")
    browser.ask("document.getElementById('find').focus()")
    browser.type("quin")
    browser.until("document.getElementById('found').textContent === '1 of 3'")
    browser.click("tr:not(.hidden) td a")
    browser.until(f"location.href.endsWith('{sessions[1]['id']}.html')")


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1200, 360])
def test_nothing_sticks_out_and_words_stand_off_their_ground(
    sample: Sample, browser: Browser, tmp_path: Path, width: int, dark: bool
) -> None:
    session = sample.talk("a-title-without-a-space-" * 8, directory="/srv/" + "long" * 60)
    answer = sample.answer(session, "word " * 40 + "x" * 400 + "\n\n```\n" + "y" * 400 + "\n```\n\n- " + "z" * 300)
    sample.tool(answer, "bash", input={"command": "w" * 500}, output="v" * 900)
    folder = exported(sample, tmp_path / "out")
    browser.look(width=width, dark=dark)
    for name in (f"{session['id']}.html", "index.html"):
        browser.open(folder / name)
        assert browser.ask("document.documentElement.scrollWidth") <= width
        assert browser.ask(_CONTRAST) >= 4.5


_CONTRAST = """
(() => {
  const parse = colour => colour.match(/[\\d.]+/g).slice(0, 3).map(each => +each / 255);
  const light = colour => parse(colour).map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = each => { while (each) { const c = getComputedStyle(each).backgroundColor;
    if (c !== 'rgba(0, 0, 0, 0)') return c; each = each.parentElement; } return 'rgb(255, 255, 255)'; };
  let least = 21;
  for (const each of document.querySelectorAll('h1, .meta, .who, p, li, code, pre, summary, summary .tool, td a, th')) {
    const [a, b] = [light(getComputedStyle(each).color), light(ground(each))];
    least = Math.min(least, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05));
  }
  return least;
})()
"""
