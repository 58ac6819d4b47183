from __future__ import annotations

import asyncio
import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, BrowserContext, Page, Route, expect

from ..server.serving import SCRIPTED
from .web_server import WebServer

pytestmark = pytest.mark.asyncio(loop_scope="module")
WAIT_MS = 30_000
expect.set_options(timeout=WAIT_MS)


@pytest.fixture(scope="module")
def guarded(server: WebServer) -> Path:
    """A project in which commands and edits need permission."""
    project = server.home / "guarded"
    project.mkdir()
    (project / "opencode.json").write_text('{"permission": {"bash": "ask", "edit": "ask"}}')
    (project / "parser.py").write_text("def parse(line):\n    return None\n")
    return project


async def open_session(page: Page, server: WebServer, session_id: str) -> None:
    await page.goto(f"{server.url}/ui/session/{session_id}")
    await expect(page.locator(".composer [name=agent]")).to_have_value("build")
    await expect(page.locator("html")).to_have_attribute("data-run", "idle")


async def prompt(page: Page, script: str) -> None:
    await page.locator("#prompt").fill(script)
    await page.locator("#prompt").press("Enter")
    await expect(page.locator("#prompt")).to_have_value("")


def start(server: WebServer, session_id: str, script: str) -> None:
    body = {"model": SCRIPTED, "parts": [{"type": "text", "text": script}]}
    server.post(f"/session/{session_id}/prompt_async", body)


def messages(server: WebServer, session_id: str) -> list[Any]:
    return server.http.get(f"/session/{session_id}/message").json()


def prompts(server: WebServer, session_id: str) -> list[str]:
    stored = [message for message in messages(server, session_id) if message["info"]["role"] == "user"]
    return [part["text"] for message in stored for part in message["parts"] if part["type"] == "text"]


async def is_idle(page: Page) -> None:
    await expect(page.locator("html")).to_have_attribute("data-run", "idle")


async def markup(page: Page) -> list[str]:
    turns = await page.locator("#log .turn").evaluate_all("turns => turns.map(turn => turn.outerHTML)")
    return [re.sub(r">\s+<", "><", turn) for turn in turns]


async def shows_the_end(page: Page) -> None:
    """Wait until nothing of the last turn is below the upper edge of the prompt box."""
    bottom = "document.querySelector('#log .turn:last-child').getBoundingClientRect().bottom"
    top = "document.querySelector('.dock').getBoundingClientRect().top"
    async with asyncio.timeout(WAIT_MS / 1000):
        while not await page.evaluate(f"{bottom} <= {top} + 1"):
            await asyncio.sleep(0.02)


async def is_usable(page: Page, axe: str, part: str = "html") -> None:
    """Fails for what axe finds in a page or a part of it, and for a page that scrolls sideways."""
    size = page.viewport_size
    assert size is not None
    # In a window as high as the page, neither the bar nor the prompt box covers a part of what is checked.
    await page.set_viewport_size({"width": size["width"], "height": 4000})
    await page.evaluate(axe + ";0")
    tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
    result = await page.evaluate(
        "([part, tags]) => axe.run(part, {runOnly: {type: 'tag', values: tags}})", [part, tags]
    )
    results = {one["id"]: [node["html"][:200] for node in one["nodes"]] for one in result["violations"]}
    assert results == {}
    assert await page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    await page.set_viewport_size(size)


async def test_the_end_stays_above_the_prompt_box_while_anything_grows(page: Page, server: WebServer) -> None:
    session_id = server.create("SAY " + "A line of the answer. " * 300, "SAY The last words.", title="Grows")
    kept = asyncio.Event()

    async def hold(route: Route) -> None:
        await kept.wait()
        await route.continue_()

    await page.context.route("**/config/providers*", hold)
    await page.goto(f"{server.url}/ui/session/{session_id}")
    await shows_the_end(page)
    kept.set()  # the choices of the box arrive long after the page
    await expect(page.locator(".composer [name=model] option").first).to_be_attached()
    await shows_the_end(page)
    await page.locator("#prompt").fill("a line\n" * 9)
    await shows_the_end(page)
    await page.evaluate(
        "document.querySelector('#log .turn:last-child').append(...document.querySelectorAll('.turn > .part'))"
    )
    await shows_the_end(page)
    await page.evaluate("document.querySelector('.dock').style.paddingTop = '150px'")
    await shows_the_end(page)
    await page.set_viewport_size({"width": 1280, "height": 500})
    await shows_the_end(page)
    await page.mouse.move(500, 200)
    await page.mouse.wheel(0, -400)
    await expect(page.locator("#log .turn").last).not_to_be_in_viewport(ratio=1)
    top = await page.evaluate("document.documentElement.scrollTop")
    start(server, session_id, "SAY " + "More. " * 300)
    await expect(page.locator(".jump-end")).to_contain_text("new")
    assert await page.evaluate("document.documentElement.scrollTop") == top
    await page.locator(".jump-end").click()
    await shows_the_end(page)
    await expect(page.locator(".jump-end")).to_be_hidden()


async def test_an_answer_streams_a_second_prompt_queues_and_esc_esc_stops(page: Page, server: WebServer) -> None:
    session_id = server.create("SAY Ready.", title="Streams")
    await open_session(page, server, session_id)
    await prompt(page, "SPLIT 1\nDRIP 0.05\nSAY One two three **four** five.\nHANG")
    log = page.locator("#log")
    await expect(log.locator(".turn.answer .streaming")).to_contain_text("One two")
    await expect(page.locator(".run-state")).to_contain_text("Running")
    await expect(log.locator(".streaming strong")).to_have_text("four")
    second = f"SAY {'The second. ' * 20}".strip()
    await prompt(page, second)
    await expect(page.locator(".queued")).to_contain_text(second)
    assert await page.locator(".dock").evaluate("dock => dock.scrollWidth <= dock.clientWidth")
    for action, text in (("Edit", second), ("Remove", "")):
        await page.get_by_role("button", name=action).click()
        await expect(page.locator(".queued")).to_be_hidden()
        await expect(page.locator("#prompt")).to_have_value(text)
        if text:
            await page.locator("#prompt").press("Enter")
            await expect(page.locator(".queued")).to_contain_text(text)
    await page.locator("#prompt").fill(second)
    await page.locator("#prompt").press("Enter")
    await expect(page.locator(".queued")).to_contain_text(second)
    await page.clock.set_fixed_time(await page.evaluate("Date.now() / 1000"))  # the second key may take its time
    await page.keyboard.press("Escape")
    await page.keyboard.press("Escape")
    await is_idle(page)
    await expect(log.locator(".streaming")).to_have_count(0)
    await expect(page.locator(".queued")).to_be_hidden()
    # The queued prompt was stopped with the one that ran: each has an answer that says so.
    await expect(log.locator(".turn > .stopped").first).to_have_text("The user stopped this")
    await expect(log.locator(".failure")).to_have_count(0)
    await expect(page.locator("#panel .prompt-list a")).to_have_count(3)
    await prompt(page, "SAY The third.")
    await expect(log.locator(".turn.answer").last).to_contain_text("The third.")
    await is_idle(page)
    await expect(page.locator(".announce")).to_have_text("Answer finished")
    assert [text.rpartition("\n")[2] for text in prompts(server, session_id)] == [
        "SAY Ready.",
        "HANG",
        second,
        "SAY The third.",
    ]
    shown = await log.locator(".turn").evaluate_all("turns => turns.map(turn => turn.id)")
    assert shown == [f"t-{message['info']['id']}" for message in messages(server, session_id)]


async def test_a_live_page_looks_like_the_page_after_a_reload(page: Page, server: WebServer) -> None:
    session_id = server.create("SAY Ready.", title="Same")
    await open_session(page, server, session_id)
    text = (
        "# Title\n\n- one\n\n- two\n\n```python\nx = 1\n```\n\n[link][late] and `code`\n\n[late]: https://example.org\n"
    )
    indented = "".join(f"  {line}\n" for line in text.splitlines())
    await prompt(
        page, f"SPLIT 2\nTHINK Hm.\nSAY\n{indented}CALL glob {json.dumps({'pattern': '*.py'})}\n---\nSAY Done."
    )
    await expect(page.locator("#log .turn.answer").last).to_contain_text("Done.")
    await is_idle(page)
    await expect(page.locator("#log .streaming")).to_have_count(0)
    await page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    live = await markup(page)
    await page.reload()
    await is_idle(page)
    assert await markup(page) == live


async def test_every_step_of_an_answer_shows_its_own_cost(page: Page, server: WebServer) -> None:
    session_id = server.create('CALL glob {"pattern": "*.py"}\n---\nSAY Done.', title="Two steps")
    await open_session(page, server, session_id)
    costs = page.locator("#log .turn.answer .cost")
    await expect(costs).to_have_count(2)
    for number in range(2):
        await expect(costs.nth(number)).to_have_css("opacity", "1")
        await expect(costs.nth(number)).to_have_text(re.compile(r"^\$0\.00\d\d$"))


async def test_a_permission_is_shown_in_full_and_denied_with_a_reason(
    page: Page, server: WebServer, guarded: Path
) -> None:
    session_id = server.create("SAY Ready.", title="Denied", directory=guarded)
    await open_session(page, server, session_id)
    call = {"command": "echo visible \\\n  && echo the-hidden-end", "description": "Say words"}
    await prompt(page, f"CALL bash {json.dumps(call)}\n---\nSAY Understood.")
    ask = page.locator(".dock .ask")
    await expect(ask).to_contain_text("the-hidden-end")
    await expect(ask.locator(".ask-grant")).to_contain_text("echo *")
    await expect(ask).to_contain_text("rule bash: ask in ~/guarded/opencode.json:1")
    await expect(page.locator(".composer")).to_be_hidden()
    await expect(ask).to_be_focused()
    await ask.get_by_role("button", name="Deny with a reason…").click(delay=600)
    await expect(ask.locator("textarea")).to_be_focused()
    await page.keyboard.type("Not yet")
    await ask.get_by_role("button", name="Deny and say so").click()
    await expect(page.locator("#log .turn.answer").last).to_contain_text("Understood.")
    await expect(page.locator(".composer")).to_be_visible()
    (part,) = [part for message in messages(server, session_id) for part in message["parts"] if part["type"] == "tool"]
    assert "Not yet" in part["state"]["error"]


async def test_keys_that_were_typed_for_something_else_do_not_answer(
    page: Page, server: WebServer, guarded: Path
) -> None:
    session_id = server.create("SAY Ready.", title="Guarded", directory=guarded)
    await open_session(page, server, session_id)
    await page.locator("#prompt").focus()
    now = await page.evaluate("Date.now() / 1000")
    await page.clock.set_fixed_time(now)
    start(server, session_id, 'CALL bash {"command": "echo typed", "description": "x"}\n---\nSAY Went on.')
    await expect(page.locator(".ask")).to_be_focused()
    for seconds in (0, 0.4, 0.8, 1.2):
        await page.clock.set_fixed_time(now + seconds)
        await page.keyboard.press("y")  # each postpones the moment from which keys act
    await expect(page.locator(".ask")).to_be_visible()
    await page.clock.set_fixed_time(now + 1.8)
    await page.keyboard.press("y")
    await expect(page.locator("#log .turn.answer").last).to_contain_text("Went on.")


async def test_an_edit_shows_its_diff_and_is_answered_in_one_of_two_tabs(
    page: Page, context: BrowserContext, server: WebServer, guarded: Path
) -> None:
    session_id = server.create("SAY Ready.", title="Two tabs", directory=guarded)
    other, live = await context.new_page(), await context.new_page()
    await open_session(page, server, session_id)
    await open_session(other, server, session_id)
    await live.goto(f"{server.url}/ui/live")
    edit = {"filePath": str(guarded / "parser.py"), "oldString": "return None", "newString": "return []"}
    read, again = {"filePath": str(guarded / "parser.py")}, {"command": "echo again", "description": "x"}
    steps = [f"CALL read {json.dumps(read)}", f"CALL edit {json.dumps(edit)}", f"CALL bash {json.dumps(again)}"]
    start(server, session_id, "\n---\n".join([*steps, "SAY Ended."]))
    for one in (page, other, live):
        await expect(one.locator(".ask .diff .del")).to_contain_text("return None")
        await expect(one.locator(".ask .diff .add")).to_contain_text("return []")
        await expect(one.locator(".ask-file")).to_have_text("parser.py")
    await live.wait_for_timeout(600)
    await live.get_by_role("button", name="Allow once").click()
    for one in (page, other, live):
        await expect(one.locator(".ask .diff")).to_have_count(0)
        await expect(one.locator(".ask .ask-command")).to_contain_text("echo again")
    await other.wait_for_timeout(600)
    await other.get_by_role("button", name="Always allow").click()
    for one in (page, other):
        await expect(one.locator("#log .turn.answer").last).to_contain_text("Ended.")
        await expect(one.locator(".ask")).to_have_count(0)
    await expect(live.locator(".live-item")).to_have_count(0)
    assert (guarded / "parser.py").read_text() == "def parse(line):\n    return []\n"
    start(server, session_id, 'CALL bash {"command": "echo granted", "description": "x"}\n---\nSAY Not asked.')
    await expect(page.locator("#log .turn.answer").last).to_contain_text("Not asked.")


async def test_a_request_stays_in_its_row_when_the_list_is_read_again(
    page: Page, server: WebServer, guarded: Path
) -> None:
    session_id = server.create("SAY Ready.", title="Asks in its row", directory=guarded)
    await page.goto(f"{server.url}/ui/?q=asks+in")
    ask = page.locator(f'.session[data-id="{session_id}"] .ask')
    start(server, session_id, 'CALL bash {"command": "uname row", "description": "x"}\n---\nSAY Went on.')
    await expect(ask).to_contain_text("uname row")
    await page.wait_for_timeout(600)
    await ask.get_by_role("button", name="Deny with a reason…").click()
    await page.keyboard.type("Not")
    async with page.expect_response(re.compile("fragment=rows")):
        # as the page does by itself when the rows are older than the store
        await page.evaluate("document.getElementById('filters').dispatchEvent(new Event('input'))")
    await expect(ask.locator("textarea")).to_be_focused()
    await page.keyboard.type(" yet")
    await ask.get_by_role("button", name="Deny and say so").click()
    await expect(ask).to_have_count(0)
    async with asyncio.timeout(WAIT_MS / 1000):
        while "Not yet" not in json.dumps(messages(server, session_id)):
            await asyncio.sleep(0.05)
    start(server, session_id, 'CALL bash {"command": "uname again", "description": "x"}\n---\nSAY Went on.')
    await expect(ask).to_contain_text("uname again")
    await page.reload()  # rows of before the request have none; it comes with the stream
    await expect(ask).to_contain_text("uname again")
    await page.wait_for_timeout(600)
    await ask.get_by_role("button", name="Deny", exact=False).first.click()
    await expect(ask).to_have_count(0)


async def test_trying_again_sends_a_refused_prompt_and_no_earlier_one(chromium: Browser, server: WebServer) -> None:
    session_id = server.create("SAY Ready.", title="Refused")
    page = await chromium.new_page()  # without the check of its console, which names the refused request
    await server.enter(page)
    await open_session(page, server, session_id)
    refusal = {"name": "BadRequest", "data": {"message": "there is no model to use"}}

    async def refuse(route: Route) -> None:
        await route.fulfill(status=422, json=refusal)

    await page.route("**/prompt_async", refuse)
    await page.locator("#prompt").fill("SAY Refused at first.")
    await page.locator("#prompt").press("Enter")
    await expect(page.locator(".run-state")).to_contain_text("there is no model to use")
    await expect(page.locator("#prompt")).to_have_value("SAY Refused at first.")
    await page.unroute("**/prompt_async")
    await page.get_by_role("button", name="Try again").click()
    await expect(page.locator("#log .turn.answer").last).to_contain_text("Refused at first.")
    await is_idle(page)
    assert prompts(server, session_id) == ["SAY Ready.", "SAY Refused at first."]
    await page.close()


async def test_questions_are_answered_skipped_and_answered_freely(page: Page, server: WebServer) -> None:
    questions = [
        {"question": "Which database?", "header": "db", "options": [
            {"label": "PostgreSQL", "description": "servers"}, {"label": "SQLite", "description": "a file"}]},
        {"question": "Which extras?", "header": "extras", "multiple": True, "options": [
            {"label": "Cache", "description": "c"}, {"label": "Queue", "description": "q"}]},
        {"question": "Which name?", "header": "name", "options": [{"label": "None", "description": "n"}]},
    ]  # fmt: skip
    session_id = server.create("SAY Ready.", title="Asks")
    await open_session(page, server, session_id)
    script = f"CALL question {json.dumps({'questions': questions})}\n---\nSAY Thanks."
    await prompt(page, script)
    ask = page.locator(".dock .ask")
    await expect(ask).to_contain_text("1 of 3")
    await page.wait_for_timeout(600)
    await ask.get_by_label("SQLite").check()
    await ask.get_by_role("button", name="Next").click()
    await ask.get_by_label("Cache").check()
    await ask.get_by_label("Queue").check()
    await ask.get_by_role("button", name="Next").click()
    await ask.locator("fieldset:not([hidden]) [data-other]").fill("Eastore")
    await ask.get_by_role("button", name="Answer").click()
    await expect(page.locator("#log .turn.answer").last).to_contain_text("Thanks.")
    (part,) = [part for message in messages(server, session_id) for part in message["parts"] if part["type"] == "tool"]
    assert part["state"]["metadata"]["answers"] == [["SQLite"], ["Cache", "Queue"], ["Eastore"]]
    await prompt(page, script)
    await expect(ask).to_be_focused()
    await page.wait_for_timeout(600)
    await page.keyboard.press("Escape")
    await expect(ask).to_have_count(0)
    await expect(page.locator(".composer")).to_be_visible()
    await expect(page.locator("#log details.call").last.locator(".outcome")).to_contain_text("skipped")
    await expect(page.locator("#log .bad, #log .failure")).to_have_count(0)


async def test_files_agents_and_commands_are_completed_and_files_attached(page: Page, server: WebServer) -> None:
    (server.project / "deep").mkdir(exist_ok=True)
    (server.project / "deep/xylophone.txt").write_text("the content of the file\n")
    session_id = server.create("SAY Ready.", title="Completes")
    await open_session(page, server, session_id)
    box = page.locator("#prompt")
    await box.press_sequentially("SAY Read it. @xyloph")
    await expect(page.get_by_role("option", name="deep/xylophone.txt")).to_be_visible()
    await expect(box).to_have_attribute("aria-expanded", "true")
    await box.press("Enter")
    await expect(box).to_have_value("SAY Read it. @deep/xylophone.txt ")
    await page.locator(".composer [type=file]").set_input_files(
        {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"attached words"}
    )
    await expect(page.locator(".chip")).to_contain_text("notes.txt")
    await box.press("Enter")
    await expect(page.locator("#log .turn.answer").last).to_contain_text("Read it.")
    await expect(box).to_have_value("")
    await is_idle(page)
    parts = [part for message in messages(server, session_id)[2:3] for part in message["parts"]]
    assert {part["filename"] for part in parts if part["type"] == "file"} == {"deep/xylophone.txt", "notes.txt"}
    assert any("the content of the file" in part.get("text", "") for part in parts)
    await box.press_sequentially("/ini")
    await expect(page.get_by_role("option", name="/init")).to_be_visible()
    await box.press("Escape")
    await box.fill("")
    await prompt(page, "!echo from the shell")
    await expect(page.locator("#log .turn.answer").last).to_contain_text("echo from the shell")
    await is_idle(page)


async def test_names_that_arrive_while_a_page_is_open_show_their_hidden_characters(
    page: Page, server: WebServer
) -> None:
    folder = server.home / "spoofed"
    folder.mkdir()
    (folder / "report\u202egnp.py").write_text("x = 1\n")
    session_id = server.create("SAY Ready.", title="Spoofed", directory=folder)
    listed = await page.context.new_page()
    await listed.goto(f"{server.url}/ui/?q=Spoofed")
    await expect(listed.locator(".session .title")).to_have_text("Spoofed")
    await open_session(page, server, session_id)
    server.http.patch(f"/session/{session_id}", json={"title": "Spoofed \u202efdp.exe\u200b\u200b"})
    await expect(page.get_by_role("heading", level=1)).to_have_text("Spoofed [U+202E]fdp.exe[U+200B*2]")
    await expect(page).to_have_title("Spoofed [U+202E]fdp.exe[U+200B*2] · opensesh")
    await expect(listed.locator(".session .title")).to_have_text("Spoofed [U+202E]fdp.exe[U+200B*2]")
    await listed.keyboard.press("Control+k")
    await listed.keyboard.type("Spoofed")
    await expect(listed.locator(".palette-list")).to_contain_text("[U+202E]fdp.exe")
    await listed.close()
    await page.locator("#prompt").press_sequentially("@report")
    await expect(page.get_by_role("option").first).to_contain_text("report[U+202E]gnp.py")
    await page.keyboard.press("Enter")
    await expect(page.locator("#prompt")).to_have_value("@report\u202egnp.py ")  # the file, not its mark


async def test_hostile_names_of_agents_commands_models_and_files_stay_texts(page: Page, server: WebServer) -> None:
    folder = server.home / "named"
    folder.mkdir()
    mark = "<img src=x onerror=window.pwned=1>"
    config = {
        "agent": {mark: {"mode": "subagent", "description": "<script>window.pwned=1</script>"}},
        "command": {mark: {"template": "SAY x", "description": "<svg onload=window.pwned=1>"}},
        "provider": {"scripted": {"name": f"</select>{mark}", "models": {"prompt": {"name": f"</option>{mark}"}}}},
    }
    (folder / "opencode.json").write_text(json.dumps(config))
    (folder / f"{mark}.py").write_text("x = 1\n")
    script = "<script>window.pwned=1</script>"
    session_id = server.create("SAY Ready.", title=f"</title>{script}", directory=folder)
    document = base64.b64encode(f"<svg xmlns='http://www.w3.org/2000/svg'>{script}</svg>".encode()).decode()
    files = [
        {"type": "file", "mime": mime, "filename": name, "url": f"data:{mime};base64,{document}"}
        for mime, name in (
            ("image/svg+xml", "a.svg"),
            ("text/html", '../b"\r\nX: y.html'),
            ("image/png", f"{mark}.png"),
        )
    ]
    server.post(f"/session/{session_id}/message", {"noReply": True, "model": SCRIPTED, "parts": files})
    await open_session(page, server, session_id)
    await expect(page.locator(".composer [name=model] option", has_text=mark).first).to_be_attached()
    for typed in ("@<img", "/<img"):
        await page.locator("#prompt").fill("")
        await page.locator("#prompt").press_sequentially(typed)
        await expect(page.get_by_role("option", name=mark).first).to_be_visible()
        await page.keyboard.press("Escape")
    await expect(page.locator("#log .attachment")).to_have_count(3)
    for link in await page.locator("#log .attachment a").all():
        response = await page.context.request.get(f"{server.url}{await link.get_attribute('href')}")
        assert response.headers["content-type"] == "application/octet-stream"
        assert re.fullmatch(r"attachment; filename\*=UTF-8''[\w%.-]+", response.headers["content-disposition"])
        assert response.headers["content-security-policy"].startswith("sandbox")
    assert await page.evaluate("window.pwned === undefined")
    assert await page.locator("[onerror], [onload], img, #log script").count() == 0


async def test_a_draft_stays_and_a_refused_prompt_is_not_lost(page: Page, server: WebServer) -> None:
    session_id = server.create("SAY Ready.", title="Drafts")
    await open_session(page, server, session_id)
    await page.locator("#prompt").fill("not sent yet")
    await page.reload()
    await expect(page.locator("#prompt")).to_have_value("not sent yet")
    await page.locator("#prompt").fill('ERROR 400 message="the model is out of order"')
    await page.locator("#prompt").press("Enter")
    await expect(page.locator("#log .turn.answer .failure").last).to_have_text("the model is out of order")
    await expect(page.locator(".run-state")).to_contain_text("The answer failed")
    await expect(page.get_by_role("button", name="Try again")).to_be_visible()
    await page.get_by_role("button", name="Try again").click()
    await expect(page.locator("#log .turn.prompt")).to_have_count(3)
    await expect(page.locator("#log .turn.answer .failure").last).to_have_text("the model is out of order")
    await expect(page.locator(".run-state")).to_contain_text("The answer failed")
    await page.reload()  # as if it were opened days later
    await expect(page.locator("#log .turn.answer .failure").last).to_have_text("the model is out of order")
    await expect(page.locator(".run-state")).to_contain_text("The answer failed")
    await page.get_by_role("button", name="Try again").click()
    await expect(page.locator("#log .turn.prompt")).to_have_count(4)
    await expect(page.locator("#log .turn.answer .failure").last).to_have_text("the model is out of order")
    await expect(page.locator(".run-state")).to_contain_text("The answer failed")
    await prompt(page, "SAY Well again.")
    await is_idle(page)
    await page.reload()
    await is_idle(page)


async def test_a_new_session_is_started_in_a_folder(page: Page, server: WebServer) -> None:
    folder = server.home / "fresh"
    folder.mkdir()
    await page.goto(f"{server.url}/ui/new?directory={folder}")
    await page.get_by_role("button", name="Start").click()
    await expect(page.locator("#prompt")).to_be_visible()
    session_id = page.url.rpartition("/")[2]
    assert server.http.get(f"/session/{session_id}").json()["directory"] == str(folder)


async def test_a_new_session_is_offered_in_the_folder_that_the_server_was_started_in(
    page: Page, server: WebServer
) -> None:
    server.create(directory=server.home / "notes")  # the newest session is elsewhere
    await page.goto(f"{server.url}/ui/new")
    await expect(page.get_by_role("combobox", name="Folder")).to_have_value(str(server.project))


@pytest.mark.parametrize(
    ("width", "scheme"), [pytest.param(1280, "light", marks=pytest.mark.slow), (1280, "dark"), (390, "light")]
)
async def test_every_live_state_is_accessible(
    page: Page, server: WebServer, guarded: Path, axe: str, width: int, scheme: Any
) -> None:
    await page.set_viewport_size({"width": width, "height": 800})
    await page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    session_id = server.create("SAY Ready.", title="Forms", directory=guarded)
    await open_session(page, server, session_id)
    await is_usable(page, axe)
    question = {"question": "Which?", "header": "h", "options": [{"label": "A", "description": "a"}]}
    start(server, session_id, 'CALL bash {"command": "printf x", "description": "x"}\n---\n'
          f"CALL question {json.dumps({'questions': [question]})}\n---\nERROR 400 message=odd")  # fmt: skip
    await expect(page.locator(".ask-command")).to_be_visible()
    await is_usable(page, axe)
    await page.wait_for_timeout(600)
    await page.keyboard.press("y")
    await expect(page.locator(".questions")).to_be_visible()
    await is_usable(page, axe)
    await page.wait_for_timeout(600)
    await page.locator(".ask .option input").first.check()
    await page.get_by_role("button", name="Answer").click()
    await expect(page.locator("#log .turn.answer .failure").last).to_contain_text("odd")
    await expect(page.locator(".run-state")).to_contain_text("The answer failed")
    await is_usable(page, axe)
    await page.goto(f"{server.url}/ui/live")
    await is_usable(page, axe)


async def test_a_hidden_page_notifies_once_that_a_session_waits_and_has_ended(
    server: WebServer, context: BrowserContext, guarded: Path
) -> None:
    await context.add_init_script(
        """
        if (location.protocol === "http:") localStorage.setItem("opensesh-notifications", "on");
        window.shown = [];
        window.Notification = class {
          static permission = "granted";
          constructor(title, options) { window.shown.push([options.body, options.tag]); }
        };
        Object.defineProperty(Document.prototype, "hidden", { get: () => true });
        """
    )
    page = await context.new_page()
    await server.enter(page, "/ui/live")
    session = server.create(title="Waiting", directory=guarded)
    start(server, session, 'CALL bash {"command": "date", "description": "Say the time"}')
    await expect(page.locator(".ask").first).to_be_visible()
    assert [text for text, _ in await page.evaluate("window.shown")] == ["A session waits for you."]
    await page.get_by_role("button", name=re.compile("^Allow once")).click(delay=600)
    await expect(page.get_by_role("heading", name="Nothing runs")).to_be_visible()
    assert [text for text, _ in await page.evaluate("window.shown")][-1] == "A session has ended."
