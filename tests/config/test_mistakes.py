from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from opensesh.errors import ConfigError

if TYPE_CHECKING:
    from .conftest import ConfigFolders


@pytest.mark.parametrize(
    ("text", "line", "column", "reason"),
    [
        ('{\n  "modle": "a/b"\n}', 2, 3, "unknown key 'modle'; did you mean 'mode' or 'model'?"),
        ('{\n  "zzz": 1\n}', 2, 3, "unknown key 'zzz'"),
        ('{"agents": {}}', 1, 2, "unknown key 'agents'; did you mean 'agent'?"),
        ('{"model": 3}', 1, 11, "expected a string, found 3"),
        ('{"model": null}', 1, 11, "expected a string, found null"),
        ('{"compaction": {"auto": "yes"}}', 1, 25, "expected true or false, found 'yes'"),
        ('{"compaction": {"reserved": -1}}', 1, 29, "expected a whole number from 0 up, found -1"),
        ('{"compaction": []}', 1, 16, "expected an object, found a list"),
        ('{"instructions": "a.md"}', 1, 18, "expected a list, found 'a.md'"),
        ('{"instructions": ["a",\n 2]}', 2, 2, "expected a string, found 2"),
        ('{"share": "always"}', 1, 11, "expected 'auto', 'disabled' or 'manual', found 'always'"),
        ('{"permission": "never"}', 1, 16, "expected 'allow', 'ask', 'deny' or an object, found 'never'"),
        (
            '{"permission": {"read": "allow", "bash": {"git *": "no"}}}',
            1,
            52,
            "expected 'allow', 'ask' or 'deny', found 'no'",
        ),
        ('{"permission": {"bash": true}}', 1, 25, "expected 'allow', 'ask', 'deny' or an object, found true"),
        ('{"agent": {"a": {}, "b": {"steps": 0}}}', 1, 36, "expected a whole number from 1 up, found 0"),
        ('{"agent": {"b": {"tools": "Read, Write"}}}', 1, 27, "expected an object, found 'Read, Write'"),
        ('{"agent": {"b": {"tools": {"bash": "no"}}}}', 1, 36, "expected true or false, found 'no'"),
        ('{"command": {"a": {"template": "x"},\n "b": {"agent": "build"}}}', 2, 7, "'template' is missing"),
        (
            '{"provider": {"x": {}, "y": {"models": {"m": {},\n "n": {"limit": {"context": "8k", "output": 1}}}}}}',
            2,
            29,
            "expected a whole number, found '8k'",
        ),
        ('{"provider": {"x": {"models": {"m": {"cost": {"input": 1}}}}}}', 1, 46, "'output' is missing"),
        ('["not", "an object"]', 1, 1, "a configuration is an object"),
        ('{"model": "a/b" "theme": "x"}', 1, 17, "not JSON: expecting ',' delimiter"),
    ],
)
def test_a_problem_in_a_file_is_reported_with_its_line(
    folders: ConfigFolders, text: str, line: int, column: int, reason: str
) -> None:
    path = folders.write("project/a/opencode.jsonc", text)
    with pytest.raises(ConfigError) as caught:
        folders.load()
    assert (caught.value.path, caught.value.line, caught.value.column) == (str(path), line, column)
    assert caught.value.reason.startswith(reason)


def test_a_colour_is_a_number_or_one_of_a_few_names(folders: ConfigFolders) -> None:
    folders.write("project/opencode.json", {"agent": {"a": {"color": "red"}}})
    with pytest.raises(ConfigError, match=r"expected '#RRGGBB', 'primary', .* or 'info', found 'red'"):
        folders.load()


@pytest.mark.parametrize("name", ["OPENCODE_CONFIG_CONTENT", "OPENCODE_PERMISSION"])
def test_a_variable_is_named_like_a_file(folders: ConfigFolders, name: str) -> None:
    folders.environ[name] = '{"permission": {"bash": "x"}, }' if name.endswith("CONTENT") else '{"bash": "x"}'
    with pytest.raises(ConfigError, match=f"^{name}:1:.*found 'x'"):
        folders.load()


def test_keys_that_came_after_1_1_65_are_accepted(folders: ConfigFolders) -> None:
    folders.write(
        "project/opencode.json",
        {
            "$schema": "https://opencode.ai/config.json",
            "shell": "/bin/zsh",
            "references": {"docs": {"path": "../docs"}},
            "reference": {"x": "y"},
            "subagent_depth": 2,
            "attachment": {"image": {"auto_resize": True}},
            "tool_output": {"max_lines": 100, "max_bytes": 2000},
            "policies": [],
            "compaction": {"tail_turns": 2, "preserve_recent_tokens": 8000},
            "experimental": {"policies": [{"effect": "deny"}]},
            "plugin": [["p", {"option": 1}]],
            "lsp": True,
            "formatter": True,
        },
    )
    config = folders.load()
    assert config.problems == ()
    assert config.settings.compaction.tail_turns == 2
    assert config.settings.tool_output.max_bytes == 2000


def test_an_unknown_key_further_inside_has_no_effect_and_is_reported(folders: ConfigFolders) -> None:
    folders.write("project/opencode.json", '{"compaction": {"atuo": false},\n "provider": {"p": {"modles": {}}}}')
    config = folders.load()
    assert config.settings.compaction.auto is True
    assert [(problem.line, problem.column, problem.reason) for problem in config.problems] == [
        (1, 17, "unknown key 'atuo'; did you mean 'auto'?"),
        (2, 21, "unknown key 'modles'; did you mean 'models'?"),
    ]


def test_text_that_is_not_utf_8_is_refused(folders: ConfigFolders) -> None:
    path = folders.project / "opencode.json"
    path.write_bytes(b'{"theme": "\xff"}')
    with pytest.raises(ConfigError, match="not UTF-8 text"):
        folders.load()
