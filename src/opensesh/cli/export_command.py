"""Export sessions: the named ones, or all that match.

jsonl has prompts, answers, reasoning and tokens; tool calls only with --tools summary, and no files. json is complete,
and `opensesh import` reads it. opencode is the same for `opencode import`, one file per session (--split DIR), with
fields filled in that newer versions require. With -o, the file appears when it is complete; after an interruption, run
the same command again to continue.
"""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Iterator

from ..errors import UsageError
from ..history.formats import FORMATS, FormatOptions, format_of
from ..history.import_export.destinations import export_fingerprint, to_file, to_folder, to_stream
from ..history.import_export.exporting import Export, Selection
from ..history.library import Library
from ..history.stats.usage_stats import of_project
from ..history.user_times import TIMES, parse_time
from ..redaction import Redactor
from ..storage import open_store
from ..storage.protocol import Damage
from ..text import pluralize
from . import output
from .command_arguments import PROJECT, SESSION, CommandParser, named_session
from .directory_config import secrets_of_this_machine
from .terminal import Progress

_TOOLS = "how to export tool calls: not at all, or one line each (default: skip for jsonl, complete otherwise)"


def configure(parser: CommandParser) -> None:
    """Declare the arguments."""
    parser.add_argument("session", nargs="*", metavar="S", help=SESSION)
    parser.add_argument("--project", metavar="NAME", help=f"only sessions of this project: {PROJECT}")
    parser.add_argument("--since", metavar="T", help=f"updated at this time or later: {TIMES}")
    parser.add_argument("--until", metavar="T", help="updated before this time")
    parser.add_argument("--children", action="store_true", default=None, help="include the sessions of subagents")
    parser.add_argument(
        "--no-children", dest="children", action="store_false", help="exclude the sessions of subagents"
    )
    parser.add_argument(
        "--format", choices=tuple(FORMATS), help="output format (default: by the ending of FILE, otherwise jsonl)"
    )
    parser.add_argument("--tools", choices=("skip", "summary"), help=_TOOLS)
    parser.add_argument("--no-reasoning", action="store_true", help="omit the model's reasoning (markdown, html)")
    parser.add_argument("--redact", action="store_true", help="redact secrets, and print how many of each kind")
    parser.add_argument("--redact-paths", action="store_true", help="redact secrets and the names of home folders")
    parser.add_argument("-o", "--output", metavar="FILE", help="write to this file instead of standard output")
    parser.add_argument("--split", metavar="DIR", help="write one file per session to this folder")
    parser.add_argument("--restart", action="store_true", help="do not continue an interrupted export")


def run(options: Namespace) -> int:
    """Export the sessions."""
    _settle_format(options)
    damage: list[Damage] = []
    store = open_store(options.store, report=damage.append)
    redacts = options.redact or options.redact_paths
    redactor = Redactor(secrets_of_this_machine(), paths=options.redact_paths) if redacts else None
    shown = FormatOptions(options.tools or "", not options.no_reasoning, options.utc, indexed=bool(options.split))
    if options.session and (options.project or options.since or options.until):
        raise UsageError("name sessions or use --project, --since and --until, not both")
    library = Library(store=store)
    selection = Selection(
        ids=tuple(named_session(library, word).id for word in options.session),
        matches=of_project(library.resolve_project(options.project)) if options.project else None,
        since=parse_time(options.since, utc=options.utc),
        until=parse_time(options.until, utc=options.utc) if options.until else None,
        children=options.children,
    )
    export = Export(store, selection, options.format, shown, redactor=redactor, report=damage.append)
    written = _write(export, options)
    _report(export, written, damage, redactor, options)
    return 0


def _settle_format(options: Namespace) -> None:
    """Set the format, or raise for options that exclude each other."""
    if options.json and not options.output and not options.split:
        if options.format not in (None, "json"):
            raise UsageError(
                f"--json prints the sessions as JSON; --format {options.format} needs -o or --split with it"
            )
        options.format = "json"
    if options.format is None:
        options.format = format_of(options.output or "")
    if options.output and options.split:
        raise UsageError("-o and --split cannot be combined")
    if options.format == "parquet" and not options.output:
        raise UsageError("parquet needs a file: give one with -o FILE")
    if options.format == "html" and options.output and os.path.isdir(options.output):
        options.split, options.output = options.output, None


def _report(export: Export, written: int, damage: list[Damage], redactor: Redactor | None, options: Namespace) -> None:
    """Report what was written; on standard output only if that is not the export itself."""
    notes = list(_notes(export, written, options))
    counts = dict(redactor.counts.most_common()) if redactor is not None else None
    if options.json and (options.output or options.split):
        output.print_json(
            {
                "sessions": written,
                "place": options.output or options.split,
                "format": options.format,
                "notes": notes,
                "redacted": counts,
                "damaged": [entry._asdict() for entry in damage],
            }
        )
        return
    if len(notes) > 1 or options.output or options.split or not export.selected:
        print(f"{'; '.join(notes)}.", file=sys.stderr)
    if options.format == "opencode" and options.split:
        print(f"sh {os.path.join(options.split, 'import.sh')} imports each one in its own folder.", file=sys.stderr)
    if counts is not None:
        listed = ", ".join(f"{count:,} {name}" for name, count in counts.items())
        print(f"Redacted: {listed or 'nothing'}.", file=sys.stderr)
    output.report_damage(damage)


def _write(export: Export, options: Namespace) -> int:
    settings = (options.tools, options.no_reasoning, options.utc, options.redact, options.redact_paths)
    fingerprint = export_fingerprint(export.store.place, options.format, *settings)
    try:
        with Progress("{:,} of {:,} sessions") as step:
            if options.split:
                return to_folder(
                    export, options.split, step, fingerprint=fingerprint, restart=options.restart, utc=options.utc
                )
            if options.output:
                return to_file(export, options.output, step, fingerprint=fingerprint, restart=options.restart)
            os.set_blocking(sys.stdout.fileno(), True)  # wait for a pipe that is full
            return to_stream(export, sys.stdout.buffer, step)
    except KeyboardInterrupt:
        if (options.split or options.output) and options.format != "parquet":
            print("Interrupted. Run the same command again to continue.", file=sys.stderr)
        raise


def _notes(export: Export, written: int, options: Namespace) -> Iterator[str]:
    """Yield how many sessions were exported and where to, which kinds are among them, and what was omitted."""
    destination = options.split or options.output
    if not export.selected and not destination:
        filtered = options.project or options.since or options.until
        yield "No sessions match" if filtered else f"There are no sessions in {export.store.place}"
    else:
        existing = len(export.selected) - written if options.split else 0
        also = f", {existing:,} were there already" if existing else ""
        yield f"{pluralize(written, 'session')}{f' to {destination}' if destination else ''}{also}"
    subagents = sum(bool(session.parent) for session in export.selected)
    archived = sum(session.archived for session in export.selected)
    if included := output.format_counts((subagents, "subagent session", ""), (archived, "archived session", "")):
        yield f"including {included}"
    if nested := output.format_counts((export.included_children, "subagent session", "")):
        yield f"{nested} inside of them"
    omitted: list[str] = []
    if export.excluded_children:
        omitted.append(output.format_counts((export.excluded_children, "subagent session", "--children")))
    if export.selected and options.format == "jsonl" and options.tools is None:
        omitted.append("tool calls (--tools summary), files (--format json)")
    if options.format == "prompts" and not options.split and written < len(export.selected):
        omitted.append(f"{pluralize(len(export.selected) - written, 'session')} without a prompt")
    if omitted:
        yield f"omitted: {', '.join(omitted)}"
