"""Every setting that holds in this directory, and who made it: a line of a file, or a variable.

With a path such as 'compaction' or 'provider.openai.options', only what lies there; a setting that nobody made is shown
with what holds instead. Values that look like secrets are not shown.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError, NotFoundError
from ..records import as_list, as_object
from . import directory, output

if TYPE_CHECKING:
    from argparse import Namespace

    from ..config import Config
    from .arguments import Parser

    Path = tuple[str | int, ...]

_SECRET = re.compile(r"api_?key|token|secret|passw|credential|authorization|cookie|private_?key", re.IGNORECASE)
_SECRET_FOLDERS = ("headers", "environment", "env")
_HIDDEN = "(not shown)"


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.add_argument("path", nargs="?", metavar="PATH", help="only this setting, or what lies below it")
    directory.declare(parser)


def run(options: Namespace) -> int:
    """Print the settings."""
    from ..config import load
    from ..config.config import leaf_values

    place = directory.place_of(options)
    config = load(place.directory, place.sandbox)
    problems = [*config.problems, *_waiting(config, options.path)]
    rows = [each for each in leaf_values(config.document) if _is_below(each[0], options.path)]
    defaults = [] if rows or not options.path else _defaults(config, options.path)
    if options.path and not rows and not defaults:
        raise NotFoundError(f"there is no setting {options.path!r}, and nobody made one", path=options.path)
    if options.json:
        output.print_json(_document(config, [*rows, *defaults], problems, made=bool(rows)))
        return 0
    for path, value in (*rows, *defaults):
        origin = config.origins.get(path) if rows else None
        print(f"{_name(path)} = {_shown(path, value)}")
        print(output.paint(f"    {output.short_path(str(origin)) if origin else 'not set; this is the default'}", 2))
    for problem in problems:
        print(f"! {output.clip(problem.message, 1000)}", file=sys.stderr)
    return 0


def _waiting(config: Config, path: str | None) -> list[ConfigError]:
    """What nobody has trusted, among the settings that are shown."""
    from .foreign import untrusted

    return [
        ConfigError(
            f"the {each.kind} {each.name} is not used: {why} (see 'opensesh plugins')",
            path=each.named_by.source,
            line=each.named_by.line or 0,
            column=each.named_by.column or 0,
        )
        for each, why in untrusted(config)
        if _is_below(each.setting, path) or (path or "").startswith(f"{_name(each.setting)}.")
    ]


def _defaults(config: Config, path: str) -> list[tuple[Path, Any]]:
    import msgspec

    from ..config.config import leaf_values

    everything = msgspec.to_builtins(config.settings)
    return [each for each in leaf_values(everything) if _is_below(each[0], path)]


def _is_below(path: Path, wanted: str | None) -> bool:
    return not wanted or _name(path) == wanted or _name(path).startswith(f"{wanted.rstrip('.')}.")


def _name(path: Path) -> str:
    return ".".join(map(str, path))


def _shown(path: Path, value: Any) -> str:
    from ..records import dumps_compact

    return output.clip(dumps_compact(_masked(path, value)).decode("utf-8", "replace"), 2000)


def _masked(path: Path, value: Any) -> Any:
    """``value`` without what looks like a secret. A price, a limit or a switch is none, whatever it is called."""
    items = as_list(value)
    if items is not None:
        return [_masked(path, item) for item in items]
    members = as_object(value)
    if members is not None:
        return {name: _masked((*path, name), member) for name, member in members.items()}
    names = [str(step) for step in path]
    hidden = any(name in _SECRET_FOLDERS for name in names[:-1]) or (bool(names) and bool(_SECRET.search(names[-1])))
    return _HIDDEN if hidden and isinstance(value, str) and value else value


def _document(
    config: Config, rows: list[tuple[Path, Any]], problems: list[ConfigError], *, made: bool
) -> dict[str, Any]:
    def entry(path: Path, value: Any) -> dict[str, Any]:
        origin = config.origins.get(path) if made else None
        source = {"source": origin.source, "line": origin.line, "column": origin.column} if origin else {"source": None}
        return {"path": list(path), "value": _masked(path, value), **source}

    return {
        "directory": config.directory,
        "values": [entry(path, value) for path, value in rows],
        "problems": [{"message": each.message, **each.data} for each in problems],
    }
