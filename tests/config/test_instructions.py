from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from opensesh.config import nearby, system_instructions, system_paths

if TYPE_CHECKING:
    from .conftest import House


def relative(house: House, paths: list[str]) -> list[str]:
    return [path.removeprefix(f"{house.root}/") for path in paths]


def paths(house: House) -> list[str]:
    return relative(house, system_paths(house.load()))


def test_the_first_name_that_is_found_wins_with_all_its_files_innermost_first(house: House) -> None:
    for path in ("project/AGENTS.md", "project/a/b/AGENTS.md", "project/a/CLAUDE.md", "project/CONTEXT.md"):
        house.write(path, "x")
    house.write("AGENTS.md", "outside")
    assert paths(house) == ["project/a/b/AGENTS.md", "project/AGENTS.md"]


@pytest.mark.parametrize("name", ["CLAUDE.md", "CONTEXT.md"])
def test_other_names_are_used_where_there_is_no_agents_file(house: House, name: str) -> None:
    house.write(f"project/{name}", "x")
    assert paths(house) == [f"project/{name}"]


def test_one_global_file_follows_the_first_there_is(house: House) -> None:
    house.write("home/.claude/CLAUDE.md", "x")
    assert paths(house) == ["home/.claude/CLAUDE.md"]
    house.write("home/.config/opencode/AGENTS.md", "x")
    assert paths(house) == ["home/.config/opencode/AGENTS.md"]
    house.write("named/AGENTS.md", "x")
    house.environ["OPENCODE_CONFIG_DIR"] = str(house.root / "named")
    assert paths(house) == ["named/AGENTS.md"]


def test_flags_leave_files_out(house: House) -> None:
    house.write("home/.claude/CLAUDE.md", "x")
    house.write("project/AGENTS.md", "x")
    house.environ["OPENCODE_DISABLE_CLAUDE_CODE_PROMPT"] = "1"
    assert paths(house) == ["project/AGENTS.md"]
    house.environ["OPENCODE_DISABLE_PROJECT_CONFIG"] = "1"
    assert paths(house) == []


def test_configured_files_are_found_by_pattern_upward_and_each_once(house: House) -> None:
    for path in ("docs/b.md", "docs/a.md", "docs/deep/c.md", "docs/x.txt", "a/docs/a.md", "a/b/.rules/one.md"):
        house.write(f"project/{path}", "x")
    house.write("home/notes/n.md", "x")
    house.write("outside/o1.md", "x")
    house.write("outside/o2.txt", "x")
    house.write("docs/not.md", "x")
    house.write(
        "project/opencode.json",
        {
            "instructions": [
                "docs/*.md",
                "docs/**/*.{md,txt}",
                "./.rules/*.md",
                "~/notes/n.md",
                f"{house.root}/outside/o?.md",
                "missing.md",
                "https://example.com/x.md",
            ]
        },
    )
    assert paths(house) == [
        "project/a/docs/a.md",
        "project/docs/a.md",
        "project/docs/b.md",
        "project/docs/deep/c.md",
        "project/docs/x.txt",
        "project/a/b/.rules/one.md",
        "home/notes/n.md",
        "outside/o1.md",
    ]


def test_relative_entries_are_looked_for_in_the_named_folder_if_the_project_is_disabled(house: House) -> None:
    house.write("project/extra.md", "x")
    house.write("named/extra.md", "x")
    house.write("home/.config/opencode/opencode.json", {"instructions": ["extra.md"]})
    house.environ["OPENCODE_DISABLE_PROJECT_CONFIG"] = "1"
    assert paths(house) == []
    house.environ["OPENCODE_CONFIG_DIR"] = str(house.root / "named")
    assert paths(house) == ["named/extra.md"]


def test_the_text_names_its_source_and_is_the_same_every_time(house: House) -> None:
    house.write("project/AGENTS.md", "Use tabs.\r\nÄ\n")
    house.write("project/docs/empty.md", "")
    house.write("project/docs/z.md", "z")
    house.write("project/opencode.json", {"instructions": ["docs/*.md"]})
    first = [each.text for each in system_instructions(house.load())]
    assert first == [
        f"Instructions from: {house.project}/AGENTS.md\nUse tabs.\r\nÄ\n",
        f"Instructions from: {house.project}/docs/z.md\nz",
    ]
    assert [each.text for each in system_instructions(house.load())] == first


def test_urls_are_asked_for_five_seconds_and_failures_left_out(house: House) -> None:
    house.write("project/AGENTS.md", "x")
    urls = ["https://example.com/b", "http://example.com/a", "https://example.com/b", "https://example.com/gone"]
    house.write("project/opencode.json", {"instructions": urls})

    def fetch(url: str, /, *, timeout: float) -> bytes:
        if url.endswith("gone"):
            raise TimeoutError(timeout)
        return f"{url} in {timeout}".encode()

    found = [(each.source, each.content) for each in system_instructions(house.load(), fetch)]
    assert found[1:] == [(url, f"{url} in 5.0") for url in urls[:2]]
    assert len(system_instructions(house.load())) == 1


def test_reading_a_file_brings_the_instructions_around_it(house: House) -> None:
    for path in (
        "AGENTS.md",
        "a/b/AGENTS.md",
        "a/b/src/CLAUDE.md",
        "a/b/src/deep/AGENTS.md",
        "a/b/src/deep/CONTEXT.md",
    ):
        house.write(f"project/{path}", path)
    config = house.load()
    source = str(house.directory / "src/deep/er/x.py")
    found = nearby(config, source, set())
    assert relative(house, [each.source for each in found]) == [
        "project/a/b/src/deep/AGENTS.md",
        "project/a/b/src/CLAUDE.md",
    ]
    known = {found[0].source}
    assert [each.source for each in nearby(config, source, known)] == [found[1].source]
    assert nearby(config, found[0].source, set())[0].source == found[1].source


@pytest.mark.parametrize("file", ["project/a/b/x.py", "project/a/x.py", "project/a/bee/x.py", "elsewhere/x.py"])
def test_files_in_or_outside_of_the_directory_bring_nothing(house: House, file: str) -> None:
    house.write("project/a/b/AGENTS.md", "x")
    house.write("project/a/AGENTS.md", "x")
    house.write("project/a/bee/AGENTS.md", "x")
    house.write("elsewhere/AGENTS.md", "x")
    assert nearby(house.load(), str(house.root / file), set()) == []
