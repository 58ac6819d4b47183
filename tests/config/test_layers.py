from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from opensesh.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import ConfigFolders

LAYERS = [
    "home/.config/opencode/config.json",
    "home/.config/opencode/opencode.json",
    "home/.config/opencode/opencode.jsonc",
    "named/file.json",
    "project/opencode.jsonc",
    "project/a/opencode.jsonc",
    "project/a/b/opencode.jsonc",
    "project/opencode.json",
    "project/a/opencode.json",
    "project/a/b/opencode.json",
    "home/.opencode/opencode.jsonc",
    "home/.opencode/opencode.json",
    "project/.opencode/opencode.jsonc",
    "project/.opencode/opencode.json",
    "project/a/b/.opencode/opencode.jsonc",
    "project/a/b/.opencode/opencode.json",
    "named/folder/opencode.jsonc",
    "named/folder/opencode.json",
    "OPENCODE_CONFIG_CONTENT",
    "managed/opencode.jsonc",
    "managed/opencode.json",
]


def put(folders: ConfigFolders, layer: str, document: dict[str, Any]) -> None:
    if layer.startswith("OPENCODE_"):
        folders.environ[layer] = json.dumps(document)
        return
    path = folders.write(layer, document)
    if layer == "named/file.json":
        folders.environ["OPENCODE_CONFIG"] = str(path)
    if layer.startswith("named/folder"):
        folders.environ["OPENCODE_CONFIG_DIR"] = str(path.parent)


@pytest.mark.parametrize("lower", range(len(LAYERS) - 1))
def test_each_layer_beats_the_one_below_it(folders: ConfigFolders, lower: int) -> None:
    for at in (lower, lower + 1):
        put(folders, LAYERS[at], {"model": f"p/{at}", "provider": {f"only{at}": {"name": "x"}}})
    config = folders.load()
    assert config.settings.model == f"p/{lower + 1}"
    assert set(config.settings.provider) == {f"only{lower}", f"only{lower + 1}"}


def test_all_layers_together_leave_the_highest_on_top(folders: ConfigFolders) -> None:
    for at, layer in enumerate(LAYERS):
        put(folders, layer, {"model": f"p/{at}", "instructions": [f"{at}.md"]})
    config = folders.load()
    assert config.settings.model == f"p/{len(LAYERS) - 1}"
    # The three global files replace each other's lists; from there on lists of instructions add up.
    assert config.settings.instructions == [f"{at}.md" for at in range(2, len(LAYERS))]


def test_lists_are_replaced_unless_they_are_instructions_or_plugins(folders: ConfigFolders) -> None:
    folders.write("project/opencode.json", {"instructions": ["a", "b"], "plugin": ["p@1"], "disabled_providers": ["x"]})
    folders.write("project/a/opencode.json", {"instructions": ["b", "c"], "plugin": ["q"], "disabled_providers": ["y"]})
    settings = folders.load().settings
    assert settings.instructions == ["a", "b", "c"]
    assert settings.plugin == ["p@1", "q"]
    assert settings.disabled_providers == ["y"]


def test_of_plugins_with_one_name_the_last_counts(folders: ConfigFolders) -> None:
    folders.write("project/opencode.json", {"plugin": ["@me/p@1.0.0", "other", "./local.ts"]})
    folders.write("project/a/opencode.json", {"plugin": ["@me/p@2.0.0"]})
    folders.write("project/.opencode/plugin/local.js", "")
    config = folders.load()
    local = (folders.project / ".opencode/plugin/local.js").as_uri()
    assert config.settings.plugin == ["other", "@me/p@2.0.0", local]
    assert str(config.origin("plugin.1")) == f"{folders.project / 'a/opencode.json'}:3"


def test_keys_keep_the_place_where_they_first_stood(folders: ConfigFolders) -> None:
    folders.write(folders.config / "opencode.json", {"permission": {"*": "ask", "bash": "allow", "edit": {"a": "ask"}}})
    folders.write(
        "project/opencode.json", {"permission": {"edit": {"b": "deny", "a": "allow"}, "webfetch": "deny", "*": "deny"}}
    )
    permission = folders.load().document["permission"]
    assert list(permission.items()) == [
        ("*", "deny"),
        ("bash", "allow"),
        ("edit", {"a": "allow", "b": "deny"}),
        ("webfetch", "deny"),
    ]
    assert list(permission["edit"]) == ["a", "b"]


def test_outside_of_version_control_the_way_up_ends_at_the_root(folders: ConfigFolders) -> None:
    from opensesh.config import load

    folders.write("opencode.json", {"model": "p/outer"})
    folders.write("project/.opencode/opencode.json", {"small_model": "p/inner"})
    config = load(folders.directory, "/", home=folders.home, environ=folders.environ)
    assert (config.settings.model, config.settings.small_model) == ("p/outer", "p/inner")


def test_a_home_that_contains_the_project_has_its_folder_read_once_and_below_the_project(
    folders: ConfigFolders,
) -> None:
    from opensesh.config import load

    folders.write(".opencode/opencode.json", {"model": "p/home", "small_model": "p/home"})
    folders.write("project/.opencode/opencode.json", {"model": "p/project"})
    config = load(folders.directory, "/", home=folders.root, environ=folders.environ)
    assert (config.settings.model, config.settings.small_model) == ("p/project", "p/home")
    assert config.directories.count(str(folders.root / ".opencode")) == 1


def test_the_project_can_be_kept_from_configuring_itself(folders: ConfigFolders) -> None:
    folders.write("project/opencode.json", {"model": "p/x"})
    folders.write("project/.opencode/agent/mine.md", "hello")
    folders.write("home/.opencode/opencode.json", {"small_model": "p/y"})
    folders.environ["OPENCODE_DISABLE_PROJECT_CONFIG"] = "1"
    config = folders.load()
    assert (config.settings.model, config.settings.small_model, config.settings.agent) == (None, "p/y", {})


def test_the_toml_of_the_first_versions_is_still_read_and_left_alone(folders: ConfigFolders) -> None:
    path = folders.write(folders.config / "config", 'provider = "anthropic"\nmodel = "claude"\ntheme = "dark"\n')
    folders.write(folders.config / "opencode.json", {"theme": "light"})
    config = folders.load()
    assert (config.settings.model, config.settings.theme) == ("anthropic/claude", "light")
    assert path.exists()


def test_nothing_is_written_anywhere(folders: ConfigFolders) -> None:
    for layer in LAYERS:
        put(folders, layer, {"model": "p/m"})
    folders.write("project/.opencode/agent/x.md", "hi")
    before = {path: path.read_bytes() for path in folders.root.rglob("*") if path.is_file()}
    folders.load()
    assert {path: path.read_bytes() for path in folders.root.rglob("*") if path.is_file()} == before


def test_a_named_file_that_is_not_there_is_an_error(folders: ConfigFolders) -> None:
    folders.environ["OPENCODE_CONFIG"] = str(folders.root / "missing.json")
    with pytest.raises(ConfigError, match=r"OPENCODE_CONFIG: names .*missing.json, which does not exist"):
        folders.load()


def test_our_own_variables_come_before_opencodes(folders: ConfigFolders) -> None:
    folders.environ |= {"OPENCODE_CONFIG_CONTENT": '{"model": "p/a"}', "OPENSESH_CONFIG_CONTENT": '{"model": "p/b"}'}
    config = folders.load()
    assert config.settings.model == "p/b"
    assert str(config.origin("model")) == "OPENSESH_CONFIG_CONTENT:1"


def test_empty_folders_have_defaults(folders: ConfigFolders) -> None:
    settings = folders.load().settings
    assert (settings.compaction.auto, settings.compaction.prune, settings.share) == (True, True, None)
    assert settings.username == "someone"


# What an organisation publishes.


class Net:
    def __init__(self, answers: dict[str, bytes]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def __call__(self, url: str, /, *, timeout: float) -> bytes:
        self.asked.append(url)
        if url not in self.answers:
            raise ConnectionError("nobody there")
        return self.answers[url]


def login(folders: ConfigFolders) -> None:
    entry = {"type": "wellknown", "key": "ORG_TOKEN", "token": 's3cr"t'}
    folders.write(
        "home/.local/share/opencode/auth.json", {"https://org.example/": entry, "x": {"type": "api", "key": "k"}}
    )


def test_an_organisations_configuration_is_the_lowest_layer(folders: ConfigFolders) -> None:
    login(folders)
    folders.write(folders.config / "opencode.json", {"model": "p/mine"})
    answer = '{"config": {"model": "p/org",\n "provider": {"o": {"options": {"apiKey": "{env:ORG_TOKEN}"}}}}}'
    net = Net({"https://org.example/.well-known/opencode": answer.encode()})
    config = folders.load(net)
    assert config.settings.model == "p/mine"
    assert config.settings.provider["o"].options == {"apiKey": 's3cr"t'}
    assert str(config.origin("provider.o.options.apiKey")) == "https://org.example/.well-known/opencode:2"
    assert config.variables == {"ORG_TOKEN": 's3cr"t'}
    assert net.asked == ["https://org.example/.well-known/opencode"]


def test_without_a_way_to_fetch_no_organisation_is_asked(folders: ConfigFolders) -> None:
    login(folders)
    config = folders.load()
    assert (config.settings.provider, config.variables) == ({}, {})


def test_a_mistake_of_an_organisation_is_placed_in_what_it_published(folders: ConfigFolders) -> None:
    login(folders)
    net = Net({"https://org.example/.well-known/opencode": b'{"config": {\n  "thmee": "x"}}'})
    with pytest.raises(ConfigError, match=r"\.well-known/opencode:2:3: unknown key 'thmee'; did you mean 'theme'"):
        folders.load(net)


def test_an_organisation_that_does_not_answer_is_reported_and_left_out(folders: ConfigFolders) -> None:
    login(folders)
    [problem] = folders.load(Net({})).problems
    assert str(problem).startswith("https://org.example/.well-known/opencode: the organisation's configuration")
    assert str(problem).endswith("cannot be fetched: nobody there")


# Placeholders.


def test_placeholders_are_filled_in_without_changing_what_the_file_means(folders: ConfigFolders) -> None:
    folders.environ |= {"SECRET": 'quote " backslash \\ line\nbreak', "PORT": "4096", "WHERE": "keys"}
    folders.write("project/keys/one.txt", '\n  "k" \n')
    folders.write("home/two.txt", "two")
    folders.write(
        "project/opencode.json",
        """{
          // "x": "{file:missing.txt}"
          "username": "{env:SECRET}", // {file:missing.txt}
          /* {file:missing.txt} */
          "server": {"port": {env:PORT}},
          "provider": {"p": {"options": {"a": "<{file:./keys/one.txt}>", "b": "{file:~/two.txt}",
            "c": "{file:{env:WHERE}/one.txt}", "d": "{env:NOT_SET}|"}}}
        }""",
    )
    config = folders.load()
    assert config.settings.username == 'quote " backslash \\ line\nbreak'
    assert config.settings.server == {"port": 4096}
    assert config.settings.provider["p"].options == {"a": '<"k">', "b": "two", "c": '"k"', "d": "|"}


def test_a_file_that_a_placeholder_names_must_exist(folders: ConfigFolders) -> None:
    path = folders.write("project/opencode.json", '{\n  "username": "{file:missing.txt}"\n}')
    with pytest.raises(ConfigError, match=r"cannot read .*project/missing.txt: No such file") as caught:
        folders.load()
    assert (caught.value.path, caught.value.line, caught.value.column) == (str(path), 2, 16)


def test_an_invalid_path_is_reported(folders: ConfigFolders) -> None:
    folders.write("project/opencode.json", r'{"username": "{file:a\u0000b}"}')
    with pytest.raises(ConfigError, match="not a UTF-8 text file"):
        folders.load()


@pytest.mark.parametrize("name", ["endless", "project/opencode.json"])
def test_a_file_without_an_end_is_not_read_to_it(folders: ConfigFolders, name: str) -> None:
    folders.write("project/opencode.json", '{"username": "{file:../endless}"}')
    path = folders.write(name, "")
    with path.open("wb") as file:
        file.truncate((1 << 24) + 1)
    with pytest.raises(ConfigError, match="too large"):
        folders.load()


def test_places_behind_a_placeholder_are_those_of_the_file(folders: ConfigFolders) -> None:
    folders.environ["LONG"] = "x" * 50
    folders.write("project/opencode.json", '{"username": "{env:LONG}", "theme": "{env:LONG}", "snapshot": 3}')
    with pytest.raises(ConfigError) as caught:
        folders.load()
    assert (caught.value.line, caught.value.column) == (1, 63)
    assert caught.value.reason == "expected true or false, found 3"


# Markdown.


def test_markdown_files_are_agents_commands_and_modes(folders: ConfigFolders) -> None:
    folders.write(
        "project/.opencode/agent/review.md", "---\ndescription: looks\nreasoningEffort: high\n---\nYou look.\n"
    )
    folders.write("project/.opencode/agents/team/deep.md", "Just a prompt.")
    folders.write("project/.opencode/agent/file.md", "---\nname: other\nmodel:\n---\n")
    folders.write(
        "project/.opencode/command/go.md", "---\ndescription: goes\nagent: build\nsubtask: true\nx: 1\n---\nGo $1\n"
    )
    folders.write("home/.config/opencode/commands/deep/er.md", "Deeper")
    folders.write("project/.opencode/mode/old.md", "---\ntemperature: 0.5\n---\nOld.")
    config = folders.load()
    agents = config.settings.agent
    assert list(agents) == ["other", "review", "team/deep", "old"]
    assert (agents["review"].prompt, agents["review"].options) == ("You look.", {"reasoningEffort": "high"})
    assert (agents["team/deep"].prompt, agents["other"].prompt) == ("Just a prompt.", None)
    assert (agents["old"].mode, agents["old"].temperature) == ("primary", 0.5)
    commands = config.settings.command
    assert (commands["go"].template, commands["go"].subtask, commands["deep/er"].template) == ("Go $1", True, "Deeper")
    assert config.problems == ()


def test_a_markdown_agent_lies_on_top_of_the_files_of_its_folder(folders: ConfigFolders) -> None:
    folders.write("project/.opencode/opencode.json", {"agent": {"x": {"model": "p/json", "temperature": 0.1}}})
    folders.write("project/.opencode/agent/x.md", "---\nmodel: p/md\n---\n")
    folders.write("project/a/b/.opencode/opencode.json", {"agent": {"x": {"temperature": 0.9}}})
    agent = folders.load().settings.agent["x"]
    assert (agent.model, agent.temperature) == ("p/md", 0.9)


def test_a_markdown_file_that_is_not_yaml_is_left_out_and_reported(folders: ConfigFolders) -> None:
    folders.write("project/.opencode/agent/bad.md", "---\np:\n  x: 'open\n---\nhi")
    folders.write("project/.opencode/agent/good.md", "hi")
    config = folders.load()
    assert list(config.settings.agent) == ["good"]
    assert [(problem.path, problem.line) for problem in config.problems] == [
        (str(folders.project / ".opencode/agent/bad.md"), 3)
    ]


def test_an_agent_that_says_what_no_agent_can_be_is_an_error(folders: ConfigFolders) -> None:
    path = folders.write("project/.opencode/agent/bad.md", "---\nmode: subagent\ntemperature: warm\n---\nhi")
    with pytest.raises(ConfigError) as caught:
        folders.load()
    assert str(caught.value) == f"{path}:3:14: expected a number, found 'warm'"


def test_a_mode_like_that_is_only_left_out(folders: ConfigFolders) -> None:
    folders.write("project/.opencode/mode/bad.md", "---\ntemperature: warm\n---\nhi")
    config = folders.load()
    assert config.settings.agent == {}
    assert [problem.reason for problem in config.problems] == ["expected a number, found 'warm'"]


def test_links_that_lead_in_circles_end(folders: ConfigFolders, tmp_path: Path) -> None:
    folders.write("project/.opencode/agent/one.md", "hi")
    (folders.project / ".opencode/agent/loop").symlink_to(folders.project / ".opencode/agent")
    assert list(folders.load().settings.agent) == ["one"]


# Older spellings, and variables that have the last word.


def test_modes_become_primary_agents_on_top_of_the_agents(folders: ConfigFolders) -> None:
    folders.write(
        "project/opencode.json", {"mode": {"x": {"model": "p/m"}}, "agent": {"x": {"model": "p/a", "steps": 3}}}
    )
    agent = folders.load().settings.agent["x"]
    assert (agent.mode, agent.model, agent.steps) == ("primary", "p/m", 3)


def test_old_tools_are_permissions_below_those_that_are_stated(folders: ConfigFolders) -> None:
    folders.write(
        "project/opencode.json", {"permission": {"edit": "ask"}, "tools": {"apply_patch": False, "webfetch": True}}
    )
    assert list(folders.load().document["permission"].items()) == [("edit", "ask"), ("webfetch", "allow")]


def test_an_agents_old_tools_are_permissions_too(folders: ConfigFolders) -> None:
    folders.write(
        "project/opencode.json",
        {"agent": {"x": {"tools": {"patch": False, "bash": True}, "permission": {"bash": "ask"}}}},
    )
    folders.write("project/a/opencode.json", {"agent": {"x": {"permission": "deny", "maxSteps": 4}}})
    agent = folders.load().settings.agent["x"]
    assert agent.permission == {"edit": "deny", "bash": "ask", "*": "deny"}
    assert agent.steps == 4


@pytest.mark.parametrize(("share", "expected"), [(None, "auto"), ("disabled", "disabled")])
def test_autoshare_is_share_unless_that_says_otherwise(
    folders: ConfigFolders, share: str | None, expected: str
) -> None:
    folders.write("project/opencode.json", {"autoshare": True, **({"share": share} if share else {})})
    assert folders.load().settings.share == expected


def test_variables_switch_compaction_and_pruning_off(folders: ConfigFolders) -> None:
    folders.write("project/opencode.json", {"compaction": {"auto": True, "prune": True, "reserved": 5}})
    folders.environ |= {"OPENCODE_DISABLE_AUTOCOMPACT": "TRUE", "OPENCODE_DISABLE_PRUNE": "1"}
    compaction = folders.load().settings.compaction
    assert (compaction.auto, compaction.prune, compaction.reserved) == (False, False, 5)


def test_the_permission_variable_lies_on_top(folders: ConfigFolders) -> None:
    folders.write("project/opencode.json", {"permission": {"bash": {"git *": "ask"}, "edit": "deny"}})
    folders.environ["OPENCODE_PERMISSION"] = '{"bash": {"git push": "deny"}, "edit": "allow"}'
    config = folders.load()
    assert config.document["permission"] == {"bash": {"git *": "ask", "git push": "deny"}, "edit": "allow"}
