"""What a reply of "always" allows: never more than the user saw."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from opensesh.config import rule
from opensesh.config.rules import decide
from opensesh.config.schema import Action
from opensesh.errors import PermissionDeniedError, PermissionRejectedError
from opensesh.permissions import Permissions
from opensesh.tools.shell.effects import analyse_command

from ..cli.conftest import Screen

ENVIRONMENT = {"PATH": os.defpath}
ASKING = (rule("*", "allow"), rule("bash", "ask"))


def actions(line: str, *rules: tuple[str, Action]) -> set[str]:
    ruleset = [rule("bash", "ask"), *(rule("bash", action, pattern) for pattern, action in rules)]
    return {
        decide("bash", pattern, ruleset).action for pattern in analyse_command(line, "/", "bash", ENVIRONMENT).patterns
    }


def test_the_terminal_shows_every_pattern_that_always_would_allow(
    screen: Callable[..., Screen], tmp_path: Path
) -> None:
    Path("opencode.json").write_text(json.dumps({"permission": {"bash": "ask"}}))
    line = "mkdir folder; touch folder/file; chmod 700 folder/file; sleep 1; rmdir folder"
    call = json.dumps({"command": line, "description": "x"})
    (tmp_path / "script").write_text(f"CALL bash {call}\n---\nSAY end")
    seen = screen("run", "-m", f"scripted/{tmp_path / 'script'}", "go")
    seen.until("n no, or type what to do instead\n  > ")
    for pattern in analyse_command(line, "/", "bash", ENVIRONMENT).always:
        assert f"always: bash {pattern}\n" in seen.text
    seen.type("n\n")
    seen.end()


@pytest.mark.parametrize(
    ("line", "rules", "expected"),
    [
        ("npm test", [("npm *", "allow")], {"allow"}),
        ("FOO=1 npm test", [("npm *", "allow")], {"allow", "ask"}),
        ("FOO=1 npm test", [("FOO=1 npm *", "allow")], {"allow", "ask"}),
        ("FOO=1 npm test", [("npm *", "allow"), ("FOO=1 npm *", "allow")], {"allow"}),
        ("FOO=2 npm test", [("npm *", "allow"), ("FOO=1 npm *", "allow")], {"allow", "ask"}),
        ("FOO=1 npm test", [("*", "allow"), ("npm *", "deny")], {"allow", "deny"}),
        ("FOO=1 BAR=2 npm test", [("*", "allow"), ("npm *", "deny")], {"allow", "deny"}),
        ("FOO=1 npm test", [("*", "allow"), ("FOO=1 *", "deny")], {"allow", "deny"}),
    ],
)
def test_a_command_with_variables_is_asked_about_with_and_without_them(
    line: str, rules: list[tuple[str, Action]], expected: set[str]
) -> None:
    assert actions(line, *rules) == expected


@pytest.mark.parametrize(
    ("granted", "others"),
    [
        ("git status", ["git push", "git status; rm x", "FOO=1 git status", "./git status", "git -c a=b status"]),
        ("./run.sh", ["../run.sh", "./run.sh; rm x", "FOO=1 ./run.sh"]),
        ("./rm a", ["rm b", "../rm a", "/bin/rm a"]),
        ("bin/git push", ["git push origin", "git status"]),
        ("sudo ls", ["ls x", "sudo rm x", "sudo -u a ls"]),
        ("npm test", ["npm publish", "npm exec x", "npx x"]),
        ("cat a", ["cat a > b", "cat $(rm x)", "cat <(rm x)", "eval cat a"]),
        ("FOO=1 make all", ["FOO=2 make all", "FOO=1 make x"]),
    ],
)
def test_what_always_allows_does_not_cover_other_commands(granted: str, others: list[str]) -> None:
    approved = [rule("bash", "allow", pattern) for pattern in analyse_command(granted, "/", "bash", ENVIRONMENT).always]
    for line in others:
        effects = analyse_command(line, "/", "bash", ENVIRONMENT)
        decided = {decide("bash", pattern, ASKING, approved).action for pattern in effects.patterns}
        assert "ask" in decided or effects.writes, line


async def ask(permissions: Permissions, session: str, patterns: Sequence[str], always: Sequence[str] | None) -> None:
    await permissions.ask(session_id=session, permission="bash", patterns=patterns, rules=ASKING, always=always)


async def test_a_grant_holds_for_all_sessions_of_the_process_but_overrides_no_denial() -> None:
    permissions = Permissions(lambda _: None)
    parent = asyncio.create_task(ask(permissions, "ses_parent", ["ls a"], ["ls *"]))
    await asyncio.sleep(0)
    permissions.reply(permissions.pending[0]["id"], "always")
    await parent
    await ask(permissions, "ses_child", ["ls b"], ["ls *"])
    with pytest.raises(PermissionDeniedError):
        await permissions.ask(
            session_id="ses_child", permission="bash", patterns=["ls c"], rules=[*ASKING, rule("bash", "deny", "ls c")]
        )
    planning = asyncio.create_task(ask(permissions, "ses_parent", ["ls a"], None))
    await asyncio.sleep(0)
    permissions.reply(permissions.pending[0]["id"], "reject")
    with pytest.raises(PermissionRejectedError):
        await planning
    assert Permissions(lambda _: None).approved == ()
