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

from msgspec.structs import replace

from ..errors import ConfigError
from ..records import ModelRef, Rule, View, merged, object_at
from .config import leaf_values
from .prompts import prompt
from .rules import Rules, evaluate, followed, matches, rule, rules
from .trust import UntrustedItem, digest, owner_of, why_untrusted

if TYPE_CHECKING:
    from .config import Config, Origin

_GUARDS = ("external_directory", "private_address", "doom_loop")
"""Permissions that guard tools rather than being one. The user's rules about them hold even where an agent denies all
else."""
ENV_FILE_RULES = (
    rule("read", "ask", "*.env"),
    rule("read", "ask", "*.env.*"),
    rule("read", "allow", "*.env.example"),
)
"""Ask before a file with environment variables is read: it usually contains secrets."""


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


def agents(config: Config) -> dict[str, Agent]:
    """Return all agents by name: the default agent, the built-in ones, then those of the configuration."""
    tool_output = _tool_output_rule(config)
    defaults = (
        rule("*", "allow"),
        rule("doom_loop", "ask"),
        rule("external_directory", "ask"),
        rule("private_address", "ask"),
        tool_output,
        *(rule(tool, "deny") for tool in ("question", "plan_enter", "plan_exit")),
        rule("read", "allow"),
        *ENV_FILE_RULES,
    )
    user = rules(config.settings.permission, config.folders.home)
    agents: dict[str, Agent] = {}
    for builtin in _builtins(config):
        denials = _denials(builtin.permission, user) if user else ()
        agents[builtin.name] = replace(builtin, permission=defaults + builtin.permission + user + denials)
    for name, section in config.settings.agent.items():
        if section.disable:
            agents.pop(name, None)
            continue
        base = agents.get(name) or Agent(name=name, permission=defaults + user)
        overrides = {field: value for field in _OVERRIDES if (value := getattr(section, field)) is not None}
        if base.native or section.name in (*agents, *config.settings.agent):
            overrides.pop("name", None)  # prompts name their agent: it would be one with other rules
        own = rules(section.permission, config.folders.home)
        if name == "plan":
            lifting = plan_lifting_rules(config)
            edits = [rule for rule in own if rule.action == "allow" and matches("edit", rule.permission)]
            own = tuple(rule for rule in own if rule in lifting or rule not in edits)
        agents[name] = replace(
            base,
            options=merged(base.options, section.options),
            permission=base.permission + own,
            **overrides | ({"model": model_ref(section.model)} if section.model else {}),
        )
    for name, agent in agents.items():
        # Every agent may read truncated tool outputs, unless exactly that is denied.
        last = () if replace(tool_output, action="deny") in agent.permission else (tool_output,)
        agents[name] = replace(agent, permission=followed(agent.permission + last))
    first = config.settings.default_agent or "build"
    return {name: agents[name] for name in sorted(agents, key=lambda name: name != first)}


def plan_lifting_rules(config: Config) -> Rules:
    """Return the rules of the agent ``plan``'s own section that can lift plan mode: all but those of a project that the
    user has not trusted to do so."""
    section = config.settings.agent.get("plan")
    own = rules(section.permission, config.folders.home) if section is not None else ()
    if not any(why_untrusted(config, item) for item in plan_trust_items(config)):
        return own
    untrusted = _lifted_by_project(config)
    return tuple(rule for rule in own if rule not in untrusted)


def plan_trust_items(config: Config) -> list[UntrustedItem]:
    """Return what the project allows while a session plans. It needs trust, because the user counts on the mode."""
    lifted = _lifted_by_project(config)
    shown = [f"{rule.permission} {rule.pattern}" for rule in lifted]
    return [
        UntrustedItem(
            kind="agent",
            name="plan",
            what=f"plan mode without the rules for {', '.join(shown)}",
            setting=("agent", "plan", "permission"),
            named_by=origin,
            key=f"{origin.source}#agent.plan",
            digest=digest(*(name.encode() for name in shown)),
        )
        for origin in list(lifted.values())[:1]
    ]


def _lifted_by_project(config: Config) -> dict[Rule, Origin]:
    """Return the rules that allow something in a project's section of the agent ``plan``, and where they are set."""
    path = ("agent", "plan", "permission")
    lifted: dict[Rule, Origin] = {}
    for steps, action in leaf_values(object_at(config.document, *path)):
        origin = config.origins.get((*path, *steps))
        if origin is not None and action == "allow" and owner_of(origin, config) == "project":
            name, pattern = (*map(str, steps), "*")[:2]
            lifted |= dict.fromkeys(rules({name: {pattern: "allow"}}, config.folders.home), origin)
    return lifted


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


def builtin_rules(config: Config) -> dict[str, Rules]:
    """Return the rules that each built-in agent adds to the defaults, by the name of the agent."""
    return {agent.name: agent.permission for agent in _builtins(config)}


def _tool_output_rule(config: Config) -> Rule:
    return rule("external_directory", "allow", config.folders.tool_output)


def _builtins(config: Config) -> list[Agent]:
    """Return the built-in agents, with only the rules of their own."""

    def hidden(name: str, description: str, temperature: float | None = None) -> Agent:
        """An agent without tools, which only the engine uses."""
        return Agent(
            name=name,
            description=description,
            mode="primary",
            native=True,
            hidden=True,
            temperature=temperature,
            permission=(rule("*", "deny"),),
            prompt=prompt(name),
        )

    plans = config.folders.plans
    searching = ("grep", "glob", "list", "bash", "webfetch", "websearch", "codesearch", "read")
    return [
        Agent(
            name="build",
            description="Works on the task with every tool that the permissions allow. The default agent.",
            mode="primary",
            native=True,
            permission=(rule("question", "allow"), rule("plan_enter", "allow")),
        ),
        Agent(
            name="plan",
            description="Looks and thinks, and writes nothing but its plan.",
            mode="primary",
            native=True,
            permission=(
                rule("question", "allow"),
                rule("plan_exit", "allow"),
                rule("external_directory", "allow", os.path.join(plans, "*")),
                rule("edit", "deny"),
                rule("edit", "allow", os.path.join(".opencode", "plans", "*.md")),
                rule("edit", "allow", os.path.relpath(os.path.join(plans, "*.md"), config.worktree)),
            ),
        ),
        Agent(
            name="general",
            description="Takes on a self-contained piece of work of several steps: research that needs more than one "
            "search, or changes that can be made without asking back. Several can run side by side.",
            mode="subagent",
            native=True,
            permission=(rule("todoread", "deny"), rule("todowrite", "deny")),
        ),
        Agent(
            name="explore",
            description="Searches the code and answers questions about it, without changing anything. Say how thorough "
            "it should be: a quick look, a normal search, or every place and every spelling.",
            mode="subagent",
            native=True,
            permission=(
                rule("*", "deny"),
                *(rule(tool, "allow") for tool in searching),
                *ENV_FILE_RULES,
                _tool_output_rule(config),
            ),
            prompt=prompt("explore"),
        ),
        hidden("compaction", "Compacts a session."),
        hidden("title", "Names a session.", temperature=0.5),
        hidden("summary", "Summarises what a session changed."),
    ]


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


_OVERRIDES = ("description", "mode", "variant", "prompt", "temperature", "top_p", "color", "hidden", "steps")
