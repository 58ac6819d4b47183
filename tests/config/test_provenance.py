from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from opensesh.records import as_object

if TYPE_CHECKING:
    from .conftest import House


def test_every_value_knows_where_it_came_from(house: House) -> None:
    house.write(house.config / "opencode.json", '{\n  "model": "p/m",\n  "compaction": {\n    "auto": false\n  }\n}')
    house.write(
        "project/opencode.jsonc",
        '{\n // why\n "compaction": {"prune": true},\n "permission": "ask",\n "instructions": ["a",\n  "b"]}',
    )
    house.write("project/a/opencode.json", '{"instructions": [\n"c"], "tools": {\n"write": false}}')
    house.write("project/.opencode/agent/x.md", "---\ndescription: d\ntools:\n  bash: false\nextra: 1\n---\nPrompt.")
    house.environ["OPENCODE_DISABLE_PRUNE"] = "1"
    config = house.load()
    project = house.project
    places = {
        "model": f"{house.config / 'opencode.json'}:2",
        "compaction.auto": f"{house.config / 'opencode.json'}:4",
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


def test_origins_are_kept_for_exactly_the_values_there_are(house: House) -> None:
    house.write(
        house.config / "opencode.json",
        {"formatter": {"x": {"command": ["a"]}}, "lsp": False, "mode": {"m": {}}, "server": {}, "tui": {}},
    )
    house.write(
        "project/opencode.json",
        {"formatter": False, "lsp": {"y": {"disabled": True}}, "tools": {"bash": True}, "server": {"port": 1}},
    )
    house.write(
        "project/a/opencode.json", {"plugin": ["p"], "agent": {"z": {"tools": {"edit": True}, "other": {"k": [1]}}}}
    )
    config = house.load()
    recorded = {path for path in config.origins if not isinstance(path[-1], int)}
    assert recorded == set(leaves(config.document))


def test_names_with_dots_are_found(house: House) -> None:
    house.write("project/opencode.json", {"provider": {"p": {"models": {"gpt-4.1": {"name": "x"}}}}})
    config = house.load()
    expected = str(house.project / "opencode.json")
    for path in ("provider.p.models.gpt-4.1.name", ("provider", "p", "models", "gpt-4.1", "name")):
        origin = config.origin(path)
        assert origin is not None
        assert origin.source == expected


@pytest.mark.parametrize("path", ["nothing", "compaction.reserved", "provider", "instructions.7", "model.x", ""])
def test_what_nobody_set_has_no_origin(house: House, path: str) -> None:
    house.write("project/opencode.json", {"model": "p/m", "provider": {"p": {"name": "x"}}, "instructions": ["a"]})
    assert house.load().origin(path) is None
