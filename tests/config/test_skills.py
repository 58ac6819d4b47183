from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from opensesh.config import skills

if TYPE_CHECKING:
    from opensesh.config import Skill
    from opensesh.errors import ConfigError

    from .conftest import ConfigFolders

ORDER = [
    "home/.claude/skills",
    "home/.agents/skills",
    "project/.claude/skills",
    "project/.agents/skills",
    "project/a/b/.claude/skills",
    "project/a/b/.agents/skills",
    "home/.config/opencode/skill",
    "home/.config/opencode/skills",
    "home/.opencode/skill",
    "project/.opencode/skills",
    "project/a/b/.opencode/skill",
    "named/skills",
    "elsewhere",
]


def put(folders: ConfigFolders, folder: str, name: str = "pdf", text: str = "How.") -> None:
    folders.write(f"{folder}/group/{name}/SKILL.md", f"---\nname: {name}\ndescription: from {folder}\n---\n{text}\n")
    if folder == "named/skills":
        folders.environ["OPENCODE_CONFIG_DIR"] = str(folders.root / "named")
    if folder == "elsewhere":
        folders.write("home/.config/opencode/opencode.json", {"skills": {"paths": ["../../../elsewhere"]}})


def found(folders: ConfigFolders) -> dict[str, Skill]:
    return skills(folders.load())


@pytest.mark.parametrize("lower", range(len(ORDER) - 1))
def test_of_two_skills_with_one_name_the_later_folder_wins(folders: ConfigFolders, lower: int) -> None:
    put(folders, ORDER[lower + 1])
    put(folders, ORDER[lower])
    assert found(folders)["pdf"].description == f"from {ORDER[lower + 1]}"


def test_a_skill_is_read_whole(folders: ConfigFolders) -> None:
    put(folders, "project/.opencode/skill", text="# Do\n\nthis")
    skill = found(folders)["pdf"]
    assert (skill.name, skill.content) == ("pdf", "# Do\n\nthis")
    assert skill.folder == str(folders.project / ".opencode/skill/group/pdf")
    assert skill.location == f"{skill.folder}/SKILL.md"


@pytest.mark.parametrize("flag", ["DISABLE_CLAUDE_CODE", "DISABLE_CLAUDE_CODE_SKILLS", "DISABLE_EXTERNAL_SKILLS"])
def test_skills_of_other_programs_can_be_left_out(folders: ConfigFolders, flag: str) -> None:
    put(folders, "home/.claude/skills", "one")
    put(folders, "project/.agents/skills", "two")
    put(folders, "home/.config/opencode/skill", "three")
    folders.environ[f"OPENCODE_{flag}"] = "1"
    assert list(found(folders)) == ["three"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("no front matter", "needs a name"),
        ("---\nname: x\n---\n", "needs a description"),
        ("---\nname: x\ndescription: 3\n---\n", "needs a description"),
        ("---\nname: x\np:\n  y: 'open\n---\n", "never closed"),
    ],
)
def test_a_skill_without_name_or_description_is_left_out_and_reported(
    folders: ConfigFolders, text: str, reason: str
) -> None:
    path = folders.write("project/.opencode/skill/bad/SKILL.md", text)
    put(folders, "project/.opencode/skill", "good")
    reported: list[ConfigError] = []
    assert list(skills(folders.load(), report=reported.append)) == ["good"]
    assert [(item.path, reason in item.reason) for item in reported] == [(str(path), True)]


# Skills behind URLs.

BASE = "https://skills.example/x"


def test_urls_are_reported_and_not_fetched(folders: ConfigFolders) -> None:
    folders.write("project/opencode.json", {"skills": {"urls": [BASE]}})
    reported: list[ConfigError] = []
    assert skills(folders.load(), report=reported.append) == {}
    assert [item.path for item in reported] == [BASE]
