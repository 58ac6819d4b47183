"""Search the text of all sessions: prompts, answers, tool inputs and outputs.

words           sessions that contain all of them, best match first
"a phrase"      words in this order; parse_config counts as a phrase too
pars*  *arse*   words that begin with this, or contain it
-- a -b         a but not b; after -- no word is an option. Or: a --without b
-- --flag       a word that begins with two dashes, such as an option
--text          the exact text, including punctuation
--regex         a regular expression

--file PATH     where a file was read, written or changed;
                with words: in sessions where it was
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from argparse import Namespace
from collections.abc import Sequence

from ..errors import UsageError
from ..history.cache.derived_cache import DerivedCache, open_cache
from ..history.search.query import parse
from ..history.search.search_filters import Filters
from ..history.search.text_layer import TEXT
from ..history.search.text_search import Hit, Query, Results, is_empty, search
from ..history.user_times import TIMES, parse_time
from ..text import pluralize
from . import output
from .command_arguments import PROJECT, CommandParser, count, named_session
from .terminal import Progress

_FIELDS = "titles, prompts, answers, reasoning, context, tools, inputs, outputs, errors or paths"


def configure(parser: CommandParser) -> None:
    """Declare the arguments."""
    parser.free_words = "query"
    parser.add_argument("query", nargs="*", metavar="QUERY", help="what to search for")
    parser.add_argument("--without", action="append", default=[], metavar="WORD", help="exclude this word")
    parser.add_argument("--project", metavar="NAME", help=f"only in this project: {PROJECT}")
    parser.add_argument("--here", action="store_true", help="only in the project of the current directory")
    parser.add_argument("--session", metavar="S", help="only in this session")
    parser.add_argument("--role", choices=("user", "assistant"), help="only in messages of the user or the assistant")
    parser.add_argument("--tool", metavar="T", help="only in calls of this tool; * matches anything")
    parser.add_argument("--file", metavar="PATH", help="a file name, the end of a path, *.py, or a folder/")
    parser.add_argument("--model", metavar="M", help="only answers of this model: part of provider/model")
    parser.add_argument("--agent", metavar="A", help="only answers of this agent")
    parser.add_argument(
        "--in", dest="fields", action="append", default=[], metavar="FIELD", help=f"only in this field: {_FIELDS}"
    )
    parser.add_argument("--since", metavar="T", help=f"created at this time or later: {TIMES}")
    parser.add_argument("--until", metavar="T", help="created before this time")
    parser.add_argument("--roots", action="store_true", help="exclude the sessions of subagents")
    parser.add_argument("--text", action="store_true", help="search for the exact text")
    parser.add_argument("--regex", action="store_true", help="search for a regular expression")
    parser.add_argument("--newest", action="store_true", help="newest first instead of best match first")
    parser.add_argument(
        "--limit", type=count, default=20, metavar="N", help="maximum number of results (default 20; 0 = all)"
    )
    parser.add_argument("--offset", type=count, default=0, metavar="N", help="skip this many results")
    parser.add_argument("--check", action="store_true", help="compare every record with the index first, not just some")


def run(options: Namespace) -> int:
    """Update the index, query it, and print the results."""
    if options.without and (options.text or options.regex):
        raise UsageError("--without needs words; it cannot be combined with --text or --regex")
    text = " ".join([*options.query, *(f'-"{word}"' for word in options.without)])
    mode = "regex" if options.regex else "text" if options.text else "words"
    if not options.file and not text.strip():
        raise UsageError("nothing to search for: give words or --file. Try 'opensesh search --help'.")
    atoms = parse(text) if mode == "words" and not options.file else ()
    if atoms and all(atom.negated for atom in atoms):
        command = f"opensesh search --text -- {shlex.join(options.query)}"
        hint = f" To search for the exact text: {command}" if options.query else ""
        raise UsageError(f"the query contains only exclusions; add a word to search for.{hint}")
    cache = open_cache(options.store)
    try:
        query = Query(text, mode, _filters(options), options.limit, options.offset, options.newest)
        with Progress("indexing {:,} of {:,} sessions") as progress:
            cache.refresh(TEXT, full=options.check, progress=progress)
        results = search(cache, query)
        if options.json:
            document = {"total": results.total, "hits": [hit.document() for hit in results.hits]}
            # Not output.print_json, which would load msgspec only for this.
            data = json.dumps(document, indent=2, ensure_ascii=False).encode(errors="replace")
            sys.stdout.buffer.write(data + b"\n")
            sys.stdout.buffer.flush()
        else:
            with output.paged():
                _print_hits(results.hits, utc=options.utc)
        _print_summary(results, cache, options)
    finally:
        cache.close()
    return 0


def _filters(options: Namespace) -> Filters:
    matches, session_id = None, ""
    if options.here or options.project or options.session:
        from ..history.discovery import current_project  # these load msgspec
        from ..history.library import Library

        library = Library(options.store)
        if options.here:
            matches = current_project(os.getcwd()).matches
        elif options.project:
            matches = library.resolve_project(options.project).matches
        session_id = named_session(library, options.session).id if options.session else ""
    return Filters(
        session_matches=matches,
        session=session_id,
        since=parse_time(options.since, utc=options.utc),
        until=parse_time(options.until, utc=options.utc),
        role=options.role or "",
        tool=options.tool or "",
        model=options.model or "",
        agent=options.agent or "",
        file=options.file or "",
        fields=tuple(name for names in options.fields for name in names.split(",")),
        children=not options.roots,
    )


def _print_hits(results: Sequence[Hit], *, utc: bool) -> None:
    """Print the hits by session, in the order of each session's best hit; matches are in colour."""
    by_session: dict[str, list[Hit]] = {}
    for hit in results:
        by_session.setdefault(hit.session, []).append(hit)
    for number, (session, hits) in enumerate(by_session.items()):
        title = output.clip(hits[0].title or "(no title)", 80)
        gap = "\n" if number else ""
        print(gap + output.folded(f"{output.paint(title, 1)}  {output.paint(f'{session}  {hits[0].directory}', 2)}"))
        for hit in hits:
            what = " ".join(filter(None, (hit.role, hit.tool or hit.type)))
            head = f"  {output.format_time(hit.time, utc=utc)}  {what}  {hit.part or hit.message or ''}"
            print(output.folded(output.paint(head.rstrip(), 36)))
            text = output.one_line(hit.snippet.text)
            line, position = "", 0
            for start, end in hit.snippet.marks:
                if start >= position:
                    line += text[position:start] + output.paint(text[start:end], 1, 33)
                    position = end
            if text:
                print(output.folded(f"    {line}{text[position:]}"))


def _print_summary(results: Results, cache: DerivedCache, options: Namespace) -> None:
    hits = pluralize(results.total, "hit")
    if results.hits:
        last = options.offset + len(results.hits)
        where = f" in {pluralize(results.sessions, 'session')}" if results.sessions else ""
        some = f"{options.offset + 1:,} to {last:,} of " if len(results.hits) < results.total else ""
        more = f"; --offset {last} shows more" if last < results.total else ""
        widened = "No whole-word matches; showing partial matches. " if results.widened else ""
        summary = f"{widened}{some}{hits}{where}{more}."
    elif results.total:
        summary = f"No more results: {hits} in all, and --offset skips {options.offset:,}."
    elif is_empty(cache):
        summary = f"There are no sessions in {cache.store_id}.\n{output.NO_SESSIONS_HINT}"
    else:
        summary = "No matches."
    if not options.json:
        print(summary, file=sys.stderr)
    if results.note:
        print(f"({results.note})", file=sys.stderr)
    if cache.temporary_reason:
        print(f"(a temporary index was used, because it cannot be stored: {cache.temporary_reason})", file=sys.stderr)
    output.report_damage(cache.damage)
