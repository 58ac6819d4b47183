"""Agents: a prompt, a model and a set of permission rules each.

An agent's rules are layered, and the last one that matches decides:

1. the defaults of every agent;
2. for a built-in agent, its own rules;
3. the user's global ``permission``;
4. for a built-in agent, its denials again;
5. the agent's own ``permission`` in the configuration.

OpenCode 1.1.65 does not have the fourth layer, so that a common global ``"*": "allow"`` or ``"edit": "allow"`` lets the
plan agent edit and the explore agent do anything. Here the denials of a built-in agent override global rules; only the
agent's own section lifts them. Global ``ask`` and ``deny`` still apply to what the agent may do. The explore agent asks
before it reads a ``.env`` file, as all others do.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from ..errors import ConfigError
from ..records import ModelRef, Rule, View, merged
from .prompts import prompt
from .rules import Rules, evaluate, followed, matches, rule, rules

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .config import Config
    from .schema import AgentConfig

_GUARDS = ("external_directory", "doom_loop")
"""Permissions that guard tools rather than being one. The user's rules about them hold even where an agent denies all
else."""


_SECRETS = (
    rule("read", "ask", "*.env"),
    rule("read", "ask", "*.env.*"),
    rule("read", "allow", "*.env.example"),
)


class Agent(View, frozen=True, kw_only=True):
    """An agent, ready to run."""

    name: str
    description: str | None = None
    mode: Literal["subagent", "primary", "all"] = "all"
    native: bool = False
    """Whether it is built in."""
    hidden: bool = False
    """Whether it is for the engine's own use and not offered."""
    top_p: float | None = None
    temperature: float | None = None
    color: str | None = None
    permission: Rules = ()
    model: ModelRef | None = None
    variant: str | None = None
    prompt: str | None = None
    """Replaces the model's default system prompt."""
    options: dict[str, Any] = {}
    """Options for the provider."""
    steps: int | None = None
    """The maximum number of model calls in one turn."""


class _Builtin(Struct, frozen=True):
    name: str
    mode: Literal["subagent", "primary"]
    description: str
    specifics: Rules
    prompt: str | None = None
    hidden: bool = False
    temperature: float | None = None


def agents(config: Config, skill_folders: Sequence[str] = ()) -> dict[str, Agent]:
    """Return all agents by name: the default agent, the built-in ones, then those of the configuration.

    ``skill_folders`` are folders outside of the project that agents may read.
    """
    defaults = _defaults(config, skill_folders)
    user = rules(config.settings.permission, config.folders.home)
    agents = {builtin.name: _native(builtin, defaults, user) for builtin in _builtins(config)}
    for name, section in config.settings.agent.items():
        if section.disable:
            agents.pop(name, None)
            continue
        base = agents.get(name) or Agent(name=name, permission=defaults + user)
        agents[name] = _overlay(base, section, config.folders.home)
    agents = {name: _may_read_outputs(agent, config) for name, agent in agents.items()}
    first = config.settings.default_agent or "build"
    return {name: agents[name] for name in sorted(agents, key=lambda name: name != first)}


def default_agent(config: Config, known: dict[str, Agent]) -> Agent:
    """Return the agent to use if none is named.

    Raises :class:`~opensesh.errors.ConfigError`, with the position of ``default_agent``, if it is not a valid choice.
    """
    name = config.settings.default_agent
    usable = [key for key, agent in known.items() if _unusable_reason(agent) is None]
    if not usable:
        raise ConfigError("every primary agent is disabled or hidden; enable one under `agent`")
    if name is None or name in usable:
        return known[name or usable[0]]
    path, line, column, _ = config.origin(("default_agent",)) or ("", None, None, None)
    reason = f"default_agent {name!r} {_unusable_reason(known.get(name))}; choose one of: {', '.join(usable)}"
    raise ConfigError(reason, path=path, line=line or 0, column=column or 0)


def _unusable_reason(agent: Agent | None) -> str | None:
    if agent is None:
        return "does not exist"
    if agent.mode == "subagent":
        return "is a subagent, which only other agents can use"
    return "is hidden" if agent.hidden else None


def model_ref(text: str) -> ModelRef:
    """Split ``provider/model``; the model's name may contain slashes."""
    provider, _, model = text.partition("/")
    return ModelRef(provider_id=provider, model_id=model)


def _defaults(config: Config, skill_folders: Sequence[str]) -> Rules:
    return (
        rule("*", "allow"),
        rule("doom_loop", "ask"),
        rule("external_directory", "ask"),
        rule("external_directory", "allow", config.folders.tool_output),
        *(rule("external_directory", "allow", os.path.join(folder, "*")) for folder in skill_folders),
        rule("question", "deny"),
        rule("plan_enter", "deny"),
        rule("plan_exit", "deny"),
        rule("read", "allow"),
        *_SECRETS,
    )


def _builtins(config: Config) -> list[_Builtin]:
    plans = config.folders.plans
    plan_files = os.path.relpath(os.path.join(plans, "*.md"), config.worktree)
    searching = ("grep", "glob", "list", "bash", "webfetch", "websearch", "codesearch", "read")
    nothing = (rule("*", "deny"),)
    return [
        _Builtin(
            "build",
            "primary",
            "Works on the task with every tool that the permissions allow. The default agent.",
            (rule("question", "allow"), rule("plan_enter", "allow")),
        ),
        _Builtin(
            "plan",
            "primary",
            "Looks and thinks, and writes nothing but its plan.",
            (
                rule("question", "allow"),
                rule("plan_exit", "allow"),
                rule("external_directory", "allow", os.path.join(plans, "*")),
                rule("edit", "deny"),
                rule("edit", "allow", os.path.join(".opencode", "plans", "*.md")),
                rule("edit", "allow", plan_files),
            ),
        ),
        _Builtin(
            "general",
            "subagent",
            "Takes on a self-contained piece of work of several steps: research that needs more than one search, or "
            "changes that can be made without asking back. Several can run side by side.",
            (rule("todoread", "deny"), rule("todowrite", "deny")),
        ),
        _Builtin(
            "explore",
            "subagent",
            "Searches the code and answers questions about it, without changing anything. Say how thorough it should "
            "be: a quick look, a normal search, or every place and every spelling.",
            (
                *nothing,
                *(rule(tool, "allow") for tool in searching),
                *_SECRETS,
                rule("external_directory", "allow", config.folders.tool_output),
            ),
            prompt("explore"),
        ),
        _Builtin("compaction", "primary", "Compacts a session.", nothing, prompt("compaction"), hidden=True),
        _Builtin("title", "primary", "Names a session.", nothing, prompt("title"), hidden=True, temperature=0.5),
        _Builtin("summary", "primary", "Summarises what a session changed.", nothing, prompt("summary"), hidden=True),
    ]


def _native(builtin: _Builtin, defaults: Rules, user: Rules) -> Agent:
    return Agent(
        name=builtin.name,
        description=builtin.description,
        mode=builtin.mode,
        native=True,
        hidden=builtin.hidden,
        temperature=builtin.temperature,
        permission=defaults + builtin.specifics + user + (_denials(builtin.specifics, user) if user else ()),
        prompt=builtin.prompt,
    )


def _denials(specifics: Rules, user: Rules) -> Rules:
    """Return a built-in agent's denials again, so that they override the user's global rules.

    Each denial is followed by its exceptions, as far as the user's rules allow them.
    """
    denials: list[Rule] = []
    for at, denied in enumerate(specifics):
        if denied.action != "deny":
            continue
        denials.append(denied)
        exceptions = [rule for rule in specifics[at + 1 :] if matches(rule.permission, denied.permission)]
        for exception in exceptions:
            denials += _exception(exception, denied, specifics, user)
        if denied.permission == "*":
            denials += [replace(rule, permission=guard) for guard in _GUARDS for rule in _about(guard, user)]
    return tuple(denials)


def _exception(exception: Rule, denied: Rule, specifics: Rules, user: Rules) -> list[Rule]:
    if exception.action == "deny":
        return []  # a denial of its own
    same_permission = [rule for rule in specifics if rule.permission == exception.permission != denied.permission]
    if any(rule.pattern == "*" for rule in same_permission):
        users = [replace(rule, permission=exception.permission) for rule in _about(exception.permission, user)]
        return [*same_permission, *users] if exception.pattern == "*" else []  # included with the general one
    action = evaluate(exception.permission, exception.pattern, specifics, user)
    return [] if action == "deny" else [replace(exception, action=action)]


def _about(permission: str, user: Rules) -> list[Rule]:
    return [rule for rule in user if matches(permission, rule.permission)]


def _overlay(agent: Agent, section: AgentConfig, home: str) -> Agent:
    """Return ``agent`` with the settings of its section."""
    fields: dict[str, Any] = {
        "name": section.name,
        "description": section.description,
        "mode": section.mode,
        "model": model_ref(section.model) if section.model else None,
        "variant": section.variant,
        "prompt": section.prompt,
        "temperature": section.temperature,
        "top_p": section.top_p,
        "color": section.color,
        "hidden": section.hidden,
        "steps": section.steps,
    }
    return replace(
        agent,
        options=merged(agent.options, section.options),
        permission=agent.permission + rules(section.permission, home),
        **{name: value for name, value in fields.items() if value is not None},
    )


def _may_read_outputs(agent: Agent, config: Config) -> Agent:
    """Let an agent read truncated tool outputs, unless exactly that is denied; resolve links in its rules."""
    pattern = config.folders.tool_output
    allowed = rule("external_directory", "allow", pattern)
    if replace(allowed, action="deny") in agent.permission:
        return replace(agent, permission=followed(agent.permission))
    return replace(agent, permission=followed((*agent.permission, allowed)))
