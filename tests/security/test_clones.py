"""Clones that are made to hang or bloat every command that is started in them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from opensesh.cli import logfile
from opensesh.cli.directory_config import trust_items
from opensesh.config import Config, agents, load, skills, system_instructions
from opensesh.config.commands import commands, expand
from opensesh.errors import ConfigError
from opensesh.plugins.loader import candidates_needing_trust, find_candidates


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    folder = tmp_path / "clone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@contextmanager
def bounded(seconds: float = 20) -> Generator[None]:
    start = time.process_time()
    yield
    assert time.process_time() - start < seconds


def write(project: Path, settings: object) -> Config:
    (project / "opencode.json").write_text(json.dumps(settings))
    return load(project, project)


def use(config: Config) -> None:
    agents(config)
    skills(config, report=lambda _: None)
    system_instructions(config)
    trust_items(config)
    find_candidates(config)


def many(value: Any, count: int) -> dict[str, Any]:
    return {f"n{number}": value for number in range(count)}


SECTIONS: dict[str, Callable[[int], dict[str, Any]]] = {
    "agents": lambda count: {"agent": many({"prompt": "x"}, count), "permission": {"bash": many("deny", count)}},
    "commands": lambda count: {"command": many({"template": "x"}, count)},
    "instructions": lambda count: {"instructions": list(many("", count))},
    "plugins": lambda count: {"plugin": [f"./{name}.py" for name in many("", count)]},
    "providers": lambda count: {"provider": many({"options": {"baseURL": "http://x"}}, count)},
    "servers": lambda count: {"mcp": many({"type": "local", "command": ["x"]}, count)},
    "skill paths": lambda count: {"skills": {"paths": list(many("", count))}},
    "skill urls": lambda count: {"skills": {"urls": list(many("", count))}},
    "tools": lambda count: {"tools": many(True, count)},
}


@pytest.mark.parametrize("section", SECTIONS)
def test_a_project_with_tens_of_thousands_of_settings_is_refused_and_the_place_named(
    project: Path, section: str
) -> None:
    with bounded(), pytest.raises(ConfigError, match="at most 1,000 entries"):
        write(project, SECTIONS[section](20_000))
    with bounded():
        use(write(project, SECTIONS[section](1_000)))


def test_a_project_with_many_settings_in_small_sections_is_refused(project: Path) -> None:
    with bounded(), pytest.raises(ConfigError, match="20,000 in all"):
        write(project, {"agent": many({"permission": {"bash": many("deny", 100)}}, 900)})


def test_the_settings_of_the_user_may_be_many(project: Path, tmp_path: Path) -> None:
    own = tmp_path / "home" / ".config" / "opencode"
    own.mkdir(parents=True)
    (own / "opencode.json").write_text(json.dumps({"command": many({"template": "x"}, 2_000)}))
    assert len(load(project, project).settings.command) == 2_000


def test_a_pattern_that_is_longer_than_any_path_is_not_searched_for(
    project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with bounded():
        use(write(project, {"instructions": ["".join(chr(0x4E00 + number % 9_000) for number in range(500_000))]}))
    assert "longer than 4,096 characters" in caplog.text


FRONT_MATTER = {
    "lines": "".join(f"key{number}: x\n" for number in range(4_000)),
    "brackets": f"key: {'[' * 15_000}\n",
    "lists": f"key:\n  {'- ' * 15_000}x\n",
}


@pytest.mark.parametrize("text", FRONT_MATTER.values(), ids=FRONT_MATTER)
@pytest.mark.parametrize("name", [".opencode/agent/a{}.md", ".opencode/skills/a{}/SKILL.md"])
def test_front_matter_is_read_in_bounded_time_or_left_out_and_named(project: Path, name: str, text: str) -> None:
    for number in range(20):
        path = project / name.format(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"---\nname: a{number}\ndescription: x\n{text}---\nHello")
    problems: list[ConfigError] = []
    with bounded():
        config = load(project, project)
        used = [*skills(config, report=problems.append), *config.settings.agent]
    assert len([*used, *problems, *config.problems]) == 20


def test_files_that_are_too_much_altogether_are_left_out_and_named(project: Path) -> None:
    for kind, name in (("agent", "a{}.md"), ("skills", "a{}/SKILL.md")):
        for number in range(20):
            path = project / ".opencode" / kind / name.format(number)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"---\nname: a{number}\ndescription: x\n---\n{'x' * 900_000}")
    problems: list[ConfigError] = []
    config = load(project, project)
    assert len(config.settings.agent) == len(skills(config, report=problems.append)) == 4
    assert "too much altogether" in str(config.problems[0])
    assert "too much altogether" in str(problems[0])


def test_instructions_that_are_too_much_altogether_are_left_out_and_named(
    project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(20):
        (project / f"a{number}.txt").write_text("x" * 900_000)
    (project / "opencode.json").write_text('{"instructions": ["*.txt"]}')
    assert len(system_instructions(load(project, project))) == 4
    assert "too much altogether" in caplog.text


@pytest.mark.parametrize("suffix", ["ts", "py"])
def test_of_thousands_of_plugins_the_first_are_looked_at_and_the_rest_is_named(
    project: Path, suffix: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder = project / ".opencode" / "plugin"
    folder.mkdir(parents=True)
    for number in range(5_000):
        (folder / f"p{number}.{suffix}").write_text("")
    with bounded():
        config = load(project, project)
        candidates, skipped = find_candidates(config)
    assert len([*candidates, *skipped]) == 500
    assert "only the first 500 of 5000 files" in caplog.text + str(config.problems)


def test_giant_programs_of_a_project_are_not_read(project: Path) -> None:
    (project / ".opencode" / "plugin").mkdir(parents=True)
    for name in (".opencode/plugin/giant.py", "server.py"):
        with open(project / name, "wb") as file:
            file.truncate(1 << 40)
    config = write(project, {"mcp": {"giant": {"type": "local", "command": ["python3", "server.py"]}}})
    with bounded():
        assert candidates_needing_trust(config) == []
        (before,) = trust_items(config)
    os.utime(project / "server.py", (1, 1))
    (after,) = trust_items(config)
    assert before.digest != after.digest


def test_a_command_with_a_number_of_any_length_does_not_cost_the_others(project: Path) -> None:
    templates = {"long": f"x ${'1' * 5_000}", "other": "y $1"}
    config = write(project, {"command": {name: {"template": text} for name, text in templates.items()}})
    by_name = commands(config)
    assert by_name["other"].hints == ("$1",)
    assert by_name["long"].hints == ()
    assert expand(templates["long"], "a").text() == f"{templates['long']}\n\na"


def test_a_thousand_warnings_read_the_configuration_of_the_project_once(project: Path) -> None:
    for number in range(400):
        for name in (f".opencode/agent/a{number}.md", f".opencode/skills/a{number}/SKILL.md"):
            (project / name).parent.mkdir(parents=True, exist_ok=True)
            (project / name).write_text("---\ndescription: x\n---\nHello")
    shown: list[str] = []
    with bounded(), logfile.show_warnings(shown.append):
        skills(load(project, project))
    assert len(shown) == 400
