"""Search everything that was said and done, in all sessions.

words           sessions where all of them are said or done, the best first
"a phrase"      words in this order; so does parse_config
pars*  *arse*   words that begin with it, or hold it
-- a -b         a without b; behind -- no word is an option. Or: a --without b
-- --flag       a word that begins with two dashes, such as an option
--text          what was typed as it stands, dots and dashes too
--regex         a regular expression

--file PATH     where a file was read, written or changed;
                with words, in sessions where it was
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ..errors import UsageError
from . import output
from .arguments import PROJECT, TIMES, count
from .progress import Progress

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    from ..history.cache.derived_cache import DerivedCache
    from ..history.search.condition import Filters
    from ..history.search.snippets import Snippet
    from ..history.search.text_search import Hit, Results
    from .arguments import Parser

_FIELDS = "titles, prompts, answers, reasoning, context, tools, inputs, outputs, errors or paths"


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.words = "query"
    parser.add_argument("query", nargs="*", metavar="QUERY", help="what to look for")
    parser.add_argument("--without", action="append", default=[], metavar="WORD", help="and what must not be there")
    parser.add_argument("--project", metavar="NAME", help=f"only of this project: {PROJECT}")
    parser.add_argument("--here", action="store_true", help="only of the project of this directory")
    parser.add_argument("--session", metavar="S", help="only in this session")
    parser.add_argument("--role", choices=("user", "assistant"), help="only what one of the two said or did")
    parser.add_argument("--tool", metavar="T", help="only calls of this tool; * stands for anything")
    parser.add_argument("--file", metavar="PATH", help="a name, the end of a path, *.py, or a folder/")
    parser.add_argument("--model", metavar="M", help="only with this model: part of provider/model")
    parser.add_argument("--agent", metavar="A", help="only with this agent")
    parser.add_argument("--in", dest="fields", action="append", default=[], metavar="FIELD", help="only in " + _FIELDS)
    parser.add_argument("--since", metavar="T", help=f"said since: {TIMES}")
    parser.add_argument("--until", metavar="T", help="said before")
    parser.add_argument("--roots", action="store_true", help="not in the sessions of subagents")
    parser.add_argument("--text", action="store_true", help="look for it as it stands")
    parser.add_argument("--regex", action="store_true", help="look for a regular expression")
    parser.add_argument("--newest", action="store_true", help="newest first, instead of best first")
    parser.add_argument("--limit", type=count, default=20, metavar="N", help="how many at the most; 0 for all (20)")
    parser.add_argument("--offset", type=count, default=0, metavar="N", help="leave out so many before them")
    parser.add_argument("--check", action="store_true", help="first compare every record with the index, not only some")


def run(options: Namespace) -> int:
    """Bring the index up to date, ask it, and print what it answers."""
    from ..history.cache.derived_cache import DerivedCache
    from ..history.search.text_search import Query, search
    from ..storage.locations import find_stores

    if options.without and (options.text or options.regex):
        raise UsageError("--without goes with words, not with --text or --regex")
    text = " ".join([*options.query, *(f'-"{word}"' for word in options.without)])
    if not options.file:
        _need_something(text, options)
    index = DerivedCache(find_stores(options.store))
    try:
        filters = _filters(options)
        with Progress("indexing {:,} of {:,} sessions") as progress:
            index.refresh(closely=options.check, progress=progress)
        mode = "regex" if options.regex else "text" if options.text else "words"
        found = search(index, Query(text, mode, filters, options.limit, options.offset, options.newest))
        if options.json:
            _print_json({"total": found.total, "hits": [hit.document() for hit in found.hits]})
        else:
            output.in_pages(lambda: _print(found, options))
        _tell(found, index, options)
    finally:
        index.close()
    return 0


def _need_something(text: str, options: Namespace) -> None:
    """Refuse to look for nothing, or for everything but a word, which is what ``-- -x`` says and nobody means."""
    from ..history.search.query import parse

    if not text.strip():
        raise UsageError("what to look for? Try 'opensesh search --help'.")
    if not (options.text or options.regex) and (found := parse(text)) and all(atom.negated for atom in found):
        import shlex

        typed = " ".join(options.query)
        way = f" To find {typed!r} as it stands: opensesh search --text -- {shlex.join(options.query)}" if typed else ""
        raise UsageError(f"that says only what must not be there, not what to look for.{way}")


def _filters(options: Namespace) -> Filters:
    from ..history.search.condition import Filters

    return Filters(
        session_matches=_belongs(options),
        session=_session(options),
        since=_moment(options.since, utc=options.utc),
        until=_moment(options.until, utc=options.utc),
        role=options.role or "",
        tool=options.tool or "",
        model=options.model or "",
        agent=options.agent or "",
        file=options.file or "",
        fields=tuple(name for given in options.fields for name in given.split(",")),
        children=not options.roots,
    )


def _moment(text: str | None, *, utc: bool) -> int:
    if not text:
        return 0
    from .list_command import moment

    return moment(text, utc=utc)


def _belongs(options: Namespace) -> Callable[[str, str, str], bool] | None:
    if options.here:
        import os

        from ..history.discovery import current_project

        return current_project(os.getcwd()).matches
    if options.project:
        from ..history.library import Library

        return Library(options.store).resolve_project(options.project).matches
    return None


def _session(options: Namespace) -> str:
    if not options.session:
        return ""
    from ..history.library import Library

    return Library(options.store).session(options.session).id


def _print_json(value: object) -> None:
    """As elsewhere; by the standard library, which is loaded already."""
    import json

    text = json.dumps(value, indent=2, ensure_ascii=False)
    sys.stdout.buffer.write(text.encode(errors="replace") + b"\n")
    sys.stdout.buffer.flush()


def _print(found: Results, options: Namespace) -> None:
    """A head a session, where its first hit stands, and all of its hits below."""
    by_session: dict[str, list[Hit]] = {}
    for hit in found.hits:
        by_session.setdefault(hit.session, []).append(hit)
    for number, (session, hits) in enumerate(by_session.items()):
        if number:
            print()
        title = output.clip(hits[0].title or "(no title)", 80)
        print(f"{output.paint(title, 1)}  {output.paint(f'{session}  {hits[0].directory}', 2)}")
        for hit in hits:
            _print_hit(hit, utc=options.utc)


def _print_hit(hit: Hit, *, utc: bool) -> None:
    what = " ".join(filter(None, (hit.role, hit.tool or hit.type)))
    where = hit.part or hit.message or ""
    print(output.paint(f"  {output.when(hit.time, utc=utc)}  {what}  {where}".rstrip(), 36))
    if hit.snippet.text:
        print(f"    {_painted(hit.snippet)}")


def _painted(found: Snippet) -> str:
    """A snippet with what was looked for in colour; nothing in it can steer the terminal."""
    plain = "".join(character if character.isprintable() else " " for character in found.text)
    pieces: list[str] = []
    at = 0
    for start, end in found.marks:
        if start >= at:
            pieces += [plain[at:start], output.paint(plain[start:end], 1, 33)]
            at = end
    return "".join([*pieces, plain[at:]])


def _tell(found: Results, index: DerivedCache, options: Namespace) -> None:
    if not found.total and not options.json and index.is_empty:
        from .list_command import ELSEWHERE

        print(f"There are no sessions in {index.place}.\n{ELSEWHERE}", file=sys.stderr)
    elif not options.json:
        print(_count(found, options), file=sys.stderr)
    if found.note:
        print(f"({found.note})", file=sys.stderr)
    if index.unkept:
        print(f"(the index cannot be kept and was made for this search alone: {index.unkept})", file=sys.stderr)
    output.tell_damage(index.damage)


def _count(found: Results, options: Namespace) -> str:
    first, last = options.offset + 1, options.offset + len(found.hits)
    if not found.total:
        return "Nothing found."
    if not found.hits:
        return (
            f"There are no more: {output.pluralize(found.total, 'hit')} in all, and --offset leaves out {first - 1:,}."
        )
    where = f" in {output.pluralize(found.sessions, 'session')}" if found.sessions else ""
    some = f"{first:,} to {last:,} of " if len(found.hits) < found.total else ""
    more = f"; --offset {last} shows more" if last < found.total else ""
    widened = "No word is just that; these hold it. " if found.widened else ""
    return f"{widened}{some}{output.pluralize(found.total, 'hit')}{where}{more}."
