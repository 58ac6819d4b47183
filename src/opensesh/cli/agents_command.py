"""List the agents, their models and their permissions.

With a name, print everything about that agent: its permission rules in order (the last rule that matches decides), and
its prompt.
"""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING, Any

from ..config import agents, default_agent, evaluate
from ..errors import NotFoundError
from ..records import document_of
from ..text import pluralize
from . import output
from .directory_config import add_directory_option, load_config
from .terminal import escape_control

if TYPE_CHECKING:
    from argparse import Namespace

    from ..config import Agent, Config
    from .command_arguments import CommandParser

_UNMATCHED = "\0"
"""A permission or pattern that only rules for everything match."""


def configure(parser: CommandParser) -> None:
    """Declare the arguments."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="print everything about this agent")
    parser.add_argument("--all", action="store_true", help="include hidden agents, which the engine uses itself")
    add_directory_option(parser)


def run(options: Namespace) -> int:
    """Print the agents."""
    _, config = load_config(options)
    known = agents(config)
    if options.name and options.name not in known:
        names = ", ".join(name for name, agent in known.items() if not agent.hidden)
        raise NotFoundError(f"unknown agent {options.name!r}; known agents: {names}", agent=options.name)
    visible = [agent for agent in known.values() if options.all or not agent.hidden]
    shown = [known[options.name]] if options.name else visible
    default = default_agent(config, known).name
    if options.json:
        documents = [
            document_of(agent) | {"default": agent.name == default, "sources": sources(agent, config)}
            for agent in shown
        ]
        output.print_json({"default": default, "agents": documents})
        return 0
    for number, agent in enumerate(shown):
        if number:
            print()
        _print_agent(agent, config, default)
    if options.name:
        _print_details(shown[0])
    return 0


def _print_agent(agent: Agent, config: Config, default: str) -> None:
    columns = max(output.terminal_columns() - 2, 20)
    mode = f"{agent.mode}, the default" if agent.name == default else agent.mode
    model = f"  {agent.model.provider_id}/{agent.model.model_id}" if agent.model else ""
    print(f"{output.paint(agent.name, 1)}  {mode}{model}")
    for text, codes in ((agent.description or "", ()), (permission_summary(agent), (2,))):
        for line in wrap("".join(c if c.isprintable() else " " for c in text), columns):
            print(output.paint(f"  {line}", *codes))
    print(output.paint(f"  {', '.join(sources(agent, config))}", 2))


def _print_details(agent: Agent) -> None:
    settings = {"variant": agent.variant, "temperature": agent.temperature, "top_p": agent.top_p, "steps": agent.steps}
    for name, value in settings.items():
        if value is not None:
            print(f"  {name}: {value}")
    print("\npermission rules (the last one that matches decides):")
    rules: list[Any] = list(agent.permission)
    output.table(("ACTION", "PERMISSION", "PATTERN"), [(rule.action, rule.permission, rule.pattern) for rule in rules])
    if agent.prompt:
        print(f"\nprompt:\n{escape_control(agent.prompt).rstrip()}")


def permission_summary(agent: Agent) -> str:
    """Return the permissions of an agent in a line: the rule for everything, then what differs from it."""
    names = dict.fromkeys(rule.permission for rule in agent.permission if rule.permission != "*")
    general = evaluate(_UNMATCHED, _UNMATCHED, agent.permission)
    clauses = [f"{general} everything"]
    for action in ("allow", "ask", "deny"):
        matching = [name for name in names if evaluate(name, _UNMATCHED, agent.permission) == action]
        exceptions = [(name, _exceptions(agent, name)) for name in matching]
        different = [f"{name}{note}" for name, note in exceptions if action != general or note]
        clauses += [f"{action} {', '.join(different)}"] if different else []
    return "; ".join(clauses)


def _exceptions(agent: Agent, permission: str) -> str:
    """Return how many patterns have another action than the permission itself, in words."""
    general = evaluate(permission, _UNMATCHED, agent.permission)
    patterns = {rule.pattern for rule in agent.permission if rule.permission == permission and rule.pattern != "*"}
    number = sum(evaluate(permission, pattern, agent.permission) != general for pattern in patterns)
    return f" ({pluralize(number, 'exception')})" if number else ""


def sources(agent: Agent, config: Config) -> list[str]:
    """Return where an agent is defined: built in, and the files and lines that configure it."""
    lines: dict[str, int | None] = {}
    for path, origin in config.origins.items():
        if path[:2] == ("agent", agent.name):
            first = lines.get(origin.source)
            lines[origin.source] = origin.line if first is None else min(first, origin.line or first)
    built_in = ["built in"] if agent.native else []
    return built_in + [f"{source}:{line}" if line else source for source, line in lines.items()]
