from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import BrowserContext, Page, expect

from opensesh.server.web.charts import calendar, stacked_bars
from opensesh.server.web.display import amount

from .web_server import WebServer, web_server

pytestmark = pytest.mark.asyncio(loop_scope="module")
LONG_TITLE = "Store" + " of settings and their history" * 4


@pytest.fixture(scope="module")
def figures_server(tmp_path_factory: pytest.TempPathFactory) -> Generator[WebServer]:
    """A server of its own: these tests remove sessions and damage the store."""
    home = tmp_path_factory.mktemp("figures")
    notes = home / "notes <b>bold"
    notes.mkdir()
    with web_server(home) as running:
        running.create("SAY It returns None.", "SAY Indeed.", title="Fix the parser")
        running.create("SAY Bounded.", title="<script>alert(1)</script>", directory=notes)
        running.create('CALL bash {"command": "echo 1", "description": "Say"}\n---\nSAY Done.', title=LONG_TITLE)
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def figures_page(context: BrowserContext, figures_server: WebServer) -> Page:
    page = await context.new_page()
    await figures_server.enter(page)
    return page


def printed(server: WebServer, *words: str) -> str:
    command = [sys.executable, "-m", "opensesh", *words]
    environ = {**server.environ, "TZ": os.environ.get("TZ", "")}
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environ, cwd=server.project).stdout


async def table_rows(page: Page, label: str) -> list[list[str]]:
    rows = page.get_by_role("region", name=label, exact=True).locator("tbody tr")
    cells = [await row.locator("th, td").all_inner_texts() for row in await rows.all()]
    return [[text.strip() for text in row if text.strip()] for row in cells]


async def test_the_panel_shows_what_a_session_spent_of_its_budget(
    context: BrowserContext, figures_server: WebServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENSESH_BUDGET", "0.50")
    page = await context.new_page()
    with web_server(tmp_path) as server:
        session_id = server.create("SAY One.", title="Limited")
        await server.enter(page, f"/ui/session/{session_id}")
        line = page.locator("#panel .figures div", has_text="budget")
        await expect(line.locator("dd")).to_have_text("$0.0015 of $0.50")
        await page.locator("#prompt").fill("SAY Two.")
        await page.locator("#prompt").press("Enter")
        await expect(line.locator("dd")).to_have_text(re.compile(r"^\$0\.00[2-9]\d of \$0\.50$"))
        await page.close()  # before its server ends
    page = await context.new_page()
    unlimited = figures_server.http.get("/session").json()[0]["id"]
    await figures_server.enter(page, f"/ui/session/{unlimited}")
    await expect(page.locator("#panel .figures div", has_text="stored")).to_be_visible()
    await expect(page.locator("#panel")).not_to_contain_text("budget")


async def test_costs_are_those_of_the_command_line_to_the_cent(figures_server: WebServer, figures_page: Page) -> None:
    await figures_page.goto(f"{figures_server.url}/ui/costs")
    for by, label in (("model", "By model"), ("project", "By project"), ("month", "By month"), ("agent", "By agent")):
        document: dict[str, Any] = json.loads(printed(figures_server, "stats", "--by", by, "--json"))
        costs = [row[1] for row in await table_rows(figures_page, label)]
        assert costs == [amount(row["cost"]) for row in document["rows"]]
    sessions = json.loads(printed(figures_server, "stats", "--by", "session", "--json"))
    shown = await table_rows(figures_page, "Most expensive sessions")
    assert [(row[0], row[1]) for row in shown] == [(row["title"], amount(row["cost"])) for row in sessions["rows"]]
    assert [row[:2] for row in await table_rows(figures_page, "Tools")] == [["bash", "1"]]


async def test_a_table_is_downloaded_as_the_command_line_prints_it(
    figures_server: WebServer, figures_page: Page
) -> None:
    await figures_page.goto(f"{figures_server.url}/ui/costs")
    async with figures_page.expect_download() as waiting:
        await (
            figures_page.get_by_role("heading", name="By project").locator("..").get_by_role("link", name="CSV").click()
        )
    download = await waiting.value
    assert download.suggested_filename == "costs-by-project.csv"
    path = await download.path()
    text = path.read_text("utf-8")
    assert text == printed(figures_server, "stats", "--by", "project", "--csv")
    assert len(list(csv.reader(io.StringIO(text)))) == 3


async def test_costs_are_filtered_by_time_project_and_prices(figures_server: WebServer, figures_page: Page) -> None:
    await figures_page.goto(f"{figures_server.url}/ui/costs")
    await figures_page.get_by_role("combobox", name="project", exact=True).fill("eastore")
    await figures_page.get_by_label("prices").select_option("of today")
    await figures_page.get_by_role("button", name="Show").click()
    await expect(figures_page).to_have_url(
        f"{figures_server.url}/ui/costs?since=&project=eastore&by=model&basis=repriced"
    )
    assert [row[0] for row in await table_rows(figures_page, "By project")] == ["eastore"]
    assert [row[1] for row in await table_rows(figures_page, "By model")] == ["unknown"]
    await figures_page.goto(f"{figures_server.url}/ui/costs?until=2020-01-01")
    await expect(figures_page.get_by_role("heading", name="No model calls")).to_be_visible()
    refused = await figures_page.request.get(
        f"{figures_server.url}/ui/costs?since=never", headers={"accept": "text/html"}
    )
    assert (refused.status, "is not a time" in await refused.text()) == (400, True)


async def test_projects_show_their_folders_sessions_and_costs(figures_server: WebServer, figures_page: Page) -> None:
    await figures_page.goto(f"{figures_server.url}/ui/projects")
    rows = await table_rows(figures_page, "Projects")
    assert {row[0]: (row[1], row[2]) for row in rows} == {
        "eastore": ("~/eastore", "2"),
        "notes <b>bold": ("~/notes <b>bold", "1"),
    }
    await figures_page.get_by_label("Name, folder or remote").fill("estore")
    await figures_page.get_by_role("button", name="Find").click()
    await expect(figures_page).to_have_url(f"{figures_server.url}/ui/projects?q=estore")
    assert [row[0] for row in await table_rows(figures_page, "Projects")] == ["eastore"]
    await figures_page.goto(f"{figures_server.url}/ui/projects?q=zzzzzz")
    await expect(figures_page.get_by_role("heading", name="No project resembles “zzzzzz”")).to_be_visible()


async def test_a_repair_is_previewed_made_and_undone(figures_server: WebServer, figures_page: Page) -> None:
    damaged = figures_server.home / ".local/share/opencode/storage/session/global/ses_torn.json"
    damaged.parent.mkdir(parents=True, exist_ok=True)
    damaged.write_bytes(b'{"id": ')
    await figures_page.goto(f"{figures_server.url}/ui/doctor")
    report = figures_page.locator("#report")
    await expect(report).to_contain_text("Repair: session/global/ses_torn.json is moved to the quarantine.")
    assert damaged.exists()
    await figures_page.get_by_role("button", name="Repair 1").click()
    await expect(report.get_by_role("heading", name="No problems found")).to_be_visible()
    assert not damaged.exists()
    await figures_page.get_by_role("button", name="Undo").click()
    await expect(report.get_by_role("heading", name="1 finding")).to_be_visible()
    assert damaged.read_bytes() == b'{"id": '
    damaged.unlink()


async def test_a_removed_session_is_restored_or_deleted_for_good(figures_server: WebServer, figures_page: Page) -> None:
    kept, lost = (figures_server.create("SAY Bye.", title=title) for title in ("Kept", "Lost"))
    for name in (kept, lost):
        assert figures_server.http.delete(f"/session/{name}").status_code == 200
    await figures_page.goto(f"{figures_server.url}/ui/trash")
    await figures_page.get_by_role("button", name="Restore Kept").click()
    await expect(figures_page.get_by_text("1 session", exact=True)).to_be_visible()
    assert figures_server.http.get(f"/session/{kept}").json()["title"] == "Kept"
    empty = figures_page.get_by_role("button", name="Delete all of them for good")
    await empty.click()
    await expect(figures_page.get_by_role("dialog")).to_contain_text("Delete 1 session for good?")
    await figures_page.keyboard.press("Escape")
    await expect(empty).to_be_focused()
    await empty.click()
    await figures_page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await expect(figures_page.get_by_role("heading", name="The trash is empty")).to_be_visible()
    assert figures_server.http.get("/history/trash").json() == {"items": []}


async def test_disk_space_is_shown_by_kind_tool_and_session(figures_server: WebServer, figures_page: Page) -> None:
    await figures_page.goto(f"{figures_server.url}/ui/disk")
    await expect(figures_page.get_by_role("region", name="Tools")).to_contain_text("bash")
    await expect(figures_page.get_by_role("region", name="Largest sessions")).to_contain_text(
        "<script>alert(1)</script>"
    )


@pytest.mark.parametrize(
    ("width", "theme"),
    [
        (1280, "light"),
        (390, "dark"),
        pytest.param(1280, "dark", marks=pytest.mark.slow),
        pytest.param(390, "light", marks=pytest.mark.slow),
    ],
)
async def test_pages_of_figures_are_accessible_and_fit(
    figures_server: WebServer, figures_page: Page, axe: str, theme: Any, width: int
) -> None:
    await figures_page.emulate_media(color_scheme=theme)
    await figures_page.set_viewport_size({"width": width, "height": 800})
    for path in ("costs", "projects", "doctor/report", "trash", "disk"):
        await figures_page.goto(f"{figures_server.url}/ui/{path}")
        await figures_page.evaluate(axe + ";0")
        result = await figures_page.evaluate("axe.run()")
        assert [(results["id"], results["nodes"][0]["html"]) for results in result["violations"]] == [], path
        assert await figures_page.evaluate("document.documentElement.scrollWidth") <= width, path
    await figures_page.goto(f"{figures_server.url}/ui/costs")
    ends = "charts => charts.map(chart => chart.getBoundingClientRect().right - chart.parentElement.clientWidth)"
    assert max(await figures_page.locator(".scroll > svg").evaluate_all(ends)) < 100  # the newest day is in view


async def test_bars_have_round_ticks_and_name_what_they_stand_for() -> None:
    amounts = {"2026-11-01": {"a": 1.0, "b": 2.0}, "2026-11-02": {}, "2026-11-03": {"c": 6.5}}
    chart = stacked_bars(amounts, ["a", "others"], amount, "/{}".format)
    assert [tick.text for tick in chart.ticks] == ["$0", "$2.00", "$4.00", "$6.00", "$8.00"]
    assert [(mark.title, mark.address) for mark in chart.marks] == [
        ("2026-11-01 · a · $1.00", "/2026-11-01"),
        ("2026-11-01 · others · $2.00", "/2026-11-01"),
        ("2026-11-03 · others · $6.50", "/2026-11-03"),
    ]
    heights = [mark.height for mark in chart.marks]
    assert heights[1] == pytest.approx(2 * heights[0], abs=0.02)
    assert stacked_bars({}, [], amount, str).marks == []


async def test_the_calendar_has_a_year_up_to_the_last_day_and_four_levels() -> None:
    amounts = {f"2026-11-{day:02}": float(day) for day in range(1, 9)}
    year = calendar(amounts, amount, str)
    last = year.marks[-1]
    assert (last.title, last.style, len(year.marks)) == ("2026-11-08 · $8.00", 4, 53 * 7)
    assert [mark.style for mark in year.marks[-8:]] == [1, 1, 2, 2, 3, 3, 4, 4]
    assert {mark.style for mark in year.marks[:-8]} == {0}
    assert {mark.address for mark in year.marks[:-8]} == {""}
