from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from opensesh.config import nearby, system_instructions, system_paths

if TYPE_CHECKING:
    from .conftest import ConfigFolders


def relative(folders: ConfigFolders, paths: list[str]) -> list[str]:
    return [path.removeprefix(f"{folders.root}/") for path in paths]


def paths(folders: ConfigFolders) -> list[str]:
    return relative(folders, system_paths(folders.load()))


def test_the_first_name_that_is_found_wins_with_all_its_files_innermost_first(folders: ConfigFolders) -> None:
    for path in ("project/AGENTS.md", "project/a/b/AGENTS.md", "project/a/CLAUDE.md", "project/CONTEXT.md"):
        folders.write(path, "x")
    folders.write("AGENTS.md", "outside")
    assert paths(folders) == ["project/a/b/AGENTS.md", "project/AGENTS.md"]


@pytest.mark.parametrize("name", ["CLAUDE.md", "CONTEXT.md"])
def test_other_names_are_used_without_an_agents_file(folders: ConfigFolders, name: str) -> None:
    folders.write(f"project/{name}", "x")
    assert paths(folders) == [f"project/{name}"]


def test_one_global_file_follows_the_first_there_is(folders: ConfigFolders) -> None:
    folders.write("home/.claude/CLAUDE.md", "x")
    assert paths(folders) == ["home/.claude/CLAUDE.md"]
    folders.write("home/.config/opencode/AGENTS.md", "x")
    assert paths(folders) == ["home/.config/opencode/AGENTS.md"]
    folders.write("named/AGENTS.md", "x")
    folders.environ["OPENCODE_CONFIG_DIR"] = str(folders.root / "named")
    assert paths(folders) == ["named/AGENTS.md"]


def test_flags_leave_files_out(folders: ConfigFolders) -> None:
    folders.write("home/.claude/CLAUDE.md", "x")
    folders.write("project/AGENTS.md", "x")
    folders.environ["OPENCODE_DISABLE_CLAUDE_CODE_PROMPT"] = "1"
    assert paths(folders) == ["project/AGENTS.md"]
    folders.environ["OPENCODE_DISABLE_PROJECT_CONFIG"] = "1"
    assert paths(folders) == []


def test_configured_files_are_found_by_pattern_upward_and_each_once(folders: ConfigFolders) -> None:
    for path in ("docs/b.md", "docs/a.md", "docs/deep/c.md", "docs/x.txt", "a/docs/a.md", "a/b/.rules/one.md"):
        folders.write(f"project/{path}", "x")
    folders.write("home/notes/n.md", "x")
    folders.write("outside/o1.md", "x")
    folders.write("outside/o2.txt", "x")
    folders.write("docs/not.md", "x")
    folders.write(
        "home/.config/opencode/opencode.json",
        {
            "instructions": [
                "docs/*.md",
                "docs/**/*.{md,txt}",
                "./.rules/*.md",
                "~/notes/n.md",
                f"{folders.root}/outside/o?.md",
                "missing.md",
                "https://example.com/x.md",
            ]
        },
    )
    assert paths(folders) == [
        "project/a/docs/a.md",
        "project/docs/a.md",
        "project/docs/b.md",
        "project/docs/deep/c.md",
        "project/docs/x.txt",
        "project/a/b/.rules/one.md",
        "home/notes/n.md",
        "outside/o1.md",
    ]


def test_relative_entries_are_looked_for_in_the_named_folder_if_the_project_is_disabled(folders: ConfigFolders) -> None:
    folders.write("project/extra.md", "x")
    folders.write("named/extra.md", "x")
    folders.write("home/.config/opencode/opencode.json", {"instructions": ["extra.md"]})
    folders.environ["OPENCODE_DISABLE_PROJECT_CONFIG"] = "1"
    assert paths(folders) == []
    folders.environ["OPENCODE_CONFIG_DIR"] = str(folders.root / "named")
    assert paths(folders) == ["named/extra.md"]


def test_the_text_names_its_source_and_is_the_same_every_time(folders: ConfigFolders) -> None:
    folders.write("project/AGENTS.md", "Use tabs.\r\nÄ\n")
    folders.write("project/docs/empty.md", "")
    folders.write("project/docs/z.md", "z")
    folders.write("project/opencode.json", {"instructions": ["docs/*.md"]})
    first = [instruction.text for instruction in system_instructions(folders.load())]
    assert first == [
        f"Instructions from: {folders.project}/AGENTS.md\nUse tabs.\r\nÄ\n",
        f"Instructions from: {folders.project}/docs/z.md\nz",
    ]
    assert [instruction.text for instruction in system_instructions(folders.load())] == first


def test_urls_are_asked_for_five_seconds_and_failures_left_out(folders: ConfigFolders) -> None:
    folders.write("project/AGENTS.md", "x")
    urls = ["https://example.com/b", "http://example.com/a", "https://example.com/b", "https://example.com/gone"]
    folders.write(folders.config / "opencode.json", {"instructions": urls})

    def fetch(url: str, /, *, timeout: float) -> bytes:
        if url.endswith("gone"):
            raise TimeoutError(timeout)
        return f"{url} in {timeout}".encode()

    result = [(instruction.source, instruction.content) for instruction in system_instructions(folders.load(), fetch)]
    assert result[1:] == [(url, f"{url} in 5.0") for url in urls[:2]]
    assert len(system_instructions(folders.load())) == 1


def test_reading_a_file_brings_the_instructions_around_it(folders: ConfigFolders) -> None:
    for path in (
        "AGENTS.md",
        "a/b/AGENTS.md",
        "a/b/src/CLAUDE.md",
        "a/b/src/deep/AGENTS.md",
        "a/b/src/deep/CONTEXT.md",
    ):
        folders.write(f"project/{path}", path)
    config = folders.load()
    source = str(folders.directory / "src/deep/er/x.py")
    result = nearby(config, source, set())
    assert relative(folders, [item.source for item in result]) == [
        "project/a/b/src/deep/AGENTS.md",
        "project/a/b/src/CLAUDE.md",
    ]
    known = {result[0].source}
    assert [item.source for item in nearby(config, source, known)] == [result[1].source]
    assert nearby(config, result[0].source, set())[0].source == result[1].source


@pytest.mark.parametrize("file", ["project/a/b/x.py", "project/a/x.py", "project/a/bee/x.py", "elsewhere/x.py"])
def test_files_in_or_outside_of_the_directory_bring_nothing(folders: ConfigFolders, file: str) -> None:
    folders.write("project/a/b/AGENTS.md", "x")
    folders.write("project/a/AGENTS.md", "x")
    folders.write("project/a/bee/AGENTS.md", "x")
    folders.write("elsewhere/AGENTS.md", "x")
    assert nearby(folders.load(), str(folders.root / file), set()) == []
