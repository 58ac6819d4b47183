"""Agents: who does the work, with which model, and what they may do.

With a name, everything about that agent: its rules in the order in which they are read, where the last one that fits
decides, and its prompt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import NotFoundError
from . import directory, output

if TYPE_CHECKING:
    from argparse import Namespace

    from ..config import Agent, Config
    from .arguments import Parser

_NOBODY = "\0"
"""Something that no pattern was written for, so that only the rules for everything fit it."""


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="everything about this one")
    parser.add_argument("--all", action="store_true", help="also those for the engine's own use")
    directory.declare(parser)


def run(options: Namespace) -> int:
    """Print the agents."""
    from ..config import agents, default_agent, load

    place = directory.place_of(options)
    config = load(place.directory, place.sandbox)
    known = agents(config)
    if options.name and options.name not in known:
        shown = ", ".join(name for name, agent in known.items() if not agent.hidden)
        raise NotFoundError(f"there is no agent {options.name!r}; there are: {shown}", agent=options.name)
    offered = [each for each in known.values() if options.all or not each.hidden]
    wanted = [known[options.name]] if options.name else offered
    default = default_agent(config, known).name
    if options.json:
        output.print_json({"default": default, "agents": [_document(each, config, default) for each in wanted]})
    elif options.name:
        _print_one(wanted[0], config, default)
    else:
        for position, agent in enumerate(wanted):
            if position:
                print()
            _print(agent, config, default)
    return 0


def _print(agent: Agent, config: Config, default: str) -> None:
    room = output.terminal_columns() - 2
    mode = f"{agent.mode}, the default" if agent.name == default else agent.mode
    model = f"  {agent.model.provider_id}/{agent.model.model_id}" if agent.model else ""
    print(f"{output.paint(agent.name, 1)}  {mode}{model}")
    for line in _wrapped(agent.description or "", room):
        print(f"  {line}")
    for line in _wrapped(summary(agent), room):
        print(output.paint(f"  {line}", 2))
    print(output.paint(f"  {', '.join(sources(agent, config))}", 2))


def _print_one(agent: Agent, config: Config, default: str) -> None:
    _print(agent, config, default)
    settings = {"variant": agent.variant, "temperature": agent.temperature, "top_p": agent.top_p, "steps": agent.steps}
    for name, value in settings.items():
        if value is not None:
            print(f"  {name}: {value}")
    print("\nrules, the last one that fits decides:")
    output.table(("ACTION", "PERMISSION", "PATTERN"), [(r.action, r.permission, r.pattern) for r in agent.permission])
    if agent.prompt:
        from .terminal import tame

        print(f"\nprompt:\n{tame(agent.prompt).rstrip()}")


def summary(agent: Agent) -> str:
    """What an agent may do, in a line: what holds for everything, then what differs from it."""
    from ..config import evaluate

    names = dict.fromkeys(rule.permission for rule in agent.permission if rule.permission != "*")
    usual = evaluate(_NOBODY, _NOBODY, agent.permission)
    said = [f"{usual} everything"]
    for action in ("allow", "ask", "deny"):
        fitting = [name for name in names if evaluate(name, _NOBODY, agent.permission) == action]
        told = [(name, _exceptions(agent, name)) for name in fitting]
        differing = [f"{name}{but}" for name, but in told if action != usual or but]
        said += [f"{action} {', '.join(differing)}"] if differing else []
    return "; ".join(said)


def _exceptions(agent: Agent, name: str) -> str:
    """How many patterns are treated in another way than the rest."""
    from ..config import evaluate

    usual = evaluate(name, _NOBODY, agent.permission)
    patterns = {rule.pattern for rule in agent.permission if rule.permission == name and rule.pattern != "*"}
    other = [each for each in patterns if evaluate(name, each, agent.permission) != usual]
    return f" ({output.pluralize(len(other), 'exception')})" if other else ""


def sources(agent: Agent, config: Config) -> list[str]:
    """Where an agent was described: built in, and the files and lines that say something about it."""
    said = ["built in"] if agent.native else []
    lines: dict[str, int | None] = {}
    for path, origin in config.origins.items():
        if path[:2] == ("agent", agent.name):
            first = lines.get(origin.source)
            lines[origin.source] = origin.line if first is None else min(first, origin.line or first)
    return said + [f"{source}:{line}" if line else source for source, line in lines.items()]


def _document(agent: Agent, config: Config, default: str) -> dict[str, Any]:
    from ..records import document_of

    return document_of(agent) | {"default": agent.name == default, "sources": sources(agent, config)}


def _wrapped(text: str, columns: int) -> list[str]:
    from textwrap import wrap

    return wrap("".join(c if c.isprintable() else " " for c in text), max(columns, 20))
