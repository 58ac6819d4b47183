"""Agents with the permission rules that OpenCode 1.18 lists for them under ``/api``.

These are the rules of OpenCode's second API. The rules that apply here, with those that opensesh adds, are in
``/agent``.
"""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING

from ..config import rule, rules
from ..config.agents import ENV_FILE_RULES, builtin_rules
from ..engine.prompts import prompt_text

if TYPE_CHECKING:
    from ..config import Agent, Config
    from ..config.rules import Rules
    from ..records import Document


def newer_agent(agent: Agent, config: Config) -> Document:
    """Return an agent."""
    permissions = [
        {"action": rule.permission, "resource": rule.pattern, "effect": rule.action} for rule in _rules(agent, config)
    ]
    shown: Document = {"id": agent.name, "mode": agent.mode, "hidden": agent.hidden, "permissions": permissions}
    empty: Document = {}
    shown["request"] = {"headers": empty, "body": empty}
    system = agent.prompt or (prompt_text("default") if agent.native and agent.name == "build" else None)
    texts = {"description": None if agent.native and agent.hidden else agent.description, "system": system}
    return shown | {name: text for name, text in texts.items() if text}


def _rules(agent: Agent, config: Config) -> Rules:
    section = config.settings.agent.get(agent.name)
    home = config.folders.home
    configured = rules(config.settings.permission, home) + rules(section.permission if section else None, home)
    if not agent.native:
        return configured
    outside = (
        rule("external_directory", "ask"),
        rule("external_directory", "allow", config.folders.tool_output),
        rule("external_directory", "allow", os.path.join(tempfile.gettempdir(), "opencode", "*")),
    )
    defaults = (
        rule("*", "allow"),
        *outside,
        *(rule(tool, "deny") for tool in ("question", "plan_enter", "plan_exit")),
        rule("read", "allow"),
        *ENV_FILE_RULES,
    )
    return defaults + _own_rules(agent.name, config, outside) + configured


def _own_rules(name: str, config: Config, outside: Rules) -> Rules:
    if name == "general":
        return (rule("todowrite", "deny"),)
    if name == "explore":
        tools = ("grep", "glob", "webfetch", "websearch", "read")
        return (rule("*", "deny"), *(rule(tool, "allow") for tool in tools), *outside)
    return builtin_rules(config)[name]
