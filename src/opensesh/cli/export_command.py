"""Export sessions: some, or all of them, in a form to keep, to read, to study or to import elsewhere.

jsonl holds what was said and thought, and the tokens; tool calls only with --tools summary, a line each, and files not
at all. json loses nothing, and `opensesh import` takes it back. opencode is the same for `opencode import`, one file a
session (--split DIR), with what newer versions insist on filled in. A file (-o) appears when it is complete; run the
same again after an interruption, and it goes on where it was.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..storage import open_store
from . import output
from .arguments import PROJECT, SESSION, TIMES
from .progress import Progress

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

    from ..history.filters import Selection
    from ..history.import_export.exporting import Export
    from ..history.import_export.redaction import Redactor
    from ..storage.protocol import Damage, Store
    from .arguments import Parser

_FORMS = ("jsonl", "json", "opencode", "markdown", "html", "prompts", "hf", "parquet")
_TOOLS = "tool calls: leave out, as jsonl does by itself, or a line each; other forms tell them whole"


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.add_argument("session", nargs="*", metavar="S", help=SESSION)
    parser.add_argument("--project", metavar="NAME", help=f"only of this project: {PROJECT}")
    parser.add_argument("--since", metavar="T", help=f"updated since: {TIMES}")
    parser.add_argument("--until", metavar="T", help="updated before")
    parser.add_argument("--children", action="store_true", default=None, help="with what their subagents did")
    parser.add_argument("--no-children", dest="children", action="store_false", help="without subagents' sessions")
    parser.add_argument("--format", choices=_FORMS, default="jsonl", help="the form (jsonl)")
    parser.add_argument("--tools", choices=("skip", "summary"), help=_TOOLS)
    parser.add_argument("--no-reasoning", action="store_true", help="in forms to read, leave out the model's thoughts")
    parser.add_argument("--redact", action="store_true", help="take out secrets, and say how many of which kind")
    parser.add_argument("--redact-paths", action="store_true", help="take out secrets and home folders")
    parser.add_argument("-o", "--output", metavar="FILE", help="to this file instead of standard output")
    parser.add_argument("--split", metavar="DIR", help="to this folder, a file a session")
    parser.add_argument("--restart", action="store_true", help="do not go on with an interrupted run")


def run(options: Namespace) -> int:
    """Export what was asked for."""
    from ..history.formats import FormatOptions
    from ..history.import_export.exporting import Export

    if options.json:
        options.format = "json"
    _check(options)
    damage: list[Damage] = []
    store = open_store(options.store, report=damage.append)
    redactor = _redactor(options)
    chosen = _selection(store, options)
    told = (options.tools or "", not options.no_reasoning, options.utc)
    shown = FormatOptions(*told, indexed=bool(options.split))
    export = Export(store, chosen, options.format, shown, redactor=redactor, report=damage.append, several=True)
    written = _write(export, options)
    _tell(export, written, options, redactor)
    output.tell_damage(damage)
    return 0


def _check(options: Namespace) -> None:
    if options.output and options.split:
        raise UsageError("-o FILE or --split DIR, not both")
    if options.format == "parquet" and not options.output:
        raise UsageError("a table goes to a file: give it with -o FILE")
    if options.format == "html" and options.output and os.path.isdir(options.output):
        options.split, options.output = options.output, None


def _redactor(options: Namespace) -> Redactor | None:
    if not (options.redact or options.redact_paths):
        return None
    from ..history.import_export.redaction import Redactor

    return Redactor(paths=options.redact_paths)


def _selection(store: Store, options: Namespace) -> Selection:
    from ..history.filters import Selection
    from ..history.library import Library
    from .choose import find_session
    from .list_command import moment
    from .stats_command import in_project

    if options.session and (options.project or options.since or options.until):
        raise UsageError("name sessions, or say --project, --since and --until; not both")
    return Selection(
        names=tuple(find_session(store, word).id for word in options.session),
        fits=in_project(Library(store=store), options.project) if options.project else None,
        since=moment(options.since, utc=options.utc) if options.since else 0,
        until=moment(options.until, utc=options.utc) if options.until else None,
        children=options.children,
    )


def _write(export: Export, options: Namespace) -> int:
    from ..history.import_export.destinations import export_fingerprint, to_file, to_folder, to_stream

    wanted = (options.tools, options.no_reasoning, options.utc, options.redact, options.redact_paths)
    mark = export_fingerprint(export.store.place, options.format, *wanted)
    try:
        with Progress("{:,} of {:,} sessions") as step:
            if options.split:
                return to_folder(export, options.split, step, mark=mark, restart=options.restart, utc=options.utc)
            if options.output:
                return to_file(export, options.output, step, mark=mark, restart=options.restart)
            os.set_blocking(sys.stdout.fileno(), True)  # a pipe that is full is to be waited for
            return to_stream(export, sys.stdout.buffer, step)
    except KeyboardInterrupt:
        if (options.split or options.output) and options.format != "parquet":
            print("Interrupted. The same command goes on where this one stopped.", file=sys.stderr)
        raise


def _tell(export: Export, written: int, options: Namespace, redactor: Redactor | None) -> None:
    told = list(_summary(export, written, options))
    if len(told) > 1 or options.output or options.split or not export.chosen:
        print(f"{'; '.join(told)}.", file=sys.stderr)
    if options.format == "opencode" and options.split:
        print(f"sh {os.path.join(options.split, 'import.sh')} imports each in its own folder.", file=sys.stderr)
    if redactor is not None:
        counts = ", ".join(f"{count:,} {name}" for name, count in redactor.counts.most_common())
        print(f"Redacted: {counts or 'nothing was found'}.", file=sys.stderr)


def _summary(export: Export, written: int, options: Namespace) -> Iterator[str]:
    """How many sessions went where, what kinds are among them, and what did not go along."""
    place = options.split or options.output
    if not export.chosen and not place:
        picked = options.project or options.since or options.until
        yield "No sessions fit" if picked else f"There are no sessions in {export.store.place}"
    else:
        there = len(export.chosen) - written if options.split else 0
        also = f", {there:,} were there already" if there else ""
        yield f"{output.pluralize(written, 'session')}{f' to {place}' if place else ''}{also}"
    subagents = sum(bool(each.parent) for each in export.chosen)
    archived = sum(each.archived for each in export.chosen)
    if among := output.kinds((subagents, "subagent session", ""), (archived, "archived session", "")):
        yield f"among them {among}"
    if inside := output.kinds((export.inside, "subagent session", "")):
        yield f"inside them {inside}"
    if left := ", ".join(_left_out(export, written, options)):
        yield f"left out: {left}"


def _left_out(export: Export, written: int, options: Namespace) -> Iterator[str]:
    if export.without:
        yield output.kinds((export.without, "subagent session", "--children"))
    if export.chosen and options.format == "jsonl" and options.tools is None:
        yield "tool calls (--tools summary), files (--format json)"
    if options.format == "prompts" and not options.split and written < len(export.chosen):
        yield f"{output.pluralize(len(export.chosen) - written, 'session')} without a prompt"
