from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from opensesh.records import as_object

if TYPE_CHECKING:
    from .conftest import ConfigFolders


def test_every_value_knows_where_it_came_from(folders: ConfigFolders) -> None:
    folders.write(
        folders.config / "opencode.json", '{\n  "model": "p/m",\n  "compaction": {\n    "auto": false\n  }\n}'
    )
    folders.write(
        "project/opencode.jsonc",
        '{\n // why\n "compaction": {"prune": true},\n "permission": "ask",\n "instructions": ["a",\n  "b"]}',
    )
    folders.write("project/a/opencode.json", '{"instructions": [\n"c"], "tools": {\n"write": false}}')
    folders.write("project/.opencode/agent/x.md", "---\ndescription: d\ntools:\n  bash: false\nextra: 1\n---\nPrompt.")
    folders.environ["OPENCODE_DISABLE_PRUNE"] = "1"
    config = folders.load()
    project = folders.project
    places = {
        "model": f"{folders.config / 'opencode.json'}:2",
        "compaction.auto": f"{folders.config / 'opencode.json'}:4",
        "compaction.prune": "OPENCODE_DISABLE_PRUNE",
        "permission.*": f"{project / 'opencode.jsonc'}:4",
        "permission.edit": f"{project / 'a/opencode.json'}:3",
        "instructions.0": f"{project / 'opencode.jsonc'}:5",
        "instructions.1": f"{project / 'opencode.jsonc'}:6",
        "instructions.2": f"{project / 'a/opencode.json'}:2",
        "agent.x.description": f"{project / '.opencode/agent/x.md'}:2",
        "agent.x.permission.bash": f"{project / '.opencode/agent/x.md'}:4",
        "agent.x.options.extra": f"{project / '.opencode/agent/x.md'}:5",
        "agent.x.prompt": f"{project / '.opencode/agent/x.md'}",
        "username": "the operating system",
    }
    assert {path: str(config.origin(path)) for path in places} == places


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    if members := as_object(value):
        return [leaf for key, item in members.items() for leaf in leaves(item, (*path, key))]
    return [path]


def test_origins_are_kept_for_exactly_the_values_there_are(folders: ConfigFolders) -> None:
    folders.write(
        folders.config / "opencode.json",
        {"formatter": {"x": {"command": ["a"]}}, "lsp": False, "mode": {"m": {}}, "server": {}, "tui": {}},
    )
    folders.write(
        "project/opencode.json",
        {"formatter": False, "lsp": {"y": {"disabled": True}}, "tools": {"bash": True}, "server": {"port": 1}},
    )
    folders.write(
        "project/a/opencode.json", {"plugin": ["p"], "agent": {"z": {"tools": {"edit": True}, "other": {"k": [1]}}}}
    )
    config = folders.load()
    recorded = {path for path in config.origins if not isinstance(path[-1], int)}
    assert recorded == set(leaves(config.document))


def test_names_with_dots_are_found(folders: ConfigFolders) -> None:
    folders.write("project/opencode.json", {"provider": {"p": {"models": {"gpt-4.1": {"name": "x"}}}}})
    config = folders.load()
    expected = str(folders.project / "opencode.json")
    for path in ("provider.p.models.gpt-4.1.name", ("provider", "p", "models", "gpt-4.1", "name")):
        origin = config.origin(path)
        assert origin is not None
        assert origin.source == expected


@pytest.mark.parametrize("path", ["nothing", "compaction.reserved", "provider", "instructions.7", "model.x", ""])
def test_what_is_not_set_has_no_origin(folders: ConfigFolders, path: str) -> None:
    folders.write("project/opencode.json", {"model": "p/m", "provider": {"p": {"name": "x"}}, "instructions": ["a"]})
    assert folders.load().origin(path) is None
