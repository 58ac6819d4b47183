"""List the agents, their models and their permissions.

With a name, print everything about that agent: its permission rules in order (the last rule that matches decides), and
its prompt.
"""

from __future__ import annotations

from argparse import Namespace
from textwrap import wrap

from ..config import Agent, Config, agents, default_agent, evaluate
from ..errors import NotFoundError
from ..records import document_of
from ..text import pluralize
from . import output
from .command_arguments import CommandParser
from .directory_config import add_directory_option, load_config
from .terminal import escape_control

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
    columns = max(output.terminal_columns() - 2, 20)
    for number, agent in enumerate(shown):
        gap = "\n" if number else ""
        mode = f"{agent.mode}, the default" if agent.name == default else agent.mode
        model = f"  {agent.model.provider_id}/{agent.model.model_id}" if agent.model else ""
        print(f"{gap}{output.paint(agent.name, 1)}  {mode}{model}")
        for text, codes in ((agent.description or "", ()), (permission_summary(agent), (2,))):
            for line in wrap(output.one_line(text), columns):
                print(output.paint(f"  {line}", *codes))
        print(output.paint(f"  {', '.join(sources(agent, config))}", 2))
    if options.name:
        agent = shown[0]
        for name in ("variant", "temperature", "top_p", "steps"):
            if getattr(agent, name) is not None:
                print(f"  {name}: {getattr(agent, name)}")
        print("\npermission rules (the last one that matches decides):")
        rows = [(rule.action, rule.permission, rule.pattern) for rule in agent.permission]
        output.table(("ACTION", "PERMISSION", "PATTERN"), rows)
        if agent.prompt:
            print(f"\nprompt:\n{escape_control(agent.prompt).rstrip()}")
    return 0


def permission_summary(agent: Agent) -> str:
    """Return the permissions of an agent in a line: the rule for everything, then what differs from it."""
    rules = agent.permission
    names = dict.fromkeys(rule.permission for rule in rules if rule.permission != "*")
    general = evaluate(_UNMATCHED, _UNMATCHED, rules)
    clauses = [f"{general} everything"]
    for action in ("allow", "ask", "deny"):
        different: list[str] = []
        for name in names:
            if evaluate(name, _UNMATCHED, rules) == action:
                patterns = {rule.pattern for rule in rules if rule.permission == name and rule.pattern != "*"}
                exceptions = sum(evaluate(name, pattern, rules) != action for pattern in patterns)
                if exceptions:
                    different.append(f"{name} ({pluralize(exceptions, 'exception')})")
                elif action != general:
                    different.append(name)
        clauses += [f"{action} {', '.join(different)}"] if different else []
    return "; ".join(clauses)


def sources(agent: Agent, config: Config) -> list[str]:
    """Return where an agent is defined: built in, and the files and lines that configure it."""
    lines: dict[str, int | None] = {}
    for path, origin in config.origins.items():
        if path[:2] == ("agent", agent.name):
            first = lines.get(origin.source)
            lines[origin.source] = origin.line if first is None else min(first, origin.line or first)
    built_in = ["built in"] if agent.native else []
    return built_in + [f"{source}:{line}" if line else source for source, line in lines.items()]
