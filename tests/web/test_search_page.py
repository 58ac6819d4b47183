from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.async_api import BrowserContext, Page, expect

from .web_server import WebServer, web_server

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_journey_11_results_appear_while_one_types_and_lead_to_the_part(page: Page, server: WebServer) -> None:
    await page.goto(f"{server.url}/ui/search")
    await expect(page.get_by_role("heading", name="What can be searched for")).to_be_visible()
    box = page.get_by_role("searchbox", name="Search everything")
    await expect(box).to_be_focused()
    await page.keyboard.type("xylop", delay=20)
    await expect(page.locator("mark", has_text=re.compile("xylop", re.I)).first).to_be_visible()
    await expect(page).to_have_url(f"{server.url}/ui/search?q=xylop")
    hit = page.locator("a.hit", has_text="echo xylophone").first
    await expect(hit).to_have_attribute("href", re.compile(r"/ui/session/ses_\w+\?at=msg_\w+&q=xylop#p-prt_\w+"))
    await page.keyboard.press("ArrowDown")
    await expect(page.locator("a.hit").first).to_be_focused()
    await page.reload()
    await expect(page.locator("mark").first).to_be_visible()


async def test_every_facet_narrows_the_search_and_can_be_removed(page: Page, server: WebServer) -> None:
    await page.goto(f"{server.url}/ui/search?q=SAY")
    summary = page.locator(".summary")
    whole = await summary.inner_text()
    facets = page.get_by_role("navigation", name="Narrow the search")
    for title, link, parameter in (
        ("Project", "notes", "project="),
        ("Role", "user", "role=user"),
    ):
        section = facets.locator("section", has=page.get_by_role("heading", name=title))
        await section.get_by_role("link", name=link).click()
        await expect(page).to_have_url(re.compile(re.escape(parameter)))
        selected = section.get_by_role("link", name=link)
        await expect(selected).to_have_attribute("aria-current", "true")
        await selected.click()
        await expect(summary).to_have_text(whole.strip())
    result = server.http.get("/history/search?q=xylophone").json()
    assert result["facets"]["tool"]["bash"] >= 1
    assert sum(result["facets"]["month"].values()) == result["total"]
    narrowed = server.http.get("/history/search?q=xylophone&tool=bash").json()
    assert {hit["tool"] for hit in narrowed["hits"]} == {"bash"}


async def test_a_wrong_regular_expression_is_explained_and_a_right_one_found(page: Page, server: WebServer) -> None:
    await page.goto(f"{server.url}/ui/search?q=xylo(&mode=regex")
    await expect(page.get_by_role("alert")).to_be_visible()
    await page.get_by_role("searchbox", name="Search everything").fill("xylo[a-z]+e")
    await expect(page.locator("mark", has_text="xylophone").first).to_be_visible()
    await page.get_by_label("as typed").check()
    await expect(page.get_by_role("heading", name="Nothing found")).to_be_visible()
    await page.goto(f"{server.url}/ui/search?q=zzzzqqq&project=notes")
    await page.get_by_role("link", name="Search everywhere").click()
    await expect(page).to_have_url(f"{server.url}/ui/search?q=zzzzqqq")


async def test_hostile_texts_are_marked_and_stay_texts(page: Page, server: WebServer) -> None:
    text = "<img src=x onerror=alert(1)> hostilissimus <script>alert(2)</script> \u202e{{7*7}}"
    server.create(f"SAY {text}", title="Hostile search")
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    await page.goto(f"{server.url}/ui/search?q=hostilissimus")
    await expect(page.locator(".snippet", has_text="<img src=x onerror=alert(1)>").first).to_be_visible()
    assert await page.locator("#results script, #results img").count() == 0
    await page.goto(f"{server.url}/ui/search?q=%3Cimg+src%3Dx+onerror%3Dalert(3)%3E")
    assert await page.locator("#results img").count() == 0
    assert dialogs == []


async def test_recent_searches_are_offered(page: Page, server: WebServer) -> None:
    await page.goto(f"{server.url}/ui/search?q=bounded")
    await page.get_by_role("searchbox", name="Search everything").press("Enter")
    await page.goto(f"{server.url}/ui/search")
    await expect(page.locator("#recent").get_by_role("link", name="bounded")).to_be_visible()


async def test_a_search_in_a_store_without_an_index_shows_results_when_it_is_built(
    context: BrowserContext, tmp_path: Path
) -> None:
    with web_server(tmp_path) as server:
        server.create("SAY a rare word: quokka", title="Before the index")
        page = await context.new_page()
        await server.enter(page, "/ui/search?q=quokka")
        await expect(page.locator("mark", has_text="quokka").first).to_be_visible()
        await expect(page.locator("[data-building]")).to_have_count(0)
        answer = server.http.get("/history/search?q=quokka").json()
        assert answer["index"]["ready"] is True


async def test_suggestions_have_sessions_and_projects(server: WebServer) -> None:
    result = server.http.get("/history/suggest?q=notes").json()
    assert "notes" in result["projects"]
    assert "Notes on retries" in [session["title"] for session in result["sessions"]]
