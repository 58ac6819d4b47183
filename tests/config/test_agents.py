from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from opensesh.config import agents, default_agent, evaluate
from opensesh.errors import ConfigError
from opensesh.records import document_of

if TYPE_CHECKING:
    from opensesh.config import Agent
    from opensesh.config.schema import Action

    from .conftest import ConfigFolders

PLAN_FILE = ".opencode/plans/1-cunning-otter.md"


def configured(folders: ConfigFolders, **document: Any) -> dict[str, Agent]:
    folders.write("project/opencode.json", document)
    return agents(folders.load())


def verdict(agent: Agent, permission: str, subject: str = "x") -> Action:
    return evaluate(permission, subject, agent.permission)


def test_the_built_in_agents_are_there_with_build_first(folders: ConfigFolders) -> None:
    result = configured(folders)
    assert {name: (agent.mode, agent.hidden) for name, agent in result.items()} == {
        "build": ("primary", False),
        "plan": ("primary", False),
        "general": ("subagent", False),
        "explore": ("subagent", False),
        "compaction": ("primary", True),
        "title": ("primary", True),
        "summary": ("primary", True),
    }
    assert [name for name, agent in result.items() if agent.prompt] == ["explore", "compaction", "title", "summary"]
    assert result["title"].temperature == 0.5
    assert all(agent.native and agent.description for agent in result.values())


def test_build_has_the_default_rules_in_their_order(folders: ConfigFolders) -> None:
    outputs = os.path.join(str(folders.home), ".local/share/opencode/tool-output/*")
    result = agents(folders.load())["build"].permission
    assert [(item.permission, item.pattern, item.action) for item in result] == [
        ("*", "*", "allow"),
        ("doom_loop", "*", "ask"),
        ("external_directory", "*", "ask"),
        ("private_address", "*", "ask"),
        ("external_directory", outputs, "allow"),
        ("question", "*", "deny"),
        ("plan_enter", "*", "deny"),
        ("plan_exit", "*", "deny"),
        ("read", "*", "allow"),
        ("read", "*.env", "ask"),
        ("read", "*.env.*", "ask"),
        ("read", "*.env.example", "allow"),
        ("question", "*", "allow"),
        ("plan_enter", "*", "allow"),
        ("external_directory", outputs, "allow"),
    ]


def test_plan_edits_nothing_but_plans(folders: ConfigFolders) -> None:
    plan = configured(folders)["plan"]
    assert verdict(plan, "edit", "src/x.py") == "deny"
    assert verdict(plan, "edit", PLAN_FILE) == "allow"
    assert verdict(plan, "edit", "../home/.local/share/opencode/plans/x.md") == "allow"
    assert verdict(plan, "plan_exit") == "allow"
    assert verdict(plan, "bash", "ls") == "allow"  # the engine asks for what does more than read


def test_explore_only_searches(folders: ConfigFolders) -> None:
    explore = configured(folders)["explore"]
    assert {
        tool: verdict(explore, tool) for tool in ("grep", "read", "bash", "edit", "task", "mcp_x", "doom_loop")
    } == {
        "grep": "allow",
        "read": "allow",
        "bash": "allow",
        "edit": "deny",
        "task": "deny",
        "mcp_x": "deny",
        "doom_loop": "deny",
    }


@pytest.mark.parametrize(
    ("permission", "expected"),
    [
        ({}, "ask"),
        ({"bash": "ask"}, "ask"),
        ({"read": "allow"}, "allow"),
        ({"*": "allow"}, "allow"),
        ({"read": {"*.env": "deny"}}, "deny"),
        ({"read": {"vault/*": "deny"}}, "deny"),
    ],
)
def test_agents_that_read_ask_before_they_read_secrets(folders: ConfigFolders, permission: Any, expected: str) -> None:
    result = configured(folders, permission=permission)
    for name in ("build", "plan", "general", "explore"):
        assert verdict(result[name], "read", "vault/.env") == expected, name
        assert verdict(result[name], "read", "vault/x.py") == ("deny" if "vault/*" in str(permission) else "allow")
    assert verdict(result["explore"], "read", "src/.env.example") == "allow"


@pytest.mark.parametrize("permission", ["allow", {"*": "allow"}, {"edit": "allow", "task": "allow"}, {"e*": "allow"}])
def test_a_global_allow_does_not_lift_what_a_built_in_agent_must_not_do(
    folders: ConfigFolders, permission: Any
) -> None:
    result = configured(folders, permission=permission)
    assert verdict(result["plan"], "edit", "src/x.py") == "deny"
    assert verdict(result["plan"], "edit", PLAN_FILE) == "allow"
    assert verdict(result["explore"], "edit") == "deny"
    assert verdict(result["explore"], "task") == "deny"
    assert verdict(result["explore"], "grep") == "allow"
    assert verdict(result["general"], "todowrite") == "deny"
    assert verdict(result["title"], "bash") == "deny"
    assert verdict(result["build"], "edit") == "allow"


def test_an_agents_own_section_lifts_it(folders: ConfigFolders) -> None:
    result = configured(folders, agent={"plan": {"permission": {"edit": "ask"}}, "explore": {"permission": "allow"}})
    assert verdict(result["plan"], "edit", "src/x.py") == "ask"
    assert verdict(result["explore"], "edit") == "allow"


def test_global_rules_still_narrow_what_a_built_in_agent_may_do(folders: ConfigFolders) -> None:
    result = configured(
        folders,
        permission={"*": "ask", "bash": {"*": "deny", "git *": "allow"}, "webfetch": "deny", "read": {"*": "allow"}},
    )
    explore, plan = result["explore"], result["plan"]
    assert verdict(explore, "bash", "rm x") == "deny"
    assert verdict(explore, "bash", "git log") == "allow"
    assert verdict(explore, "webfetch") == "deny"
    assert verdict(explore, "grep") == "ask"
    assert verdict(explore, "edit") == "deny"
    assert verdict(plan, "edit", PLAN_FILE) == "ask"
    assert verdict(plan, "edit", "src/x.py") == "deny"
    assert verdict(plan, "bash", "rm x") == "deny"


def test_who_forbids_all_edits_forbids_plans_too(folders: ConfigFolders) -> None:
    plan = configured(folders, permission={"edit": {"*": "deny", "docs/*": "allow"}})["plan"]
    assert verdict(plan, "edit", PLAN_FILE) == "deny"
    assert verdict(plan, "edit", "docs/x") == "deny"


def test_the_users_word_on_other_folders_holds_for_explore(folders: ConfigFolders) -> None:
    explore = configured(folders, permission={"external_directory": {"~/work/*": "allow"}})["explore"]
    assert verdict(explore, "external_directory", f"{folders.home}/work/x") == "allow"
    assert verdict(explore, "external_directory", "/etc/x") == "deny"


def test_a_rule_about_a_link_is_one_about_where_it_leads(folders: ConfigFolders) -> None:
    secret, data = folders.home / "elsewhere" / "secret", folders.home / "elsewhere" / "share"
    secret.mkdir(parents=True)
    data.mkdir()
    (folders.home / "secret").symlink_to(secret)
    (folders.home / ".local").mkdir(exist_ok=True)
    (folders.home / ".local" / "share").symlink_to(data)
    result = configured(folders, permission={"external_directory": {"*": "allow", "~/secret/*": "deny"}})["build"]
    assert verdict(result, "external_directory", f"{os.path.realpath(secret)}/*") == "deny"
    strict = configured(folders, permission={"external_directory": "deny"})["build"]
    outputs = os.path.join(os.path.realpath(data), "opencode", "tool-output")
    assert verdict(strict, "external_directory", f"{outputs}/*") == "allow"


def test_every_agent_may_read_long_outputs_unless_exactly_that_is_forbidden(folders: ConfigFolders) -> None:
    pattern = f"{folders.home}/.local/share/opencode/tool-output/*"
    result = configured(
        folders,
        permission={"external_directory": "deny"},
        agent={"mine": {}, "strict": {"permission": {"external_directory": {pattern: "deny"}}}},
    )
    output = pattern.replace("*", "tool_1")
    assert verdict(result["mine"], "external_directory", output) == "allow"
    assert verdict(result["explore"], "external_directory", output) == "allow"
    assert verdict(result["strict"], "external_directory", output) == "deny"


def test_an_agent_of_ones_own_has_the_defaults_then_global_then_own_rules(folders: ConfigFolders) -> None:
    section = {
        "model": "openrouter/meta/llama",
        "variant": "high",
        "prompt": "Be brief.",
        "temperature": 0.2,
        "top_p": 0.9,
        "steps": 7,
        "color": "accent",
        "description": "short",
        "reasoningEffort": "low",
        "options": {"a": {"b": 1}},
        "permission": {"bash": "deny"},
    }
    mine = configured(folders, permission={"bash": "ask", "edit": "deny"}, agent={"mine": section})["mine"]
    assert (mine.mode, mine.native, mine.hidden, mine.steps) == ("all", False, False, 7)
    assert mine.model is not None
    assert (mine.model.provider_id, mine.model.model_id, mine.variant) == ("openrouter", "meta/llama", "high")
    assert (mine.prompt, mine.temperature, mine.top_p, mine.color) == ("Be brief.", 0.2, 0.9, "accent")
    assert mine.options == {"a": {"b": 1}, "reasoningEffort": "low"}
    assert (verdict(mine, "bash"), verdict(mine, "edit"), verdict(mine, "read")) == ("deny", "deny", "allow")


def test_an_agent_can_be_disabled_and_keeps_its_key_as_its_name(folders: ConfigFolders) -> None:
    result = configured(
        folders, agent={"plan": {"disable": True}, "ghost": {"disable": True}, "x": {"name": "Display"}}
    )
    assert "plan" not in result
    assert "ghost" not in result
    assert result["x"].name == "x"


def test_an_overlay_keeps_what_it_does_not_mention(folders: ConfigFolders) -> None:
    explore = configured(folders, agent={"explore": {"model": "p/m", "hidden": True}})["explore"]
    assert explore.prompt
    assert (explore.mode, explore.hidden, explore.native) == ("subagent", True, True)


def test_an_agent_is_written_as_opencodes_server_writes_it(folders: ConfigFolders) -> None:
    document = document_of(configured(folders, agent={"x": {"model": "p/m", "top_p": 0.5}})["x"])
    assert document["model"] == {"providerID": "p", "modelID": "m"}
    assert document["topP"] == 0.5
    assert document["permission"][0] == {"permission": "*", "pattern": "*", "action": "allow"}


# The default agent.


def test_the_default_agent_is_the_first_that_can_be_one(folders: ConfigFolders) -> None:
    folders.write("project/opencode.json", {"agent": {"build": {"disable": True}}})
    config = folders.load()
    assert default_agent(config, agents(config)).name == "plan"


def test_the_configured_default_agent_comes_first(folders: ConfigFolders) -> None:
    folders.write("project/opencode.json", {"default_agent": "mine", "agent": {"mine": {"mode": "primary"}}})
    config = folders.load()
    known = agents(config)
    assert next(iter(known)) == "mine"
    assert default_agent(config, known).name == "mine"


@pytest.mark.parametrize(
    ("name", "reason"), [("nobody", "does not exist"), ("explore", "is a subagent"), ("title", "is hidden")]
)
def test_what_cannot_be_the_default_agent_is_an_error_where_it_was_set(
    folders: ConfigFolders, name: str, reason: str
) -> None:
    path = folders.write("project/opencode.json", {"default_agent": name})
    config = folders.load()
    with pytest.raises(ConfigError, match=reason) as caught:
        default_agent(config, agents(config))
    assert (caught.value.path, caught.value.line) == (str(path), 2)
    assert str(caught.value).endswith("; choose one of: build, plan")


def test_having_no_agent_left_is_reported(folders: ConfigFolders) -> None:
    folders.write("project/opencode.json", {"agent": {"build": {"disable": True}, "plan": {"hidden": True}}})
    config = folders.load()
    with pytest.raises(ConfigError, match="every primary agent is disabled"):
        default_agent(config, agents(config))
