from __future__ import annotations

import json
import re
from collections.abc import Generator

import pytest
from playwright.async_api import Browser, BrowserContext, Locator, Page, expect

from ..history.hostile_content import HOSTILE_TEXTS, hostile_message
from ..history.sample_tree import Json, Sample
from .test_live import is_usable
from .web_server import WebServer, web_server

pytestmark = pytest.mark.asyncio(loop_scope="module")
TURNS = 1_200
WORD = "zanzibar"


class StoredSessions:
    """A server over stored sessions: a long one, one with every kind of part, and a hostile one."""

    def __init__(self, sample: Sample) -> None:
        self.sample = sample
        self.every_kind = self._every_kind()
        self.long = self._long()
        self.prompts = [info["id"] for info in sample.messages(self.long) if info["role"] == "user"]
        self.hostile = self._hostile()
        opened = {"created": 1, "updated": 4_000_000_000_000}  # without a session
        sample.write(("project", "other"), {"id": "other", "worktree": "/srv/dev/other", "vcs": "git", "time": opened})

    def _every_kind(self) -> Json:
        sample = self.sample
        session = sample.session("Fix the parser")
        sample.prompt(session, "Why does `parse` fail?")
        answer = sample.answer(session, "It returns **None**:\n\n```python\nreturn None\n```")
        sample.part(answer, type="reasoning", text="a secret plan", time={"start": 1_000, "end": 5_000})
        for number in range(3):
            sample.tool(answer, "read", input={"filePath": f"/srv/{number}.py"}, output=f"read {number}")
        diff = "--- a\n+++ a\n@@ -1,1 +1,1 @@\n-return None\n+return []\n"
        sample.tool(answer, "edit", input={"filePath": "/srv/a.py"}, metadata={"diff": diff})
        lines = "\n".join(f"line {number}" for number in range(900))
        sample.tool(answer, "bash", input={"command": "make"}, output=lines, metadata={"exit": 2})
        child = sample.session("Look for callers", parent=session["id"])
        sample.answer(child, "There are two callers.")
        sample.tool(answer, "task", input={"description": "Look"}, metadata={"sessionId": child["id"]})
        sample.clock += 86_400_000
        compacted = sample.prompt(session, " ")
        sample.part(compacted, type="compaction", auto=True)
        sample.answer(session, "", error={"name": "APIError", "data": {"message": "overloaded"}})
        torn = sample.answer(session, "torn")
        (sample.root / "message" / session["id"] / f"{torn['id']}.json").write_text("{")
        last = sample.prompt(session, "Try again")
        session["revert"] = {"messageID": last["id"]}
        sample.write(("session", "proj", session["id"]), session)
        sample.write(("todo", session["id"]), [{"content": "dig", "status": "completed"}])
        return session

    def _long(self) -> Json:
        sample = self.sample
        session = sample.session("A long session")
        for number in range(TURNS // 2):
            sample.prompt(session, f"Prompt {number}{f' {WORD}' if number == TURNS // 4 else ''}")
            sample.answer(session, f"Answer {number}\n\n" + "More words. " * (number % 40))
        return session

    def _hostile(self) -> Json:
        sample = self.sample
        text = "\n\n".join(HOSTILE_TEXTS).encode(errors="replace").decode()
        session = sample.session(text, directory=f"/srv/{text}")
        for role in ("user", "assistant"):
            message = hostile_message(text, role)
            make = sample.prompt if role == "user" else sample.answer
            info = make(session, text, **{key: message.info[key] for key in ("agent", "modelID", "error")})
            for part in message.parts[1:]:
                sample.part(info, **{key: value for key, value in part.items() if key != "id"})
        todos = [{"content": text, "status": text, "priority": text}]
        sample.write(("todo", session["id"]), todos)
        files = [{"file": text, "before": text, "after": f"{text} x", "additions": 1, "deletions": 1, "status": text}]
        sample.write(("session_diff", session["id"]), files)
        return session


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[WebServer, StoredSessions]]:
    home = tmp_path_factory.mktemp("stored")
    root = home / ".local/share/opencode/storage"
    root.mkdir(parents=True)
    saved_sessions = StoredSessions(Sample(root))
    with web_server(home) as server:
        yield server, saved_sessions


async def open_session(page: Page, stored: tuple[WebServer, StoredSessions], session: Json, more: str = "") -> None:
    await stored[0].enter(page, f"/ui/session/{session['id']}{more}")


def turn(page: Page, message_id: str) -> Locator:
    return page.locator(f"#t-{message_id}")


async def test_journey_3_a_long_session_opens_at_its_end_and_any_message_is_reached(
    context: BrowserContext, stored: tuple[WebServer, StoredSessions]
) -> None:
    page = await context.new_page()
    saved_sessions = stored[1]
    await open_session(page, stored, saved_sessions.long)
    await expect(turn(page, saved_sessions.prompts[-1])).to_be_in_viewport()
    await expect(turn(page, saved_sessions.prompts[0])).to_have_count(0)
    await page.locator(".prompt-group").first.click()
    await page.locator(".prompt-group").first.locator("a[data-turn]").first.click()
    await expect(turn(page, saved_sessions.prompts[0])).to_be_in_viewport()
    await expect(page).to_have_url(re.compile(f"#t-{saved_sessions.prompts[0]}$"))

    await page.keyboard.press("f")
    await page.keyboard.type(WORD)
    await expect(page.locator(".hits mark")).to_have_text(WORD)
    await page.keyboard.press("Enter")
    await expect(turn(page, saved_sessions.prompts[TURNS // 4])).to_be_in_viewport()
    marked = "[...CSS.highlights.get('found')].map(String)"
    assert await page.evaluate(marked) == [WORD]

    middle = saved_sessions.prompts[450]
    await page.goto(f"{stored[0].url}/ui/session/{saved_sessions.long['id']}?at={middle}#t-{middle}")
    await expect(turn(page, middle)).to_be_in_viewport()
    await page.evaluate(f"location.hash = '#t-{saved_sessions.prompts[10]}'")
    await expect(turn(page, saved_sessions.prompts[10])).to_be_in_viewport()


async def test_chunks_are_loaded_near_the_window_and_unloaded_far_from_it(
    context: BrowserContext, stored: tuple[WebServer, StoredSessions]
) -> None:
    page = await context.new_page()
    saved_sessions = stored[1]
    await open_session(page, stored, saved_sessions.long)
    await expect(turn(page, saved_sessions.prompts[-1])).to_be_in_viewport()
    opened = await page.locator("#log *").count()
    loaded = page.locator("#log > .chunk:not(.unloaded)")
    await page.keyboard.press("g")
    await expect(turn(page, saved_sessions.prompts[0])).to_be_in_viewport()
    await expect(turn(page, saved_sessions.prompts[TURNS // 2 - 30])).to_have_count(
        0
    )  # the last chunk stays for the live part
    height = await page.evaluate("document.documentElement.scrollHeight")
    assert height > 20_000
    assert await page.locator("#log *").count() < 6 * opened
    assert await loaded.count() < 12
    await page.keyboard.press("G")
    await expect(turn(page, saved_sessions.prompts[-1])).to_be_in_viewport()


async def test_folded_parts_are_loaded_when_they_are_unfolded(
    context: BrowserContext, stored: tuple[WebServer, StoredSessions]
) -> None:
    page = await context.new_page()
    await open_session(page, stored, stored[1].every_kind)
    log = page.locator("#log")
    await expect(log).not_to_contain_text("a secret plan")
    await page.get_by_text("Thought for 4.0 s").click()
    await expect(log).to_contain_text("a secret plan")
    await page.get_by_text("read 3 files").click()
    await expect(page.locator("details.call").first).to_contain_text("/srv/0.py")
    make = page.locator("details.call", has_text="make")
    await expect(make.locator(".outcome")).to_have_text(re.compile(r"exit 2 · 200 ms"))
    await make.locator("summary").click()
    await expect(make).to_contain_text("line 199")
    await expect(make).not_to_contain_text("line 200")
    await make.get_by_text("show all 900 lines").click()
    await expect(make).to_contain_text("line 899")
    edit = page.locator("details.call", has_text="/srv/a.py")
    await expect(edit.locator(".outcome")).to_contain_text("+1 −1")
    await edit.locator("summary").click()
    await expect(edit.locator(".diff .add .word")).to_have_text("[]")
    task = page.locator("details.call", has_text="Look")
    await task.locator("summary").first.click()
    await expect(task.locator(".child .turn")).to_contain_text("There are two callers.")


async def test_separators_damage_and_figures_are_shown(
    context: BrowserContext, stored: tuple[WebServer, StoredSessions]
) -> None:
    page = await context.new_page()
    await open_session(page, stored, stored[1].every_kind)
    await expect(page.locator(".cut-mark").first).to_contain_text("compaction (automatic) of the 2 messages above")
    await expect(page.locator(".cut-mark.warn")).to_contain_text("reverted from here: 1 message")
    await expect(page.locator(".turn.reverted")).to_have_count(1)
    await expect(page.locator(".day")).to_have_count(1)
    await expect(page.locator(".failure").last).to_have_text("overloaded")
    await expect(page.locator(".damage")).to_contain_text("A record cannot be read")
    panel = page.locator("#panel")
    for text in (
        "with subagents",
        "at today's prices",
        "dig",
        "/srv/a.py",
        "Look for callers",
        "Why does `parse` fail?",
    ):
        await expect(panel).to_contain_text(text)
    await expect(page.locator("#map .window")).to_have_count(1)
    await page.set_viewport_size({"width": 390, "height": 800})  # without room for the map
    async with page.expect_response(re.compile("/panel")) as answered:
        await page.reload()
    assert "map-lines" not in await (await answered.value).text()
    await expect(panel.locator("summary").first).to_contain_text("$")


async def test_a_turn_can_be_copied_and_seen_as_it_is_stored(
    context: BrowserContext, stored: tuple[WebServer, StoredSessions]
) -> None:
    await context.grant_permissions(["clipboard-write", "clipboard-read"])
    page = await context.new_page()
    await open_session(page, stored, stored[1].every_kind)
    async with page.expect_response(re.compile("form=markdown")) as answered:
        await page.locator(".turn.prompt .more").first.click()
        await page.get_by_role("menuitem", name="Copy as Markdown").click()
    assert "Why does `parse` fail?" in await (await answered.value).text()
    await page.locator(".turn.prompt .more").first.click()
    await page.get_by_role("menuitem", name="Raw JSON").click()
    await expect(page.locator("pre")).to_contain_text('"role": "user"')


async def test_what_is_shown_is_chosen_by_the_address(
    context: BrowserContext, stored: tuple[WebServer, StoredSessions]
) -> None:
    page = await context.new_page()
    await open_session(page, stored, stored[1].every_kind)
    await page.keyboard.press("t")
    await expect(page).to_have_url(re.compile("show=reasoning"))
    await expect(page.locator("#log")).to_contain_text("a secret plan")
    await expect(page.get_by_role("button", name="thinking")).to_have_attribute("aria-pressed", "true")


async def test_a_search_leads_into_the_output_with_its_words_marked(
    context: BrowserContext, stored: tuple[WebServer, StoredSessions]
) -> None:
    page = await context.new_page()
    sample, session = stored[1].sample, stored[1].every_kind
    [part] = [
        (part["messageID"], part["id"])
        for path in (sample.root / "part").glob("*/*.json")
        if (part := json.loads(path.read_bytes())).get("tool") == "bash" and part["sessionID"] == session["id"]
    ]
    await open_session(page, stored, session, f"?at={part[0]}&q=line+42#p-{part[1]}")
    await expect(page.locator(f"#p-{part[1]}")).to_contain_text("line 42")
    await expect(page.locator(f"#p-{part[1]}")).to_be_in_viewport()
    assert "42" in await page.evaluate("[...CSS.highlights.get('found')].map(String)")


async def test_brackets_open_the_neighbours_of_a_session(
    context: BrowserContext, stored: tuple[WebServer, StoredSessions]
) -> None:
    page = await context.new_page()
    saved_sessions = stored[1]
    await open_session(page, stored, saved_sessions.long)
    await page.keyboard.press("[")
    await expect(page).to_have_url(re.compile(saved_sessions.hostile["id"]))
    await page.keyboard.press("]")
    await expect(page).to_have_url(re.compile(saved_sessions.long["id"]))


async def test_projects_are_in_the_order_of_their_newest_sessions(
    context: BrowserContext, stored: tuple[WebServer, StoredSessions]
) -> None:
    page = await context.new_page()
    await stored[0].enter(page, "/ui/projects")
    await expect(page.locator("tbody th")).to_have_text(["shop", "other"])


async def test_changes_and_context_have_pages(
    context: BrowserContext, stored: tuple[WebServer, StoredSessions]
) -> None:
    page = await context.new_page()
    await open_session(page, stored, stored[1].every_kind, "/changes")
    await expect(page.locator(".diff .add")).to_contain_text("+return []")
    await page.get_by_role("link", name="Context").click()
    await expect(page.get_by_role("row", name=re.compile("^tools .* not known$"))).to_be_visible()
    await expect(page.get_by_text("since the step before, without system prompt, tools")).to_be_visible()
    await page.get_by_role("link", name="Step before").click()
    await expect(page.get_by_role("link", name="its answer")).to_be_visible()


async def test_journey_16_without_scripts_a_session_is_read_paged_and_searched(
    chromium: Browser, stored: tuple[WebServer, StoredSessions]
) -> None:
    server, saved_sessions = stored
    signed_in = await chromium.new_context()
    await server.enter(await signed_in.new_page())
    state = await signed_in.storage_state()
    await signed_in.close()
    context = await chromium.new_context(java_script_enabled=False, storage_state=state)
    page = await context.new_page()
    await page.goto(f"{server.url}/ui/session/{saved_sessions.long['id']}")
    await expect(turn(page, saved_sessions.prompts[-1])).to_be_visible()
    await page.get_by_role("link", name="Earlier turns").click()
    await expect(turn(page, saved_sessions.prompts[-1])).to_have_count(0)
    await page.get_by_role("link", name="First").click()
    await expect(turn(page, saved_sessions.prompts[0])).to_be_visible()
    await page.get_by_role("link", name="Later turns").click()
    await expect(turn(page, saved_sessions.prompts[25])).to_be_visible()
    await page.locator("#find-words").fill(WORD)
    await page.keyboard.press("Enter")
    await page.locator(".hit-list a").click()
    await expect(turn(page, saved_sessions.prompts[TURNS // 4])).to_be_visible()
    await page.goto(f"{server.url}/ui/session/{saved_sessions.every_kind['id']}")
    await page.get_by_text("make").click()
    await page.locator("details.call", has_text="make").get_by_role("link", name="Show").click()
    await expect(page.get_by_text("line 199")).to_be_visible()
    await page.goto(f"{server.url}/ui/session/{saved_sessions.every_kind['id']}")
    await page.get_by_role("link", name="Cost, tokens, files and prompts").click()
    await expect(page.get_by_text("with subagents")).to_be_visible()
    await context.close()


async def test_hostile_content_does_nothing_on_any_page_of_a_session(
    context: BrowserContext, stored: tuple[WebServer, StoredSessions]
) -> None:
    server, saved_sessions = stored
    page = await context.new_page()
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    await open_session(page, stored, saved_sessions.hostile)
    await expect(page.locator("#panel .figures").first).to_be_visible()
    await page.keyboard.press("O")
    folds = page.locator("#log details.part")
    for at in range(await folds.count()):
        await expect(folds.nth(at).locator("a.load:not(.all)")).to_have_count(0)
    texts = await page.locator("#log").inner_text()
    assert "<script>window.pwned=1</script>" in texts
    for path in ("", "/changes", "/changes?view=split", "/context", "/panel", "/find?q=pwned", "/../../?children=1"):
        if path:
            await page.goto(f"{server.url}/ui/session/{saved_sessions.hostile['id']}{path}")
        assert await page.evaluate("window.pwned === undefined")
        result = await page.evaluate(
            "[...document.querySelectorAll('iframe, object, embed, base, svg svg, [onload], [onerror], [style*=url],"
            ' img:not([src^="/ui/"]), form:not([action^="/ui/"]), a[href^=javascript], a[href^=data]\')].length'
        )
        assert result == 0
    assert dialogs == []


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (1280, "light"),
        (390, "dark"),
        pytest.param(390, "light", marks=pytest.mark.slow),
        pytest.param(1280, "dark", marks=pytest.mark.slow),
    ],
)
async def test_the_pages_of_a_session_are_accessible_and_nothing_sticks_out(
    context: BrowserContext, stored: tuple[WebServer, StoredSessions], axe: str, width: int, scheme: str
) -> None:
    server, saved_sessions = stored
    page = await context.new_page()
    await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    await page.set_viewport_size({"width": width, "height": 800})
    await open_session(page, stored, saved_sessions.every_kind)
    for path in ("?show=reasoning,outputs,marks", "/changes", "/context", "/find?q=parse"):
        await page.goto(f"{server.url}/ui/session/{saved_sessions.every_kind['id']}{path}")
        if path.startswith("?"):
            await expect(page.locator("#panel .figures").first).to_be_attached()
        await is_usable(page, axe)
