from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from opensesh import events

from .harness import open_harness

SCRIPT = 'CALL grep {"pattern": "KEY="}\n---\nSAY Done.\n'


@pytest.mark.parametrize(
    ("permission", "shown"),
    [
        ({}, False),
        ({"read": {"*.env": "deny"}}, False),
        ({"read": "allow"}, True),
        ({"grep": "allow"}, False),
    ],
)
async def test_what_the_rules_ask_about_is_not_found_by_searching(permission: dict[str, Any], shown: bool) -> None:
    Path(".env").write_text("KEY=sesame\n")
    Path("made.py").write_text("KEY=1\n")
    async with open_harness(SCRIPT, config={"permission": permission}) as it:
        await it.ask()
        (part,) = it.parts("tool")
    output = part["state"]["output"]
    assert "made.py" in output
    assert ("sesame" in output) == shown
    assert ("(1 file was not searched: " in output) != shown


async def test_what_the_user_has_allowed_for_good_is_found() -> None:
    Path(".env").write_text("KEY=sesame\n")
    script = 'CALL read {"filePath": ".env"}\n---\n' + SCRIPT
    async with open_harness(script) as it:
        done = await it.submit()
        asked = await it.until_published(events.PermissionAsked)
        it.engine.reply_permission(asked.id, "always")
        await done
        assert "sesame" in it.parts("tool")[1]["state"]["output"]
