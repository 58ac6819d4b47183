from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opensesh.config import frontmatter
from opensesh.errors import ConfigError
from opensesh.records import as_list, as_object


def settings(yaml: str) -> dict[str, Any]:
    return frontmatter.parse(f"---\n{yaml}\n---\nbody\n").settings


AGENT = """---
description: >-
  Use this agent when the user needs a review,
  and only then.

  <example>
    Context: the user asked: "please look"
    user: yes
  </example>
mode: subagent
model: anthropic/claude-opus-4-6   # the big one
temperature: 0.1
top_p: 1.0
steps: 40
color: "#EF4444"
hidden: true
tools:
  write: false
  mcp.chrome-devtools: false
permission:
  read: allow
  bash:
    "*": ask
    'git log*': allow
    git status: allow
  edit: { "*": deny, "docs/**": allow }
tags: [review, "code, and more"]
---

You review code.

---

Still the prompt.
"""


def test_an_agent_file_is_read_with_all_its_levels() -> None:
    markdown = frontmatter.parse(AGENT, "review.md")
    assert markdown.settings == {
        "description": (
            "Use this agent when the user needs a review, and only then.\n<example>\n"
            '  Context: the user asked: "please look"\n  user: yes\n</example>'
        ),
        "mode": "subagent",
        "model": "anthropic/claude-opus-4-6",
        "temperature": 0.1,
        "top_p": 1,
        "steps": 40,
        "color": "#EF4444",
        "hidden": True,
        "tools": {"write": False, "mcp.chrome-devtools": False},
        "permission": {
            "read": "allow",
            "bash": {"*": "ask", "git log*": "allow", "git status": "allow"},
            "edit": {"*": "deny", "docs/**": "allow"},
        },
        "tags": ["review", "code, and more"],
    }
    assert list(markdown.settings["permission"]["bash"]) == ["*", "git log*", "git status"]
    assert markdown.body == "You review code.\n\n---\n\nStill the prompt."
    assert markdown.source.where(("permission", "bash", "git log*")) == (24, 17)
    assert markdown.source.where(("permission", "edit", "docs/**"), key=True) == (26, 22)


@pytest.mark.parametrize(
    ("yaml", "value"),
    [
        ("a: yes", "yes"),
        ("a: On", "On"),
        ("a: True", True),
        ("a: null", None),
        ("a:", None),
        ("a: ~", None),
        ("a: 007", 7),
        ("a: 0x1F", 31),
        ("a: 0o17", 15),
        ("a: -1.5e3", -1500),
        ("a: .5", 0.5),
        ("a: 1.2.3", "1.2.3"),
        ("a: 1e999", "1e999"),
        pytest.param("a: " + "9" * 5000, "9" * 5000, id="too many digits"),
        ("a: '12'", "12"),
        ("a: 'it''s'", "it's"),
        ('a: "tab\\t\\u00e9 \\"q\\" \\\\ \\x41"', 'tab\té "q" \\ A'),
        ('a: "two\n  lines\n\n  and more"', "two lines\nand more"),
        ("a: two\n  lines\n\n  and more # done", "two lines\nand more"),
        ("a: http://x:8/y#z", "http://x:8/y#z"),
        ("a: word # comment", "word"),
        ("a: # comment\n  b", "b"),
        ("a: |\n  one\n   two\n\n  three\n\n", "one\n two\n\nthree\n"),
        ("a: |-\n  one\n", "one"),
        ("a: |+\n  one\n", "one\n\n"),
        ("a: |2\n    one\n  two", "  one\ntwo\n"),
        ("a: >\n  one\n  two\n\n\n  three\n   four\n  five", "one two\n\nthree\n four\nfive\n"),
        ("a: >2-\n  one\n  two", "one two"),
        ("a: |\nb: 1", ""),
        ("a: []", []),
        ("a: {}", {}),
        ("a: [x, 'y', \"z\", 1, true, ]", ["x", "y", "z", 1, True]),
        ("a: [x,\n  # why\n  {y: [z]}]", ["x", {"y": ["z"]}]),
        ('a: {"k":1, l: , m}', {"k": 1, "l": None, "m": None}),
        ("a:\n- x\n- y: 1\n  z: 2\n-\n  - deep\n- - deeper", ["x", {"y": 1, "z": 2}, ["deep"], ["deeper"]]),
        ("a:\n  - { action: '*', effect: deny }\n  - \"q\": v", [{"action": "*", "effect": "deny"}, {"q": "v"}]),
        ("a:\n    b:\n      c: 1\n    d: 2", {"b": {"c": 1}, "d": 2}),
    ],
)
def test_yaml_means_what_it_means_elsewhere(yaml: str, value: Any) -> None:
    result = settings(yaml)["a"]
    assert result == value
    assert type(result) is type(value)


@pytest.mark.parametrize(
    ("yaml", "line", "column", "reason"),
    [
        ("a:\n\tb: 1", 3, 1, "tab"),
        ("a: 1\na: 2", 3, 1, "twice"),
        ("p:\n  *: deny", 3, 3, "alias"),
        ("p:\n  x: *", 3, 6, "alias"),
        ("p:\n  x: &a 1", 3, 6, "anchor"),
        ("p:\n  x: !tag 1", 3, 6, "tag"),
        ("p:\n  x: 'open", 3, 6, "never closed"),
        ("p:\n  x: [a, b", 3, 6, "never closed"),
        ("p:\n  x: [a] b", 3, 9, "follows"),
        ("p:\n  x: a: b", 3, 7, "quotes"),
        ("p:\n  x: 1\n   y: 2", 4, 5, "quotes"),
        ('p:\n  x: "a\\q"', 3, 8, "escape"),
        ('p:\n  x: "\\UFFFFFFFF"', 3, 7, "not a character"),
        pytest.param("p:\n  x: " + "[" * 5000, 2, 1, "too deeply", id="deep"),
        ("p:\n  x: - a", 3, 6, "line below"),
        ("p:\n  x: | text", 3, 6, "lines below"),
        ("p:\n  x: 1\n y: 2", 4, 2, "too far|does not belong"),
        ("p:\n  ? x\n  : y", 3, 3, "complex"),
        ("just words", 2, 1, "key: value"),
        ("- a\n- b", 2, 1, "key: value"),
    ],
)
def test_what_is_not_yaml_is_refused_where_it_stands(yaml: str, line: int, column: int, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        frontmatter.parse(f"---\n{yaml}\n---\nbody", "/x/agent.md")
    assert (caught.value.path, caught.value.line, caught.value.column) == ("/x/agent.md", line, column)


def test_a_colon_in_a_value_makes_it_the_text_it_is() -> None:
    result = settings(
        "description: Use this: it helps # really\n  and more\nmodel: ollama/qwen:7b\nargument-hint: [a] [b]\nn: 1"
    )
    assert result == {
        "description": "Use this: it helps # really\nand more",
        "model": "ollama/qwen:7b",
        "argument-hint": "[a] [b]",
        "n": 1,
    }


def test_the_second_chance_does_not_hide_the_first_error() -> None:
    with pytest.raises(ConfigError, match="must be in quotes") as caught:
        frontmatter.parse("---\na: b: c\np:\n  x: 'open\n---\n", "f.md")
    assert caught.value.line == 2


@pytest.mark.parametrize(
    ("text", "body"),
    [
        ("# Title\n\n---\na: 1\n---\n", "# Title\n\n---\na: 1\n---"),
        ("----\na: 1\n----\n", "----\na: 1\n----"),
        ("", ""),
        ("---\n---\nbody", "body"),
        ("---\n# only a comment\n---\n\n body \n", "body"),
        ("\ufeff---\r\n---\r\nbody\r\n", "body"),
    ],
)
def test_a_text_without_settings_is_all_body(text: str, body: str) -> None:
    assert frontmatter.parse(text)[:2] == ({}, body)


def test_windows_line_ends_are_line_ends() -> None:
    markdown = frontmatter.parse("---\r\na: 1\r\nb: |\r\n  x\r\n  y\r\nc:\r\n  d: 'e'\r\n---\r\nbody\r\n")
    assert markdown[:2] == ({"a": 1, "b": "x\ny\n", "c": {"d": "e"}}, "body")


def test_front_matter_without_an_end_is_reported() -> None:
    with pytest.raises(ConfigError, match="never closed"):
        frontmatter.parse("---\na: 1\n\nbody\n", "x.md")


WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=12)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=12,
)


def block(value: Any, indent: str) -> str:
    if members := as_object(value):
        return "".join(f"\n{indent}{quote(key)}:{block(item, indent + '  ')}" for key, item in members.items())
    if items := as_list(value):
        return "".join(f"\n{indent}-{block(item, indent + '  ')}" for item in items)
    return f" {quote(value)}" if isinstance(value, str) else f" {json.dumps(value)}"


def quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@given(st.dictionaries(WORDS, PLAIN, min_size=1, max_size=4))
def test_quoted_blocks_of_any_shape_come_back_as_they_were(value: dict[str, Any]) -> None:
    assert settings(block(value, "").lstrip("\n")) == value


@given(st.text(alphabet="ab:-#'\"[]{}|>&*!, \n\t?1~", max_size=60))
def test_no_text_makes_the_reader_fail_in_any_other_way(text: str) -> None:
    problem = None
    try:
        frontmatter.parse(f"---\n{text}\n---\nbody", "x.md")
    except ConfigError as error:
        problem = error
    assert problem is None or problem.line >= 1
