from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
import subprocess
import time
from pathlib import Path

import nh3
import pytest
from playwright.async_api import Browser, BrowserContext, Page, Route, expect

from ..history.hostile_content import HOSTILE_TEXTS
from ..interop.opencode import DATABASE, opencode_binary
from ..server.kit_server import program
from ..server.serving import SCRIPTED
from .test_live import is_idle, markup, messages, open_session, prompt, prompts, start
from .web_server import WebServer, web_server

pytestmark = pytest.mark.asyncio(loop_scope="module")
SPLITS = (1, 2, 5, 7)
TAGS = set(
    "p br a i span code pre figure figcaption button ul ol li table thead tbody tr th td div strong em s h3 h4 h5 h6 "
    "hr blockquote".split()
)
ELEMENT = re.compile(r"<[a-z][a-z0-9]*")


async def agrees(page: Page, server: WebServer, session_id: str) -> None:
    """The page shows every message of the session once, in order, with its text."""
    stored = messages(server, session_id)
    expected = [f"t-{message['info']['id']}" for message in stored]
    await expect(page.locator("#log .turn")).to_have_count(len(expected))
    assert await page.locator("#log .turn").evaluate_all("turns => turns.map(turn => turn.id)") == expected
    for message in stored:
        for part in message["parts"]:
            if part["type"] == "text":
                await expect(page.locator(f"#p-{part['id']}")).to_have_text(part["text"])


async def two_browsers(chromium: Browser, server: WebServer, session_id: str) -> tuple[Page, Page]:
    """Open a session in two browsers that share nothing."""
    pages = [await (await chromium.new_context()).new_page() for _ in range(2)]
    for page in pages:
        await server.enter(page)
        await open_session(page, server, session_id)
    return pages[0], pages[1]


async def agree(server: WebServer, session_id: str, *pages: Page) -> None:
    """All pages show what is stored, in the same elements."""
    for page in pages:
        await is_idle(page)
        await agrees(page, server, session_id)
    assert await markup(pages[0]) == await markup(pages[1])


async def disconnect(page: Page) -> None:
    await page.context.route("**/history/events*", lambda route: route.abort())
    await page.evaluate("dispatchEvent(new Event('online'))")  # connects anew, in vain
    await expect(page.locator(".run-state")).to_contain_text("Connection lost")


class Terminal:
    """OpenCode's own terminal client in a session, on the screen of a terminal of its own."""

    def __init__(self, server: WebServer, session_id: str) -> None:
        self._socket = f"opensesh-{os.getpid()}-{session_id}"
        home = server.home / "terminal"
        home.mkdir()
        disabled = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")
        environ = {"PATH": os.environ["PATH"], "TERM": "xterm-256color", "LANG": "C.UTF-8", "HOME": str(home)}
        environ |= {f"OPENCODE_DISABLE_{name}": "1" for name in disabled}
        words = ["env", "-i", *(f"{name}={value}" for name, value in environ.items())]
        words += [str(opencode_binary(DATABASE)), "attach", server.url, "--dir", str(server.project), "-s", session_id]
        self.tmux("new-session", "-d", "-x", "140", "-y", "60", shlex.join(words))

    def tmux(self, *words: str) -> str:
        done = subprocess.run([program("tmux"), "-L", self._socket, *words], capture_output=True, text=True, check=True)
        return done.stdout

    async def sees(self, *texts: str) -> None:
        """Wait until the screen shows texts, in this order."""
        pattern = re.compile(".*".join(map(re.escape, texts)), re.DOTALL)
        deadline = time.monotonic() + 120
        while not pattern.search(screen := self.tmux("capture-pane", "-p")):
            assert time.monotonic() < deadline, screen
            await asyncio.sleep(0.1)

    async def prompt(self, text: str) -> None:
        self.tmux("send-keys", "-l", text)
        await self.sees(text)
        self.tmux("send-keys", "Enter")


async def recovers(browser: Browser, home: Path) -> None:
    context = await browser.new_context()
    page = await context.new_page()
    with web_server(home) as server:
        await server.enter(page)
        session_id = server.create("SAY Before.", title="Recovers")
        await open_session(page, server, session_id)
        await prompt(page, "SPLIT 1\nDRIP 0.02\nSAY This answer is cut off in the middle\nHANG")
        await expect(page.locator("#log .turn.answer").last).to_contain_text("cut off in the middle")
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
        await expect(page.locator(".run-state")).to_contain_text("Connection lost")
        await expect(page.locator(".send")).to_be_disabled()
        await page.locator("#prompt").fill("SAY After the restart.")
        port = server.url.rpartition(":")[2]
    with web_server(home, "--port", port) as server:
        await expect(page.locator("html")).not_to_have_attribute("data-run", "lost")
        await page.locator("#prompt").press("Enter")
        await expect(page.locator("#log .turn.answer").last).to_contain_text("After the restart.")
        await is_idle(page)
        await agrees(page, server, session_id)
        assert [text.rpartition("\n")[2] for text in prompts(server, session_id)] == [
            "SAY Before.", "HANG", "SAY After the restart."]  # fmt: skip
    await context.close()


async def test_a_page_recovers_from_a_killed_server_without_a_reload(chromium: Browser, tmp_path: Path) -> None:
    await recovers(chromium, tmp_path)


async def test_two_browsers_agree_also_after_one_was_disconnected(chromium: Browser, server: WebServer) -> None:
    session_id = server.create("SAY Ready.", title="Two browsers")
    one, other = await two_browsers(chromium, server, session_id)
    await prompt(one, "SPLIT 3\nSAY From one.")
    await expect(other.locator("#log .turn.answer").last).to_contain_text("From one.")
    await agree(server, session_id, one, other)
    await disconnect(other)
    await prompt(one, "SPLIT 2\nSAY Missed by the other.")
    await expect(one.locator("#log .turn.answer").last).to_contain_text("Missed by the other.")
    await other.context.unroute("**/history/events*")
    await expect(other.locator("#log .turn.answer").last).to_contain_text("Missed by the other.")
    await prompt(other, "SPLIT 2\nSAY From the other.")
    await expect(one.locator("#log .turn.answer").last).to_contain_text("From the other.")
    await agree(server, session_id, one, other)
    for page in (one, other):
        await page.context.close()


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_two_browsers_and_the_terminal_client_agree_also_after_lost_connections(
    chromium: Browser, tmp_path: Path
) -> None:
    with web_server(tmp_path) as server:
        models = {"prompt": {"name": "Prompt"}}
        provider = {"npm": "@ai-sdk/openai-compatible", "options": {"apiKey": "none"}, "models": models}
        (server.project / "opencode.json").write_text(json.dumps({"provider": {"scripted": provider}}))
        session_id = server.create("SAY Ready.", title="Shared")
        one, other = await two_browsers(chromium, server, session_id)
        terminal = Terminal(server, session_id)
        try:
            await terminal.sees("Ready.", "ctrl+p commands")
            await terminal.prompt("SAY From the terminal.")
            for page in (one, other):
                await expect(page.locator("#log .turn.answer").last).to_contain_text("From the terminal.")
            await agree(server, session_id, one, other)
            await prompt(one, "SPLIT 1\nDRIP 0.02\nSAY From a browser, in pieces.")
            await terminal.sees("SAY From the terminal.", "From the terminal.", "From a browser, in pieces.")
            await disconnect(other)
            await terminal.prompt("SAY Missed by one browser.")
            await terminal.sees("From a browser, in pieces.", "SAY Missed by one browser.", "Missed by one browser.")
            await other.context.unroute("**/history/events*")
            await is_idle(other)  # not disconnected any more
            await prompt(other, "SAY All three.")
            await terminal.sees("Missed by one browser.", "SAY All three.", "All three.")
            await agree(server, session_id, one, other)
            port = server.url.rpartition(":")[2]
            server.process.send_signal(signal.SIGKILL)
            server.process.wait()
            await expect(one.locator(".run-state")).to_contain_text("Connection lost")
            with web_server(tmp_path, "--port", port) as again:
                await expect(one.locator("html")).not_to_have_attribute("data-run", "lost")
                await prompt(one, "SAY After the restart.")
                await terminal.sees("All three.", "SAY After the restart.", "After the restart.")
                await agree(again, session_id, one, other)
        finally:
            terminal.tmux("kill-server")
        for page in (one, other):
            await page.context.close()


async def test_a_prompt_that_was_sent_into_a_lost_connection_arrives_once(chromium: Browser, server: WebServer) -> None:
    context = await chromium.new_context()
    page = await context.new_page()
    await server.enter(page)
    session_id = server.create("SAY Ready.", title="Once")
    await open_session(page, server, session_id)
    attempts = 0

    async def lose(route: Route) -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 2:
            await route.fetch()  # the server has it, but its answer is lost
        await route.abort()

    await context.route("**/prompt_async", lose)
    await page.locator("#prompt").fill("SAY Exactly once.")
    await page.locator("#prompt").press("Enter")
    await expect(page.locator("#log .turn.answer").last).to_contain_text("Exactly once.")
    await expect(page.locator("#prompt")).to_have_value("")
    await is_idle(page)
    assert prompts(server, session_id) == ["SAY Ready.", "SAY Exactly once."]
    assert attempts == 2
    await context.close()


async def test_eight_tabs_share_one_stream_and_survive_the_tab_that_reads_it(
    context: BrowserContext, page: Page, server: WebServer
) -> None:
    sessions = [server.create("SAY Ready.", title=f"Tab {number}") for number in range(2)]
    tabs = [page] + [await context.new_page() for _ in range(7)]
    for number, tab in enumerate(tabs):
        await open_session(tab, server, sessions[number % 2])
    for session_id in sessions:
        start(server, session_id, f"SPLIT 2\nSAY For {session_id}.")
    for number, tab in enumerate(tabs):
        await expect(tab.locator("#log .turn.answer").last).to_contain_text(f"For {sessions[number % 2]}.")
    await tabs[0].close()
    start(server, sessions[1], "SAY Without the first tab.")
    for tab in tabs[1::2]:
        await expect(tab.locator("#log .turn.answer").last).to_contain_text("Without the first tab.")
        await agrees(tab, server, sessions[1])


async def streams_hostile_text(page: Page, server: WebServer, text: str, split: int, session_id: str) -> None:
    indented = "".join(f"  {line}\n" for line in text.split("\n"))
    answers = page.locator("#log .turn.answer")
    count = await answers.count()
    start(server, session_id, f"SPLIT {split}\nSAY\n{indented}")
    await expect(answers).to_have_count(count + 1)
    await is_idle(page)
    part = answers.last.locator(".part.text:not(.streaming)")
    await expect(part).to_have_count(1)
    # nh3 removes what is not in the closed sets: the same number of elements and attributes means that nothing was.
    html = await part.inner_html()
    plain = {"class", "tabindex", "role", "aria-label", "type", "data-n", "start"}
    attributes = dict.fromkeys(TAGS, plain) | {"a": {"href", "target"}}
    clean = nh3.clean(html, tags=TAGS, attributes=attributes, link_rel="noopener noreferrer nofollow")
    assert sorted(ELEMENT.findall(clean)) == sorted(ELEMENT.findall(html)), html


@pytest.mark.parametrize("split", [3, *(pytest.param(split, marks=pytest.mark.slow) for split in SPLITS)])
async def test_hostile_text_that_is_streamed_in_pieces_stays_text(page: Page, server: WebServer, split: int) -> None:
    session_id = server.create("SAY Ready.", title="Hostile")
    await open_session(page, server, session_id)
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    texts = [text for text in HOSTILE_TEXTS if "\x00" not in text and "\r" not in text]
    for text in texts if split != 3 else texts[::4]:
        await streams_hostile_text(page, server, text, split, session_id)
    assert await page.evaluate("window.pwned") is None
    assert dialogs == []
    await expect(page.locator("#log script, #log iframe, #log svg, #log form, #log base, #log meta")).to_have_count(0)


@pytest.mark.slow
async def test_a_page_reconnects_when_the_server_stands_still(chromium: Browser, tmp_path: Path) -> None:
    context = await chromium.new_context()
    page = await context.new_page()
    with web_server(tmp_path) as server:
        await server.enter(page)
        session_id = server.create("SAY Before.", title="Frozen")
        await open_session(page, server, session_id)
        os.kill(server.process.pid, signal.SIGSTOP)
        try:
            await expect(page.locator(".run-state")).to_contain_text("Connection lost", timeout=60_000)
        finally:
            os.kill(server.process.pid, signal.SIGCONT)
        await is_idle(page)
        await prompt(page, "SAY Moves again.")
        await expect(page.locator("#log .turn.answer").last).to_contain_text("Moves again.")
        await agrees(page, server, session_id)
    await context.close()


@pytest.mark.slow
async def test_a_page_that_missed_too_many_events_reads_everything_again(chromium: Browser, tmp_path: Path) -> None:
    context = await chromium.new_context()
    page = await context.new_page()
    with web_server(tmp_path) as server:
        await server.enter(page)
        session_id = server.create("SAY Before.", title="Overflow")
        await open_session(page, server, session_id)
        await disconnect(page)
        body = {"model": SCRIPTED, "parts": [{"type": "text", "text": f"SPLIT 1\nSAY {'word ' * 2000}The last word."}]}
        await asyncio.to_thread(server.post, f"/session/{session_id}/message", body)
        await context.unroute("**/history/events*")
        await expect(page.locator("#log .turn.answer").last).to_contain_text("The last word.")
        await is_idle(page)
        await agrees(page, server, session_id)
    await context.close()


@pytest.mark.slow
async def test_recovery_holds_again_and_again(chromium: Browser, tmp_path: Path) -> None:
    for number in range(3):
        await recovers(chromium, tmp_path / str(number))
