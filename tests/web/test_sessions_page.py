from __future__ import annotations

import asyncio
import re
import shutil
import zipfile
from pathlib import Path

import pytest
from playwright.async_api import Browser, BrowserContext, Locator, Page, expect

from ..history.generations import CHILDREN, MONEY, SESSIONS, Generations
from ..server.serving import SCRIPTED
from .web_server import WebServer, web_server

pytestmark = pytest.mark.asyncio(loop_scope="module")
FIXTURES = Path(__file__).parents[1] / "fixtures"


def row(page: Page, title: str) -> Locator:
    return page.locator(".session", has=page.get_by_role("link", name=title, exact=True))


async def test_journey_1_a_ticket_opens_the_list_once(context: BrowserContext, server: WebServer) -> None:
    page = await context.new_page()
    address = f"{server.url}/ui/enter#{server.ticket()}"
    await page.goto(address)
    await expect(page).to_have_url(f"{server.url}/ui/")
    await expect(page.get_by_role("link", name="Fix the parser")).to_be_visible()
    cookies = await context.cookies()
    assert [(cookie["httpOnly"], cookie["sameSite"]) for cookie in cookies] == [(True, "Strict")]  # pyright: ignore[reportTypedDictNotRequiredAccess]
    assert await page.evaluate("document.cookie") == ""
    assert await page.evaluate("localStorage.getItem('opensesh-key').length") >= 32


async def test_journey_1_a_used_ticket_is_refused_and_says_what_to_do(chromium: Browser, server: WebServer) -> None:
    ticket = server.ticket()
    context = await chromium.new_context()
    page = await context.new_page()
    await page.goto(f"{server.url}/ui/enter#{ticket}")
    await expect(page).to_have_url(f"{server.url}/ui/")
    await context.close()
    other = await chromium.new_context()
    page = await other.new_page()
    await page.goto(f"{server.url}/ui/enter#{ticket}")
    await expect(page.get_by_role("alert")).to_contain_text("opensesh web")
    await expect(page).to_have_url(f"{server.url}/ui/enter")
    await page.goto(f"{server.url}/ui/")
    await expect(page.get_by_role("heading", name="Not signed in")).to_be_visible()
    await page.get_by_role("link", name="Enter a code").click()
    await page.get_by_label("Code").fill(server.ticket())
    await page.get_by_role("button", name="Enter").click()
    await expect(page).to_have_url(f"{server.url}/ui/")
    await other.close()


async def test_journey_2_filters_are_in_the_address_and_survive_reload_and_back(page: Page) -> None:
    await page.get_by_label("Project", exact=True).fill("nots")
    await expect(page.locator(".session")).to_have_count(1)
    await expect(row(page, "Notes on retries")).to_be_visible()
    await expect(page).to_have_url(re.compile(r"/ui/\?project=nots$"))
    await page.reload()
    await expect(page.locator(".session")).to_have_count(1)
    await page.goto(page.url.replace("?project=nots", "settings"))
    await page.go_back()
    await expect(row(page, "Notes on retries")).to_be_visible()
    await expect(page.locator(".session")).to_have_count(1)
    await page.get_by_label("Project", exact=True).fill("zzzzzz")
    await expect(page.locator(".notice")).to_contain_text("no project resembles")
    await expect(page.locator(".near").get_by_role("link", name="eastore")).to_be_visible()


async def test_words_of_the_title_times_and_order_select_rows(page: Page) -> None:
    words = page.get_by_label("Words in the title")
    await words.fill("PARSER")
    await expect(page.locator(".session")).to_have_count(1)
    await expect(page.locator(".summary")).to_contain_text(re.compile(r"1 of \d+ sessions"))
    await words.fill("nothing like this")
    await expect(page.get_by_role("heading", name="No session matches")).to_be_visible()
    await page.get_by_role("link", name="Search all texts for it").click()
    await expect(page).to_have_url(re.compile(r"/ui/search\?q=nothing"))
    await page.goto(page.url.partition("search")[0] + "?until=2020-01-01")
    await expect(page.get_by_role("heading", name="No session matches")).to_be_visible()
    await page.goto(page.url.partition("?")[0] + "?since=not+a+time")
    await expect(page.locator(".notice")).to_contain_text("is not a time")
    await page.goto(page.url.partition("?")[0] + "?sort=title")
    titles = await page.locator(".session .title").all_inner_texts()
    assert titles == sorted(titles, key=str.casefold)
    await expect(page.locator("h2.day")).to_have_count(0)


async def test_sessions_are_archived_brought_back_exported_and_removed_in_bulk(page: Page, server: WebServer) -> None:
    names = [f"Bulk {number}" for number in range(3)]
    for name in names:
        server.create("SAY hello", title=name)
    await page.goto(f"{server.url}/ui/?q=bulk")
    await expect(page.locator(".session")).to_have_count(3)
    for name in names[:2]:
        await row(page, name).get_by_role("checkbox").check()
    bulk = page.get_by_role("toolbar", name="Selected sessions")
    await expect(bulk).to_contain_text("2 selected")
    async with page.expect_download() as download:
        await bulk.get_by_role("button", name="Export").click()
    exported = (await (await download.value).path()).read_text()
    assert all(name in exported for name in names[:2])
    await bulk.get_by_label("Format").select_option("html")
    async with page.expect_download() as download:
        await bulk.get_by_role("button", name="Export").click()
    assert len(zipfile.ZipFile(await (await download.value).path()).namelist()) == 2
    await bulk.get_by_role("button", name="Archive").click()
    await expect(page.locator(".session")).to_have_count(1)
    await expect(page.locator(".summary")).to_contain_text("2 archived hidden")
    await page.get_by_role("button", name="Undo").click()
    await expect(page.locator(".session")).to_have_count(3)
    await row(page, names[2]).get_by_role("checkbox").check()
    await bulk.get_by_role("button", name="Move to trash").click()
    await expect(page.locator(".session")).to_have_count(2)
    await page.get_by_role("button", name="Undo").click()
    await expect(page.locator(".session")).to_have_count(3)


async def test_a_long_list_is_read_page_by_page_with_each_session_once(page: Page, server: WebServer) -> None:
    for number in range(7):
        server.create(title=f"Paged {number}")
    seen: list[str] = []
    await page.goto(f"{server.url}/ui/?q=paged&limit=3")
    await expect(page.locator(".summary:not([data-stale])")).to_contain_text("7 of")
    while True:
        seen += await page.locator(".session .title").all_inner_texts()
        link = page.get_by_role("link", name="Load more")
        if not await link.count():
            break
        await page.goto(server.url + str(await link.get_attribute("href")))
    assert sorted(seen) == [f"Paged {number}" for number in range(7)]
    await page.goto(f"{server.url}/ui/?q=paged&limit=3")
    await page.get_by_role("link", name="Load more").click()
    await expect(page.locator(".session")).to_have_count(6)
    await page.get_by_role("link", name="Load more").click()
    await expect(page.locator(".session")).to_have_count(7)
    await expect(page.locator("h2.day")).to_have_count(1)


async def test_rows_show_what_runs_and_new_sessions_wait_for_a_click(page: Page, server: WebServer) -> None:
    session_id = server.create(title="Followed")
    await page.goto(f"{server.url}/ui/?q=followed")
    badge = row(page, "Followed").locator("[data-live]")
    await expect(badge).to_have_count(0)
    go = server.home / "go"
    script = f'CALL bash {{"command": "while [ ! -e {go} ]; do sleep 0.05; done", "description": "Wait"}}\n---\nSAY ok'
    body = {"model": SCRIPTED, "parts": [{"type": "text", "text": script}]}
    server.post(f"/session/{session_id}/prompt_async", body)
    await expect(badge).to_have_text("running")
    go.touch()
    await expect(badge).to_have_count(0)
    server.create(title="Followed by another")
    await page.get_by_role("button", name=re.compile("newer")).click()
    await expect(row(page, "Followed by another")).to_be_visible()


async def test_hostile_titles_are_shown_as_text(page: Page, server: WebServer) -> None:
    titles = (
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "{{7*7}} {% raw %}",
        '"><a href=javascript:alert(1)>hostile',
        "hostile \u202egnp.exe",
        "</template></textarea>]]><!-- hostile",
    )
    for title in titles:
        server.create(f"SAY {title}", title=title)
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    await page.goto(f"{server.url}/ui/")
    for title in titles:
        shown = title.replace("\u202e", "[U+202E]")
        await expect(page.locator(".session .title", has_text=shown).first).to_be_visible()
        await expect(page.locator(".session .prompt", has_text=f"SAY {shown}").first).to_be_visible()
    assert await page.locator("#rows script, #rows img").count() == 0
    assert dialogs == []


async def test_journey_9_eight_tabs_of_one_browser_load(page: Page, context: BrowserContext, server: WebServer) -> None:
    for _ in range(7):
        tab = await context.new_page()
        await tab.goto(f"{server.url}/ui/")
        await expect(tab.get_by_role("link", name="Fix the parser")).to_be_visible()
    await page.reload()
    await expect(page.get_by_role("link", name="Fix the parser")).to_be_visible()


async def test_journey_10_every_storage_generation_is_listed_and_named(context: BrowserContext, tmp_path: Path) -> None:
    data = tmp_path / ".local/share/opencode"
    shutil.copytree(FIXTURES / "opencode-1.1.65/storage", data / "storage", symlinks=True)
    shutil.copy(FIXTURES / "opencode-1.18.33/opencode.db", data / "opencode.db")
    with web_server(tmp_path) as server:
        page = await context.new_page()
        await server.enter(page)
        await expect(page.locator(".session .badge", has_text="tree").first).to_be_visible()
        await expect(page.locator(".session .badge", has_text="opencode.db").first).to_be_visible()
        listed = server.http.get("/history/sessions?children=1&archived=1").json()
        assert {name for item in listed["items"] for name in item["stores"]} == {"tree", "opencode.db"}
        for name in ("tree", "opencode.db"):
            row = page.locator(".session", has=page.locator(".badge", has_text=name)).first
            title = await row.locator(".title").inner_text()
            await row.locator(".title").click()
            await expect(page.get_by_role("heading", level=1)).to_have_text(title)
            await expect(page.locator(".session-facts .badge")).to_have_text(name)
            await expect(page.locator("#log .turn").first).to_be_attached()
            await page.go_back()
        await page.close()  # before its server ends


@pytest.mark.parametrize("generation", ["1.18", "2.0", "half migrated"])
async def test_journey_10_the_same_sessions_cost_the_same_in_every_generation(
    context: BrowserContext, tmp_path: Path, generation: str
) -> None:
    truth = Generations(tmp_path)
    data = tmp_path / ".local/share/opencode"
    cut = truth.sessions[20]
    if generation == "1.18":
        truth.v1(data, truth.sessions)
    elif generation == "2.0":
        truth.v2(data, truth.sessions)
    else:  # the migration was interrupted in the middle of a session; the tree is still there
        truth.tree(data)
        truth.v1(data, truth.sessions[:21], cut=cut["id"])
    with web_server(tmp_path) as server:
        page = await context.new_page()
        await server.enter(page, "/ui/costs")
        await expect(page.locator(".figure-cards")).to_contain_text(f"${MONEY}")
        await page.goto(f"{server.url}/ui/")
        await expect(page.locator(".summary")).to_contain_text(f"{SESSIONS - CHILDREN} of {SESSIONS} sessions")
        await page.goto(f"{server.url}/ui/session/{cut['id']}")
        prompts = [info["id"] for info in truth.messages[cut["id"]] if info["role"] == "user"]
        shown = page.locator("#log .turn.prompt")
        await expect(shown).to_have_count(len(prompts))
        assert await shown.evaluate_all("turns => turns.map(turn => turn.id.slice(2))") == prompts
        await page.locator("#log details.call").last.locator("summary").click()
        await expect(page.locator("#log details.call").last).to_contain_text("fine")
        await page.close()  # before its server ends


async def test_journey_10_a_session_of_a_store_that_is_only_read_is_continued_as_a_fork(
    context: BrowserContext, tmp_path: Path
) -> None:
    truth = Generations(tmp_path)
    data = tmp_path / ".local/share/opencode"
    project = tmp_path / "eastore"
    project.mkdir()
    for session in truth.sessions:
        session["directory"] = str(project)
    truth.v2(data, truth.sessions)
    session = next(session for session in truth.sessions if not session.get("parentID"))
    with web_server(tmp_path) as server:
        page = await context.new_page()
        await server.enter(page, f"/ui/session/{session['id']}")
        await expect(page.locator("[data-read-only]")).to_contain_text("opencode.db, which is only read")
        await expect(page.locator(".composer")).to_be_hidden()
        await page.locator("[data-read-only]").get_by_role("button", name="Fork").click()
        await expect(page.get_by_role("heading", level=1)).to_contain_text("fork #1")
        await expect(page.locator(".composer")).to_be_visible()
        await page.close()  # before its server ends


async def test_a_session_without_messages_is_not_called_a_fork(page: Page, server: WebServer) -> None:
    session_id = server.create(title="Nothing said yet")
    await page.goto(f"{server.url}/ui/?q=Nothing+said")
    row = page.locator(f".session[data-id={session_id}]")
    await expect(row.locator(".title")).to_have_text("Nothing said yet")
    await expect(row.locator(".badge", has_text="fork")).to_have_count(0)


async def test_rows_with_the_same_title_differ_by_their_first_prompts(page: Page, server: WebServer) -> None:
    for prompt in ("SAY The first word is viola.", "SAY The first word is cello."):
        server.create(prompt, "SAY A later prompt.", title="Two of a kind")
    await page.goto(f"{server.url}/ui/?q=two of a kind")
    rows = page.locator(".session .prompt")
    await expect(rows).to_have_text(["SAY The first word is cello.", "SAY The first word is viola."])


async def test_a_click_in_a_row_opens_its_session_and_one_on_its_box_selects_it(page: Page, server: WebServer) -> None:
    session_id = server.create("SAY One row.", title="A wide row")
    await page.goto(f"{server.url}/ui/?q=a wide row")
    row = page.locator(f".session[data-id={session_id}]")
    await row.get_by_role("checkbox").click()
    await expect(row.get_by_role("checkbox")).to_be_checked()
    await expect(page).to_have_url(f"{server.url}/ui/?q=a%20wide%20row")
    await row.locator(".prompt").click()
    await expect(page).to_have_url(f"{server.url}/ui/session/{session_id}")


async def test_journey_14_the_list_is_used_by_keyboard_alone(page: Page, server: WebServer) -> None:
    await page.goto(f"{server.url}/ui/?q=the")
    await page.keyboard.press("j")
    first = page.locator(".session .title").nth(0)
    await expect(first).to_be_focused()
    await page.keyboard.press("j")
    await expect(page.locator(".session .title").nth(1)).to_be_focused()
    await page.keyboard.press("k")
    await page.keyboard.press("x")
    await expect(page.locator(".session").nth(0).get_by_role("checkbox")).to_be_checked()
    await page.keyboard.press("/")
    await expect(page.get_by_role("searchbox", name="Search everything")).to_be_focused()
    await page.keyboard.type("jx")
    await expect(page.get_by_role("searchbox", name="Search everything")).to_have_value("jx")
    await page.keyboard.press("Escape")
    await page.keyboard.press("?")
    await page.wait_for_load_state()
    await expect(page.get_by_role("heading", name="Keys", exact=True)).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page).to_have_url(f"{server.url}/ui/?q=the")
    await page.wait_for_load_state()
    await page.keyboard.press("?")
    await expect(page.get_by_role("heading", name="Keys", exact=True)).to_be_visible()
    await page.clock.install(time=0)
    await page.clock.pause_at(10)  # "g" waits for a second key as long as the test needs
    await page.keyboard.press("g")
    await page.keyboard.press("s")
    await expect(page).to_have_url(f"{server.url}/ui/")


async def open_palette(page: Page) -> None:
    """Press the keys until the scripts of the page are loaded and obey."""
    box = page.get_by_role("combobox", name="Session, project or page")
    async with asyncio.timeout(60):
        while not await box.is_visible():
            await page.keyboard.press("Control+k")
            await asyncio.sleep(0.1)
    await expect(box).to_be_focused()


async def test_the_palette_finds_sessions_projects_and_pages_and_returns_the_focus(
    page: Page, server: WebServer
) -> None:
    await page.locator(".session .title").nth(0).focus()
    await open_palette(page)
    await page.keyboard.press("Escape")
    await expect(page.locator(".session .title").nth(0)).to_be_focused()
    await open_palette(page)
    await page.keyboard.type("notes")
    results = page.get_by_role("listbox", name="Results")
    await expect(results.get_by_role("option").first).to_contain_text("Notes on retries")
    await expect(results.get_by_role("option").first).to_contain_text(re.compile(r"notes · \d{4}-\d\d-\d\d"))
    await expect(results.get_by_role("option", name=re.compile("project.*notes"))).to_be_visible()
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(re.compile(r"/ui/\?project=notes"))
    await open_palette(page)
    await page.keyboard.type("settings")
    await expect(results.get_by_role("option", selected=True)).to_contain_text("Settings")
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(f"{server.url}/ui/settings")


async def test_settings_change_the_page_at_once_and_stay(page: Page, server: WebServer) -> None:
    await page.goto(f"{server.url}/ui/settings")
    root = page.locator("html")
    await page.get_by_label("dark").check()
    await page.get_by_label("compact").check()
    await page.get_by_role("group", name="Keys without Ctrl").get_by_label("off").check()
    await expect(root).to_have_attribute("data-theme", "dark")
    await page.goto(f"{server.url}/ui/")
    for name, value in (("data-theme", "dark"), ("data-density", "compact"), ("data-keys", "off")):
        await expect(root).to_have_attribute(name, value)
    assert await page.evaluate("getComputedStyle(document.body).colorScheme") == "dark"
    await page.keyboard.press("?")
    await expect(page).to_have_url(f"{server.url}/ui/")


async def test_a_browser_is_signed_out_from_another_one(page: Page, chromium: Browser, server: WebServer) -> None:
    other = await chromium.new_context(user_agent="Mozilla/5.0 (iPhone) Firefox/151.0")
    phone = await other.new_page()
    await server.enter(phone)
    await page.goto(f"{server.url}/ui/settings")
    entry = page.get_by_role("row", name="Firefox 151 on iPhone")
    await entry.get_by_role("button", name="Sign out").click()
    await expect(entry).to_have_count(0)
    await phone.reload()
    await expect(phone.get_by_role("heading", name="Not signed in")).to_be_visible()
    await other.close()


@pytest.mark.parametrize("width", [320, 390])
async def test_journey_15_a_phone_scrolls_no_page_sideways(chromium: Browser, server: WebServer, width: int) -> None:
    context = await chromium.new_context(viewport={"width": width, "height": 844}, has_touch=True)
    page = await context.new_page()
    await server.enter(page)
    for path in ("/ui/", "/ui/search", "/ui/search?q=the", "/ui/settings", "/ui/keys", "/ui/nothing"):
        await page.goto(server.url + path)
        sizes = await page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert sizes[0] <= sizes[1], (path, sizes)
    await page.goto(f"{server.url}/ui/")
    await page.get_by_role("button", name="Filters").tap()
    await page.get_by_label("State").select_option("running")
    await expect(page.get_by_role("heading", name="No session matches")).to_be_visible()
    await context.close()


async def test_journey_16_without_scripts_one_can_read_page_and_search(chromium: Browser, server: WebServer) -> None:
    context = await chromium.new_context(java_script_enabled=False)
    page = await context.new_page()
    await page.goto(f"{server.url}/ui/enter")
    await page.get_by_label("Code").fill(server.ticket())
    await page.get_by_role("button", name="Enter").click()
    await expect(page).to_have_url(f"{server.url}/ui/")
    await page.goto(f"{server.url}/ui/?limit=2")
    await page.get_by_role("link", name="Load more").click()
    await expect(page.locator(".session")).not_to_have_count(0)
    await page.goto(f"{server.url}/ui/")
    await page.get_by_label("Words in the title").fill("parser")
    await page.get_by_role("button", name="Apply").click()
    await expect(page.locator(".session")).to_have_count(1)
    box = page.get_by_role("searchbox", name="Search everything")
    await box.fill("bounded")
    await box.press("Enter")
    await expect(page.locator("mark", has_text="bounded").first).to_be_visible()
    await context.close()


async def test_journey_17_the_page_stays_whole_in_forced_colours_and_at_twice_the_size(
    chromium: Browser, server: WebServer
) -> None:
    context = await chromium.new_context(
        viewport={"width": 640, "height": 400}, forced_colors="active", color_scheme="dark", reduced_motion="reduce"
    )
    page = await context.new_page()
    await server.enter(page)
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    current = page.get_by_role("navigation").get_by_role("link", name="Sessions")
    assert await current.evaluate("element => getComputedStyle(element).outlineStyle") == "solid"
    await context.close()


@pytest.mark.parametrize(
    ("width", "theme"),
    [
        (390, "dark"),
        pytest.param(1280, "dark", marks=pytest.mark.slow),
        pytest.param(390, "light", marks=pytest.mark.slow),
        pytest.param(1280, "light", marks=pytest.mark.slow),
    ],
)
async def test_axe_finds_nothing_on_any_page(
    chromium: Browser, server: WebServer, axe: str, width: int, theme: str
) -> None:
    context = await chromium.new_context(
        viewport={"width": width, "height": 4000},  # no bar covers a part of what is checked
        color_scheme="dark" if theme == "dark" else "light",
        reduced_motion="reduce",
    )
    page = await context.new_page()
    await server.enter(page)
    running = 'axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]})'
    for path in (
        "/ui/",
        "/ui/?archived=1&children=1&sort=cost",
        "/ui/?q=nothing+like+this",
        "/ui/?project=zzzzzz",
        "/ui/search",
        "/ui/search?q=the",
        "/ui/search?q=xylophone+zebra",
        "/ui/search?q=(&mode=regex",
        "/ui/settings",
        "/ui/keys",
        "/ui/enter",
        "/ui/nothing",
    ):
        await page.goto(server.url + path)
        if path == "/ui/":
            await page.locator(".session input").first.check()
        await page.evaluate(axe + ";0")
        result = await page.evaluate(running)
        problems = [(one["id"], [node["html"][:200] for node in one["nodes"]]) for one in result["violations"]]
        assert problems == [], (path, problems)
    await page.goto(f"{server.url}/ui/")
    await open_palette(page)
    await expect(page.get_by_role("listbox", name="Results").get_by_role("option").first).to_be_visible()
    await page.evaluate(axe + ";0")
    result = await page.evaluate(running)
    assert [(one["id"], [node["html"][:200] for node in one["nodes"]]) for one in result["violations"]] == []
    await context.close()
