from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_browser_that_entered_by_ticket_sees_the_sessions(page: Page) -> None:
    await expect(page).to_have_title("Sessions · opensesh")
    for title in ("Fix the parser", "Notes on retries", "Migrate the store"):
        await expect(page.get_by_role("link", name=title)).to_be_visible()
    await expect(page.get_by_role("navigation").get_by_role("link", name="Sessions")).to_have_attribute(
        "aria-current", "page"
    )
