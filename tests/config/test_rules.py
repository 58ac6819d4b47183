from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opensesh.config import evaluate, rule, rules
from opensesh.config.rules import matches

if TYPE_CHECKING:
    from opensesh.config.schema import Permission


def triples(permission: Permission | None) -> list[tuple[str, str, str]]:
    return [(item.permission, item.pattern, item.action) for item in rules(permission, "/home/me")]


def test_rules_stand_in_the_order_in_which_they_are_written() -> None:
    permission: Permission = {"bash": {"*": "ask", "git *": "allow", "git push*": "deny"}, "*": "allow", "edit": "deny"}
    assert triples(permission) == [
        ("bash", "*", "ask"),
        ("bash", "git *", "allow"),
        ("bash", "git push*", "deny"),
        ("*", "*", "allow"),
        ("edit", "*", "deny"),
    ]


def test_one_action_is_a_rule_for_everything() -> None:
    assert triples("ask") == [("*", "*", "ask")]
    assert triples(None) == []


@pytest.mark.parametrize(
    ("pattern", "expanded"),
    [
        ("~", "/home/me"),
        ("~/x/*", "/home/me/x/*"),
        ("$HOME/x", "/home/me/x"),
        ("$HOME", "/home/me"),
        ("~other/x", "~other/x"),
        ("x/~/y", "x/~/y"),
    ],
)
def test_patterns_may_begin_at_home(pattern: str, expanded: str) -> None:
    assert triples({"read": {pattern: "allow"}}) == [("read", expanded, "allow")]


@pytest.mark.parametrize(
    ("text", "pattern", "expected"),
    [
        ("ls", "ls *", True),
        ("ls -la", "ls *", True),
        ("lsof", "ls *", False),
        ("/a/b/.env", "*.env", True),
        ("mcp_x", "mcp_*", True),
        ("a\nb", "a*b", True),
        ("Git status", "git *", False),
        ("a.c", "a?c", True),
        ("abc", "a.c", False),
        ("a(b)[c]", "a(b)[c]", True),
        ("xls", "ls", False),
        ("", "*", True),
    ],
)
def test_patterns_match_whole_texts(text: str, pattern: str, expected: bool) -> None:
    assert matches(text, pattern) is expected


@given(st.text())
def test_every_text_matches_itself_once_its_signs_are_gone(text: str) -> None:
    plain = text.replace("*", "").replace("?", "")
    assert matches(plain, plain)
    assert matches(plain, "*")


def test_the_last_rule_that_matches_decides_across_rulesets() -> None:
    first = (rule("*", "allow"), rule("bash", "deny"))
    second = (rule("bash", "ask", "git *"),)
    assert evaluate("bash", "git status", first, second) == "ask"
    assert evaluate("bash", "rm x", first, second) == "deny"
    assert evaluate("read", "x", first, second) == "allow"
    assert evaluate("read", "x", second) == "ask"
