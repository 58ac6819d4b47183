"""Who does the work: an agent is a prompt, a model and a set of permission rules.

An agent's rules are layered, and the last one that matches decides:

1. the defaults of every agent;
2. for a built-in agent, what it is made for;
3. the user's global ``permission``;
4. for a built-in agent, what it must not do;
5. the agent's own ``permission`` in the configuration.

In OpenCode 1.1.65 there is no fourth layer, and a global ``"*": "allow"`` or ``"edit": "allow"``, which many people
have, lets the plan agent edit and the explore agent do anything. Here a built-in agent's prohibitions hold against
global rules; only the section of that agent lifts them. Global rules still apply to what the agent may do at all:
where they say ``ask`` or ``deny``, it asks or is denied. And the explore agent, which reads anything there, asks before
it reads a ``.env`` file like all others.
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
"""Permissions that guard tools rather than being one. No agent's "nothing else" means the user's word on them."""


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
    """Built in."""
    hidden: bool = False
    """Not offered to anyone; for the engine's own use."""
    top_p: float | None = None
    temperature: float | None = None
    color: str | None = None
    permission: Rules = ()
    model: ModelRef | None = None
    variant: str | None = None
    prompt: str | None = None
    """In place of the model's usual system prompt."""
    options: dict[str, Any] = {}
    """For the provider."""
    steps: int | None = None
    """The most model calls in one turn."""


class _Builtin(Struct, frozen=True):
    name: str
    mode: Literal["subagent", "primary"]
    description: str
    specifics: Rules
    prompt: str | None = None
    hidden: bool = False
    temperature: float | None = None


def agents(config: Config, skill_folders: Sequence[str] = ()) -> dict[str, Agent]:
    """Every agent by name: the built-in ones first, then those of the configuration, the default agent before all.

    ``skill_folders`` are folders outside of the project that agents may read.
    """
    defaults = _defaults(config, skill_folders)
    user = rules(config.settings.permission, config.folders.home)
    found = {each.name: _native(each, defaults, user) for each in _builtins(config)}
    for name, section in config.settings.agent.items():
        if section.disable:
            found.pop(name, None)
            continue
        base = found.get(name) or Agent(name=name, permission=defaults + user)
        found[name] = _overlay(base, section, config.folders.home)
    found = {name: _by_real_names(_may_read_outputs(agent, config)) for name, agent in found.items()}
    first = config.settings.default_agent or "build"
    return {name: found[name] for name in sorted(found, key=lambda name: name != first)}


def default_agent(config: Config, known: dict[str, Agent]) -> Agent:
    """The agent that runs when none is named.

    A ``default_agent`` that cannot be one is a :class:`~opensesh.errors.ConfigError` at the place where it was set.
    """
    name = config.settings.default_agent
    fit = [key for key, agent in known.items() if _unfit(agent) is None]
    if not fit:
        raise ConfigError("no agent is left to run: every primary one is disabled or hidden; enable one under `agent`")
    if name is None or name in fit:
        return known[name or fit[0]]
    path, line, column, _ = config.origin(("default_agent",)) or ("", None, None, None)
    reason = f"default_agent {name!r} {_unfit(known.get(name))}; it can be: {', '.join(fit)}"
    raise ConfigError(reason, path=path, line=line or 0, column=column or 0)


def _unfit(agent: Agent | None) -> str | None:
    if agent is None:
        return "does not exist"
    if agent.mode == "subagent":
        return "is a subagent, which works only for others"
    return "is hidden, so nobody could see it at work" if agent.hidden else None


def model_ref(text: str) -> ModelRef:
    """``provider/model`` taken apart; the model's name may have slashes of its own."""
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
        _Builtin("compaction", "primary", "Sums up a session so far.", nothing, prompt("compaction"), hidden=True),
        _Builtin("title", "primary", "Names a session.", nothing, prompt("title"), hidden=True, temperature=0.5),
        _Builtin("summary", "primary", "Says what a session changed.", nothing, prompt("summary"), hidden=True),
    ]


def _native(builtin: _Builtin, defaults: Rules, user: Rules) -> Agent:
    return Agent(
        name=builtin.name,
        description=builtin.description,
        mode=builtin.mode,
        native=True,
        hidden=builtin.hidden,
        temperature=builtin.temperature,
        permission=defaults + builtin.specifics + user + (_held(builtin.specifics, user) if user else ()),
        prompt=builtin.prompt,
    )


def _held(specifics: Rules, user: Rules) -> Rules:
    """What a built-in agent must not do, once more, so that it holds against the user's global rules.

    Behind each prohibition come its exceptions, as narrow as the user made them.
    """
    held: list[Rule] = []
    for at, forbidden in enumerate(specifics):
        if forbidden.action != "deny":
            continue
        held.append(forbidden)
        exceptions = [each for each in specifics[at + 1 :] if matches(each.permission, forbidden.permission)]
        for exception in exceptions:
            held += _exception(exception, forbidden, specifics, user)
        if forbidden.permission == "*":
            held += [replace(each, permission=guard) for guard in _GUARDS for each in _about(guard, user)]
    return tuple(held)


def _exception(exception: Rule, forbidden: Rule, specifics: Rules, user: Rules) -> list[Rule]:
    if exception.action == "deny":
        return []  # a prohibition of its own
    alike = [each for each in specifics if each.permission == exception.permission != forbidden.permission]
    if any(each.pattern == "*" for each in alike):
        about = [replace(each, permission=exception.permission) for each in _about(exception.permission, user)]
        return [*alike, *about] if exception.pattern == "*" else []  # they came with the one for everything
    action = evaluate(exception.permission, exception.pattern, specifics, user)
    return [] if action == "deny" else [replace(exception, action=action)]


def _about(permission: str, user: Rules) -> list[Rule]:
    return [each for each in user if matches(permission, each.permission)]


def _overlay(agent: Agent, section: AgentConfig, home: str) -> Agent:
    """``agent`` with what the configuration says about it."""
    said: dict[str, Any] = {
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
        **{name: value for name, value in said.items() if value is not None},
    )


def _may_read_outputs(agent: Agent, config: Config) -> Agent:
    """Every agent may read the outputs that were too long to be shown, unless exactly that is forbidden."""
    pattern = config.folders.tool_output
    allowed = rule("external_directory", "allow", pattern)
    if replace(allowed, action="deny") in agent.permission:
        return agent
    return replace(agent, permission=(*agent.permission, allowed))


def _by_real_names(agent: Agent) -> Agent:
    return replace(agent, permission=followed(agent.permission))
