from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.async_api import Browser, BrowserContext, Locator, Page, expect

from opensesh.sharing.share_server import ShareServerOptions, share_server

from ..server.serving import make_project
from .test_live import is_idle, is_usable, messages, open_session, prompt, prompts
from .web_server import WebServer, web_server

pytestmark = pytest.mark.asyncio(loop_scope="module")
FORMATS = ("Markdown", "HTML page", "JSON", "JSON lines", "OpenCode", "Prompts only", "Training data")


@pytest.fixture(scope="module")
def repository(server: WebServer) -> Path:
    return make_project(server.home / "repository")


def write(path: Path, content: str) -> str:
    call = {"filePath": str(path), "content": content}
    return f"CALL write {json.dumps(call)}\n---\nSAY Written."


async def turn_action(page: Page, text: str, entry: str) -> None:
    turn = page.locator("#log .turn.prompt", has_text=text)
    await turn.get_by_role("button", name="Actions", exact=True).click()
    await page.get_by_role("menuitem", name=entry).click()


async def test_a_revert_is_previewed_and_undone(page: Page, server: WebServer, repository: Path) -> None:
    file = repository / "made.txt"
    session_id = server.create(write(file, "one\n"), directory=repository, title="Reverts")
    await open_session(page, server, session_id)
    await prompt(page, "SAY A later prompt.")
    await expect(page.locator("#log .turn.answer").last).to_contain_text("A later prompt.")
    await is_idle(page)
    await turn_action(page, "made.txt", "Revert to before this")
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("made.txt deleted +0 −1")
    await dialog.locator("summary").click()
    await expect(dialog.locator(".del")).to_contain_text("one")
    await dialog.get_by_role("button", name="Revert files and conversation").click()
    await expect(page.locator(".cut-mark[data-revert]")).to_contain_text("reverted from here")
    await expect(page.locator("#prompt")).to_have_value(write(file, "one\n"))
    assert not file.exists()
    await page.locator(".cut-mark[data-revert]").get_by_role("button", name="Unrevert").click()
    await expect(page.locator(".cut-mark[data-revert]")).to_have_count(0)
    await expect(page.locator(".toasts")).to_have_text("The revert was undone.")
    await expect(page.locator("#prompt")).to_have_value("")
    assert file.read_text() == "one\n"


async def test_a_revert_names_conflicts_and_does_nothing_that_was_not_shown(
    chromium: Browser, server: WebServer, repository: Path
) -> None:
    page = await chromium.new_page()
    await server.enter(page)
    file = repository / "conflict.txt"
    session_id = server.create(write(file, "one\n"), directory=repository, title="Conflicts")
    await open_session(page, server, session_id)
    file.write_text("by hand\n")
    await turn_action(page, "conflict.txt", "Revert to before this")
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("conflict: changed since")
    file.write_text("by hand, again\n")
    await dialog.get_by_role("button", name="Overwrite and revert").click()
    await expect(page.locator(".toasts")).to_contain_text("changed since the preview")
    assert file.read_text() == "by hand, again\n"
    await page.close()


async def test_a_session_is_forked_from_a_message(page: Page, server: WebServer) -> None:
    session_id = server.create("SAY First.", "SAY Second.", title="Forks")
    await open_session(page, server, session_id)
    await turn_action(page, "SAY Second.", "Revert to before this")
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_role("button")).to_have_text(["Cancel", "Revert"])  # no file is changed
    await page.keyboard.press("Escape")
    await turn_action(page, "SAY Second.", "Fork from here")
    await expect(page.locator("#log .turn")).to_have_count(2)
    fork = page.url.rpartition("/")[2]
    assert fork != session_id
    assert prompts(server, fork) == ["SAY First."]


async def test_a_session_is_compacted_and_that_undone(page: Page, server: WebServer) -> None:
    session_id = server.create("SAY First.", title="Compacts")
    await open_session(page, server, session_id)
    before = messages(server, session_id)
    await page.get_by_role("button", name="Compact", exact=True).click()
    await expect(page.locator("#log .cut-mark")).to_contain_text("compaction (requested)")
    await expect(page.locator(".toasts")).to_contain_text("The session was compacted.")
    await expect(page.locator("#log .turn.separator > .head")).to_be_hidden()
    classes = "turns => turns.map(turn => [...turn.classList].filter(name => name !== 'blank').sort().join())"
    live = await page.locator("#log .turn").evaluate_all(classes)
    other = await page.context.new_page()
    await open_session(other, server, session_id)
    assert await other.locator("#log .turn").evaluate_all(classes) == live
    await other.close()
    await page.locator(".toasts").get_by_role("button", name="Undo").click()
    await expect(page.locator("#log .cut-mark")).to_have_count(0)
    assert messages(server, session_id) == before


async def test_a_session_is_renamed_archived_and_removed(page: Page, server: WebServer) -> None:
    session_id = server.create("SAY First.", title="Old name")
    await open_session(page, server, session_id)
    await page.get_by_label("More actions").click()
    await page.get_by_role("button", name="Rename").click()
    await page.get_by_label("Title").fill("New name")
    await page.keyboard.press("Enter")
    await expect(page).to_have_title("New name · opensesh")
    await page.get_by_label("More actions").click()
    await page.get_by_role("button", name="Archive").click()
    await expect(page.locator(".toasts")).to_contain_text("Archived.")
    assert "archived" in server.http.get(f"/session/{session_id}").json()["time"]
    await page.locator(".toasts").get_by_role("button", name="Undo").click()
    await expect(page.locator("[data-action=archive]")).to_have_attribute("aria-pressed", "false")
    record = server.http.get(f"/session/{session_id}").json()
    assert (record["title"], "archived" in record["time"]) == ("New name", False)
    await page.get_by_label("More actions").click()
    await page.get_by_role("button", name="Move to the trash").click()
    await expect(page).to_have_url(f"{server.url}/ui/")
    assert server.http.get(f"/session/{session_id}").status_code == 404
    assert session_id in server.http.get("/history/trash").text
    missing = await page.context.request.get(f"{server.url}/ui/session/{session_id}", headers={"accept": "text/html"})
    assert missing.status == 404
    assert "This session does not exist" in await missing.text()
    assert 'href="/ui/trash"' in await missing.text()
    assert 'aria-label="Pages"' in await missing.text()
    await page.goto(f"{server.url}/ui/trash")
    await page.get_by_role("button", name="Restore New name").click()
    await expect(page.get_by_role("button", name="Restore New name")).to_have_count(0)
    await page.goto(f"{server.url}/ui/session/{session_id}")
    await page.get_by_label("More actions").click()
    await page.get_by_role("button", name="Move to the trash").click()
    await page.locator(".toasts").get_by_role("button", name="Undo").click()
    await expect(page.locator(".session .title", has_text="New name")).to_be_visible()


async def test_the_page_of_a_session_reports_that_another_program_removed_it(page: Page, server: WebServer) -> None:
    session_id = server.create("SAY First.", title="Removed elsewhere")
    await open_session(page, server, session_id)
    server.http.delete(f"/session/{session_id}").raise_for_status()
    await expect(page.locator(".toasts")).to_contain_text("This session was removed.")
    await expect(page).to_have_title("Removed elsewhere · opensesh")
    await expect(page.locator("[data-title]")).to_have_text("Removed elsewhere")


async def test_a_session_is_shared_after_a_question_and_taken_down(context: BrowserContext, tmp_path: Path) -> None:
    config = tmp_path / ".config/opencode"
    config.mkdir(parents=True)
    async with share_server(ShareServerOptions(str(tmp_path / "shares"), port=0)) as share_url:
        (config / "opencode.json").write_text(json.dumps({"enterprise": {"url": share_url}}))
        with web_server(tmp_path) as server:
            session_id = await asyncio.to_thread(server.create, "SAY Shared.", title="Shared")
            page = await context.new_page()
            await server.enter(page)
            await open_session(page, server, session_id)
            share = page.get_by_role("button", name="Share", exact=True)
            await share.click()
            await expect(page.get_by_role("dialog")).to_contain_text("Everyone who has the link can read it")
            await page.keyboard.press("Escape")
            await expect(share).to_be_focused()
            assert "share" not in server.http.get(f"/session/{session_id}").json()
            await share.click()
            await page.get_by_role("dialog").get_by_role("button", name="Share").click()
            link = page.get_by_role("link", name="Shared page")
            await expect(link).to_have_attribute("href", re.compile(f"^{share_url}/"))
            await page.get_by_role("button", name="Unshare").click()
            await expect(share).to_be_visible()
            assert "share" not in server.http.get(f"/session/{session_id}").json()
            await page.close()


async def press(page: Page, *keys: str) -> None:
    for key in keys:
        await page.keyboard.press(key)


async def press_until(page: Page, key: str, wanted: Locator) -> None:
    """Press a key until an element has the focus."""
    for _ in range(30):
        await page.keyboard.press(key)
        if await wanted.evaluate("(element) => element === document.activeElement"):
            return
    raise AssertionError(f"{key} does not lead to {wanted}")


async def test_journey_14_a_session_is_driven_by_keyboard_alone(page: Page, server: WebServer) -> None:
    project = server.home / "keyboard"
    project.mkdir()
    (project / "opencode.json").write_text('{"permission": {"bash": "ask"}}')
    session_id = server.create("SAY Ready.", title="Keys", directory=project)
    await open_session(page, server, session_id)
    await page.keyboard.press("i")
    await page.keyboard.insert_text('CALL bash {"command": "echo by keys", "description": "Say"}\n---\nSAY Done.')
    await page.keyboard.press("Enter")
    await expect(page.locator(".dock .ask")).to_be_focused()
    await page.wait_for_timeout(600)
    await page.keyboard.press("y")
    await expect(page.locator("#log .turn.answer").last).to_contain_text("Done.")
    await is_idle(page)
    await expect(page.locator("#prompt")).to_be_focused()
    await page.keyboard.press("Escape")
    await page.keyboard.press("p")
    await page.keyboard.press(".")
    await page.keyboard.press("End")
    await expect(page.get_by_role("menuitem", name="Revert to before this")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("dialog").get_by_role("button", name="Cancel")).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await expect(page.locator("#log .turn.prompt .more:focus")).to_have_count(1)
    await page.reload()
    await expect(page.locator("html")).to_have_attribute("data-run", "idle")
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    menu = page.get_by_label("More actions")
    await press_until(page, "Tab", menu)
    await page.keyboard.press("Enter")
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await expect(page.get_by_label("Title")).to_be_focused()
    await page.keyboard.insert_text("Named by keys")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Named by keys")
    await expect(menu).to_be_focused()


async def test_journey_14_a_session_is_found_continued_reverted_and_forked_by_keyboard_alone(
    page: Page, server: WebServer
) -> None:
    project = server.home / "long-keyboard"
    project.mkdir()
    (project / "opencode.json").write_text('{"permission": {"edit": "ask"}}')
    (project / "a.txt").write_text("one\n")
    session_id = server.create(
        'CALL bash {"command": "echo glockenspiel", "description": "Say"}\n---\nSAY Done.',
        title="By keys",
        directory=project,
    )
    await press(page, "/")
    await page.keyboard.type("glockenspiel")
    await press(page, "Enter")
    await expect(page.locator("a.hit mark").first).to_have_text("glockenspiel")
    await press(page, "j", "j", "j", "j")  # the command, its output: each has a hit
    await press(page, "Enter")
    await expect(page).to_have_url(re.compile(f"/ui/session/{session_id}"))
    await is_idle(page)
    await press(page, "i")
    arguments = json.dumps({"filePath": str(project / "a.txt"), "oldString": "one", "newString": "two"})
    await page.keyboard.insert_text(f"CALL read {arguments}\n---\nCALL edit {arguments}\n---\nSAY Edited.")
    await press(page, "Enter")
    await expect(page.locator(".dock .ask .diff")).to_contain_text("two")
    await expect(page.locator(".dock .ask")).to_be_focused()
    await page.wait_for_timeout(600)  # from which moment on keys act
    await press(page, "y")
    await expect(page.locator("#log .turn.answer").last).to_contain_text("Edited.")
    await is_idle(page)
    assert (project / "a.txt").read_text() == "two\n"
    await press(page, "Escape", "G", "p", ".", "End", "Enter")
    await expect(page.get_by_role("dialog")).to_contain_text("a.txt")
    await press_until(page, "Tab", page.get_by_role("button", name="Revert files and conversation"))
    await press(page, "Enter")
    await expect(page.locator("#log [data-revert]")).to_contain_text("reverted from here")
    assert (project / "a.txt").read_text() == "one\n"
    await expect(page.locator("#prompt")).to_be_focused()
    await page.clock.install()
    await press(page, "Escape", "g")
    await page.clock.run_for(700)  # until "g" is not the beginning of a pair
    await press(page, "j", ".")
    await expect(page.get_by_role("menuitem", name="Copy link")).to_be_focused()
    await press_until(page, "ArrowDown", page.get_by_role("menuitem", name="Fork from here"))
    await press(page, "Enter")
    await expect(page.get_by_role("heading", level=1)).to_contain_text("fork")


async def test_files_and_long_texts_are_attached_by_paste_and_drop(page: Page, server: WebServer) -> None:
    session_id = server.create("SAY Ready.", title="Attaches")
    await open_session(page, server, session_id)
    await page.locator("#prompt").evaluate(
        """(box) => {
          const moved = (name, content) => {
            const data = new DataTransfer();
            data.items.add(new File([content], name, { type: "text/plain" }));
            return data;
          };
          box.dispatchEvent(new ClipboardEvent("paste", { clipboardData: moved("pasted.txt", "words") }));
          box.form.dispatchEvent(new DragEvent("drop", { dataTransfer: moved("dropped.txt", "other") }));
          const text = new DataTransfer();
          text.setData("text/plain", "a long line\\n".repeat(3000));
          box.dispatchEvent(new ClipboardEvent("paste", { clipboardData: text }));
        }"""
    )
    await expect(page.locator(".chip")).to_have_count(3)
    await expect(page.locator(".chip").first).to_contain_text("pasted text, 3001 lines")
    await page.get_by_role("button", name="Remove pasted text, 3001 lines").click()
    await prompt(page, "SAY Attached.")
    await expect(page.locator("#log .turn.answer").last).to_contain_text("Attached.")
    await is_idle(page)
    names = {part.get("filename") for message in messages(server, session_id) for part in message["parts"]}
    assert names >= {"pasted.txt", "dropped.txt"}


async def test_changes_are_shown_side_by_side(page: Page, server: WebServer, repository: Path, axe: str) -> None:
    file = repository / "sides.txt"
    lines = "".join(f"line {number}\n" for number in range(20))
    file.write_text(f"{lines}one\n")
    read = f"CALL read {json.dumps({'filePath': str(file)})}"
    session_id = server.create(f"{read}\n---\n{write(file, f'{lines}two')}", directory=repository, title="Sides")
    await page.goto(f"{server.url}/ui/session/{session_id}/changes")
    await page.get_by_role("button", name="side by side").click()
    await expect(page).to_have_url(re.compile("view=split"))
    await expect(page.locator(".split .add").first).to_have_text("two")
    await is_usable(page, axe)
    await page.get_by_role("button", name="side by side").click()
    await expect(page.locator(".split")).to_have_count(0)
    diff = page.locator("pre.diff")
    await expect(diff).not_to_contain_text("line 0")
    await page.get_by_role("link", name="show the whole file").click()
    await expect(diff).to_contain_text("line 0")
    await expect(diff.locator(".add")).to_have_text("+two")
    await expect(page.get_by_role("link", name="show the whole file")).to_have_count(0)
    await is_usable(page, axe)
    await page.get_by_role("button", name="side by side").click()
    await page.get_by_label("Changes of").select_option(label="the whole session")
    await page.get_by_role("button", name="Show", exact=True).click()
    await expect(page.locator(".split .add").first).to_have_text("two")


async def test_lines_around_a_change_are_opened_step_by_step(
    page: Page, server: WebServer, repository: Path, axe: str
) -> None:
    file = repository / "steps.txt"
    lines = [f"line {number}\n" for number in range(1, 101)]
    file.write_text("".join(lines))
    read = f"CALL read {json.dumps({'filePath': str(file)})}"
    changed = "".join(lines).replace("line 40\n", "forty\n").replace("line 55\n", "fifty-five\n")
    session_id = server.create(f"{read}\n---\n{write(file, changed)}", directory=repository, title="Steps")
    await page.goto(f"{server.url}/ui/session/{session_id}/changes")
    diff = page.locator("pre.diff")
    links = diff.locator(".hunk a")
    await expect(links).to_have_text(
        ["↑ 20 lines", "all 36 lines", "↕ 8 lines", "↓ 20 lines", "all 42 lines"], use_inner_text=True
    )
    await is_usable(page, axe)
    await links.nth(2).click()
    await expect(diff).to_contain_text("line 48")
    await links.nth(0).focus()
    await page.keyboard.press("Enter")
    await expect(diff).to_contain_text("line 17\n")
    await expect(diff).not_to_contain_text("line 16\n")
    await expect(diff).to_be_focused()  # what had the focus is gone
    await links.nth(1).click()
    await expect(diff).to_contain_text("line 78")
    await expect(links).to_have_text(["↕ 16 lines", "↓ 20 lines", "all 22 lines"])
    await page.goto(f"{server.url}{await links.nth(0).get_attribute('href')}")  # without scripts it is a page
    await expect(diff.locator(".same").first).to_have_text(" line 1")
    await expect(links).to_have_text(["↓ 20 lines", "all 22 lines"])
    await page.get_by_role("button", name="side by side").click()
    cells = page.locator(".split .hunk")
    await expect(cells.last).to_contain_text("all 42 lines")
    await cells.last.get_by_role("link", name="all").click()
    await expect(page.locator(".split")).to_contain_text("line 100")


async def test_the_menus_of_a_session_close_and_offer_only_what_is_possible(page: Page, server: WebServer) -> None:
    session_id = server.create("SAY Ready.", title="Menus")
    await open_session(page, server, session_id)
    more, items = page.get_by_label("More actions"), page.locator(".menu-items:visible")
    await page.get_by_text("Export ▾").click()
    await more.click()
    await expect(items).to_have_count(1)
    await expect(items).to_contain_text("Rename")
    await expect(items).not_to_contain_text("compaction", use_inner_text=True)
    await page.keyboard.press("Escape")
    await expect(items).to_have_count(0)
    await expect(more).to_be_focused()
    await more.click()
    await page.get_by_role("heading", name="Menus").click()
    await expect(items).to_have_count(0)


@pytest.mark.parametrize(("width", "scheme"), [(1280, "dark"), (390, "light")])
async def test_menus_and_dialogs_are_accessible(
    page: Page, server: WebServer, repository: Path, axe: str, width: int, scheme: str
) -> None:
    await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    await page.set_viewport_size({"width": width, "height": 800})
    file = repository / f"dialog-{width}.txt"
    session_id = server.create(write(file, "one\n"), directory=repository, title="Dialogs")
    await open_session(page, server, session_id)
    await page.get_by_text("Export ▾").click()
    await is_usable(page, axe, ".menu[open]")
    await page.keyboard.press("Escape")
    await page.locator("#log .turn.prompt").get_by_role("button", name="Actions", exact=True).click()
    await is_usable(page, axe, "#turn-menu")
    await page.get_by_role("menuitem", name="Revert to before this").click()
    await page.get_by_role("dialog").locator("summary").click()
    await is_usable(page, axe, "dialog")
    await page.keyboard.press("Escape")
    await page.get_by_role("button", name="Share", exact=True).click()
    await is_usable(page, axe, "dialog")
    await page.keyboard.press("Escape")
    await page.locator("#prompt").press_sequentially("/")
    await expect(page.get_by_role("option").first).to_be_visible()
    await is_usable(page, axe, ".dock")
    await page.keyboard.press("Escape")
    await page.keyboard.press("Control+k")
    await page.keyboard.type("Dialogs")
    await expect(page.locator(".palette-list")).to_contain_text("Dialogs")
    await is_usable(page, axe, "dialog")


async def test_a_session_is_exported_in_every_format(page: Page, server: WebServer) -> None:
    session_id = server.create("SAY The word is zither.", title="Exports")
    await open_session(page, server, session_id)
    for label in FORMATS:
        await page.get_by_text("Export ▾").click()
        async with page.expect_download() as download:
            await page.get_by_role("button", name=label, exact=True).click()
        path = await (await download.value).path()
        assert "zither" in Path(path).read_text("utf-8")
    await page.set_viewport_size({"width": 390, "height": 800})
    for menu in await page.locator(".session-actions .menu").all():
        await menu.locator("summary").click()
        await expect(menu.locator(".menu-items")).to_be_in_viewport(ratio=1)
        await menu.locator("summary").click()


async def test_a_session_that_another_process_runs_is_read_only_and_its_runner_named(
    page: Page, server: WebServer
) -> None:
    session_id = server.create("SAY First.", title="Elsewhere")
    process = subprocess.Popen(
        [sys.executable, "-m", "opensesh", "run", "-s", session_id, "SAY From a terminal.\nHANG"],
        cwd=server.project, env=server.environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        async with asyncio.timeout(60):
            while len(messages(server, session_id)) < 4:
                await asyncio.sleep(0.1)
        await page.goto(f"{server.url}/ui/session/{session_id}")
        await expect(page.locator(".run-state")).to_contain_text(f"opensesh run (pid {process.pid}")
        await expect(page.locator(".send")).to_be_disabled()
        live = await page.context.new_page()
        await live.goto(f"{server.url}/ui/live")
        item = live.locator(f'[data-session="{session_id}"]')
        await expect(item).to_contain_text(f"by opensesh run (pid {process.pid}")
        await live.close()
        await page.locator("#prompt").fill("SAY Continued in a fork.")
        await page.get_by_role("button", name="Fork here").click()
        await expect(page).not_to_have_url(f"{server.url}/ui/session/{session_id}")
        await expect(page.locator("#prompt")).to_have_value("SAY Continued in a fork.")
        await page.locator("#prompt").press("Enter")
        await expect(page.locator("#log .turn.answer").last).to_contain_text("Continued in a fork.")
    finally:
        process.kill()
        process.wait()
