"""Print the configuration of this directory, and where each setting comes from: a line of a file, or a variable.

With a path such as 'compaction' or 'provider.openai.options', print only what is below it; for a setting that is not
set, its default. Values that look like secrets are not shown.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import Any

import msgspec

from ..config.config import leaf_values
from ..errors import ConfigError, NotFoundError
from ..records import as_list, as_object, dumps_compact
from ..redaction import Redactor, flags_before, is_secret_setting, without_named
from . import output
from .command_arguments import CommandParser
from .directory_config import add_directory_option, load_config, untrusted_items

Path = tuple[str | int, ...]

_HIDDEN = "(not shown)"


def configure(parser: CommandParser) -> None:
    """Declare the arguments."""
    parser.add_argument("path", nargs="?", metavar="PATH", help="only this setting, or those below it")
    add_directory_option(parser)


def run(options: Namespace) -> int:
    """Print the settings."""
    _, config = load_config(options)
    problems = [
        *config.problems,
        *(
            ConfigError(
                f"the {item.kind} {item.name} is not used: {reason} (see 'opensesh plugins')",
                path=item.named_by.source,
                line=item.named_by.line or 0,
                column=item.named_by.column or 0,
            )
            for item, reason in untrusted_items(config)
            if _is_below(item.setting, options.path) or (options.path or "").startswith(f"{_dotted(item.setting)}.")
        ),
    ]
    settings = [pair for pair in leaf_values(config.document) if _is_below(pair[0], options.path)]
    origins = config.origins if settings else {}
    if options.path and not settings:
        defaults = leaf_values(msgspec.to_builtins(config.settings))
        settings = [pair for pair in defaults if _is_below(pair[0], options.path)]
        if not settings:
            hint = "'opensesh config' lists what is set here"
            raise NotFoundError(f"unknown setting {options.path!r}; {hint}", path=options.path)
    if options.json:
        entries: list[dict[str, Any]] = []
        for path, value in settings:
            origin = origins.get(path)
            source = {"source": origin.source, "line": origin.line, "column": origin.column} if origin else {}
            entries.append({"path": list(path), "value": _masked(path, value), **(source or {"source": None})})
        documents = [{"message": problem.message, **problem.data} for problem in problems]
        output.print_json({"directory": config.directory, "values": entries, "problems": documents})
        return 0
    for path, value in settings:
        origin = origins.get(path)
        text = dumps_compact(_masked(path, value)).decode("utf-8", "replace")
        print(f"{_dotted(path)} = {output.clip(text, 2000)}")
        print(output.paint(f"    {output.short_path(str(origin)) if origin else 'not set; this is the default'}", 2))
    for problem in problems:
        print(f"! {output.clip(problem.message, 1000)}", file=sys.stderr)
    return 0


def _is_below(path: Path, prefix: str | None) -> bool:
    return not prefix or _dotted(path) == prefix or _dotted(path).startswith(f"{prefix.rstrip('.')}.")


def _dotted(path: Path) -> str:
    return ".".join(map(str, path))


def _masked(path: Path, value: Any) -> Any:
    """Return ``value`` without strings that look like secrets. Numbers and switches are never secrets."""
    items = as_list(value)
    if items is not None:
        flags = flags_before(items)
        return [_masked((*path, flag) if flag else path, item) for flag, item in zip(flags, items, strict=True)]
    members = as_object(value)
    if members is not None:
        return {name: _masked((*path, name), member) for name, member in members.items()}
    if not isinstance(value, str):
        return value
    if value and is_secret_setting([str(name) for name in path]):
        return _HIDDEN
    return Redactor().text(without_named(value, _HIDDEN))
