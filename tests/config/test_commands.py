from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opensesh.config import Skill, commands, expand, load, mentions
from opensesh.config.commands import hints, split_arguments

if TYPE_CHECKING:
    from .conftest import ConfigFolders


@pytest.mark.parametrize(
    ("template", "typed", "text"),
    [
        ("$1 then $2", "a b c", "a then b c"),
        ("Do it.", "x", "Do it.\n\nx"),
        ("Do it.", "  ", "Do it."),
        ("$2 before $1", "a b c", "b c before a"),
        ("$1 and $3", "a", "a and"),
        ("$1 $1", "a b", "a b a b"),
        ("say $ARGUMENTS!", 'a "b c"', 'say a "b c"!'),
        ("$1|$ARGUMENTS", "a b", "a b|a b"),
        ("$1", '"a b" c', "a b c"),
        ("$1/$2", "'a b' c", "a b/c"),
        ("awk '{print $0}'", "", "awk '{print $0}'"),
        ("$10 $2", "a b c d e f g h i j k", "j k b"),
        ("  $1  ", "x", "x"),
        ("$1 $2", "$2 $ARGUMENTS", "$2 $ARGUMENTS"),
        ("cost: $5.00", "", "cost: .00"),
    ],
)
def test_arguments_go_to_their_places(template: str, typed: str, text: str) -> None:
    assert expand(template, typed).text() == text


@pytest.mark.parametrize(
    ("typed", "arguments"),
    [
        ("a  b\nc", ["a", "b", "c"]),
        ("\"a b\" 'c d'", ["a b", "c d"]),
        ("see [Image 1] and [image  22]", ["see", "[Image 1]", "and", "[image  22]"]),
        ('x"y z"', ["x", "y z"]),
        ("it's", ["it", "s"]),
        ("", []),
        ('""', [""]),
    ],
)
def test_what_is_typed_is_split_into_arguments(typed: str, arguments: list[str]) -> None:
    assert split_arguments(typed) == arguments


def test_shell_commands_are_handed_out_and_their_output_put_in() -> None:
    expansion = expand("Log:\n!`git log $1`\nDiff: !`git diff $2` end", "main a b")
    assert expansion.commands == ("git log main", "git diff a b")
    assert expansion.text(["L", "D"]) == "Log:\nL\nDiff: D end"


def test_a_shell_command_among_the_arguments_is_only_text() -> None:
    expansion = expand("Say $ARGUMENTS after !`date`", "!`rm -rf /`")
    assert expansion.commands == ("date",)
    assert expansion.text(["now"]) == "Say !`rm -rf /` after now"


def test_an_expansion_needs_an_output_for_every_command() -> None:
    with pytest.raises(ValueError, match="zip"):
        expand("!`date`", "").text()


@given(st.text(), st.text())
def test_any_template_can_be_expanded(template: str, typed: str) -> None:
    expansion = expand(template, typed)
    assert len(expansion.pieces) == len(expansion.commands) + 1
    text = expansion.text([""] * len(expansion.commands))
    assert text == "".join(expansion.pieces).strip()
    if "$" not in template and "!" not in template:
        assert text.startswith(template.strip())
        assert typed.strip() in text


def test_hints_name_each_place_once() -> None:
    assert hints("$ARGUMENTS $10 $2 $1 $2") == ("$1", "$2", "$10", "$ARGUMENTS")
    assert hints("nothing") == ()


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("look at @src/main.py.", ["src/main.py"]),
        ("@a, @b and @a", ["a", "b"]),
        ("mail me@example.com", []),
        ("`@code`", []),
        ("(@docs/x.md)", ["docs/x.md)"]),
        ("@.env and @./src/a.b.c", [".env", "./src/a.b.c"]),
        ("@../up/x.txt", ["../up/x.txt"]),
        ("@~/notes.md", ["~/notes.md"]),
        ("@explore, please", ["explore"]),
        ("@ nothing, @. nothing", []),
        ("x_@no -@yes", ["yes"]),
        ("@größe.txt", ["größe.txt"]),
        ("first\n@line", ["line"]),
    ],
)
def test_mentions_are_found_by_their_grammar(text: str, names: list[str]) -> None:
    assert mentions(text) == names


def test_outside_of_version_control_init_writes_into_the_folder(folders: ConfigFolders) -> None:
    config = load(folders.directory, "/", home=folders.home, environ=folders.environ)
    assert f"`{folders.directory}/AGENTS.md`" in commands(config)["init"].template


def test_built_in_commands_come_with_templates(folders: ConfigFolders) -> None:
    result = commands(folders.load())
    assert list(result) == ["init", "review"]
    assert f"`{folders.project}/AGENTS.md`" in result["init"].template
    assert "${path}" not in result["init"].template
    assert (result["init"].subtask, result["review"].subtask) == (None, True)
    assert result["review"].hints == ("$ARGUMENTS",)


def test_configured_commands_override_and_skills_do_not(folders: ConfigFolders) -> None:
    folders.write("project/opencode.json", {"command": {"review": {"template": "mine $1", "model": "p/m"}}})
    skills = [Skill("review", "d", "/x/SKILL.md", "skill"), Skill("pdf", "reads PDF", "/y/SKILL.md", "How to")]
    result = commands(folders.load(), skills)
    assert (result["review"].template, result["review"].model, result["review"].subtask) == ("mine $1", "p/m", None)
    assert result["review"].source == "command"
    assert (result["pdf"].source, result["pdf"].template, result["pdf"].description) == ("skill", "How to", "reads PDF")
