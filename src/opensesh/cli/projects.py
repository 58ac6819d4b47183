"""Projects, found by fuzzy name, worktree or folder, with how many sessions each has."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ..errors import NotFound
from ..storage import open_store
from . import output
from .choose import find_projects, project_title, read_sessions
from .listing import read_projects

if TYPE_CHECKING:
    from argparse import Namespace

    from ..storage.store import Damage
    from .app import Parser


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="part of a name, worktree or folder; need not be exact")


def run(options: Namespace) -> int:
    """Print the projects that fit, most recently used first."""
    store = open_store(options.store)
    damage: list[Damage] = []
    found = read_projects(store, damage)
    if options.name:
        found = find_projects(found, options.name)
        if not found:
            raise NotFound(f"no project resembles {options.name!r} in {store.place}")
    else:
        found.sort(key=lambda each: -(each.time.updated or each.time.created))
    sessions: Counter[str] = Counter()
    latest: dict[str, int] = {}
    for session in read_sessions(store, damage):
        sessions[session.project_id] += 1
        latest[session.project_id] = max(latest.get(session.project_id, 0), session.updated)
    if options.json:
        entries = [each.document | {"sessions": sessions[each.id], "latest": latest.get(each.id)} for each in found]
        output.print_json({"total": len(entries), "projects": entries})
    elif found:
        rows = [
            (
                output.clip(project_title(each), 24),
                f"{sessions[each.id]:,}",
                output.when(latest[each.id], utc=options.utc) if each.id in latest else "-",
                output.clip(each.id, 12),
                each.worktree,
            )
            for each in found
        ]
        output.table(("PROJECT", "SESSIONS", "LAST USED", "ID", "WORKTREE"), rows)
    output.tell_damage(damage)
    return 0
