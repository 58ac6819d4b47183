"""Markdown files with settings on top: YAML front matter between two lines of ``---``.

PyYAML reads the front matter; its nodes carry the position of every value. Scalars are resolved by YAML 1.2's core
schema, as OpenCode's parser does (``yes`` and ``on`` are strings, ``1:30`` is a string, ``0o17`` is a number), not by
YAML 1.1, which is PyYAML's own. Anchors, aliases, tags and complex keys are rejected, as is a key that appears twice.
"""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple, cast

import yaml

from ..errors import ConfigError
from ..records import Document, as_object
from .source import SettingPath, Source, read_text

_OPEN = re.compile(r"\ufeff?---(?!-)[^\n]*\n")
_CLOSE = re.compile(r"^---[ \t\r]*(?:\n|\Z)", re.MULTILINE)
_TOP_LEVEL_KEY = re.compile(r"^(?![ \t#-])[^\n]*?:(?=[ \t\r\n]|\Z)", re.MULTILINE)
_CONSTANTS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?[0-9]+|0x[0-9a-fA-F]+|0o[0-7]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_MAX_DIGITS = 300
_MAX_FILE_BYTES = 1 << 20
_MAX_FRONT_MATTER = 1 << 15
_MAX_DEPTH = 50
"""PyYAML takes quadratic time for what is nested."""
_PRIVATE_USE = range(0xE000, 0xF8FF)
# YAML 1.1 line breaks, which are text in YAML 1.2, and characters that PyYAML refuses to read.
_UNREADABLE = re.compile("[\x85\u2028\u2029]|" + yaml.reader.Reader.NON_PRINTABLE.pattern)
_TOO_LARGE_ESCAPE = re.compile(r"\\U(?!000|0010)[0-9a-fA-F]{8}")
_IN_QUOTES = "put it in quotes"
_REASONS = (
    ("'\\t' that cannot start", "a tab cannot indent in YAML: use spaces"),
    ("cannot start any token", f"this character cannot begin a value in YAML: {_IN_QUOTES}"),
    ("mapping values are not allowed", "a value with `: ` in it must be in quotes"),
    ("sequence entries are not allowed", "a list begins on the line below its key"),
    ("could not find expected ':'", "expected `key: value`"),
)
"""Problems that PyYAML reports at the position of the problem."""
_CONTEXT_REASONS = (
    ("scanning an alias", f"`*` begins an alias in YAML: {_IN_QUOTES}"),
    ("scanning an anchor", f"`&` begins an anchor in YAML: {_IN_QUOTES}"),
    ("scanning a tag", f"`!` begins a tag in YAML: {_IN_QUOTES}"),
    ("scanning a directive", f"`%` begins a directive in YAML: {_IN_QUOTES}"),
    ("scanning a block scalar", "`|` or `>` begins a block of text, which starts on the lines below it"),
)
"""Problems that are best reported where the construct begins."""


class MarkdownFile(NamedTuple):
    """A Markdown file, split into front matter and body."""

    settings: Document
    body: str
    """Stripped of surrounding whitespace."""
    source: Source
    """The file's text and the position of each setting."""


def read(path: str) -> MarkdownFile:
    """Read a file. Raises :class:`~opensesh.errors.ConfigError` if it cannot be read or parsed."""
    text = read_text(path, _MAX_FILE_BYTES)
    if text is None:
        raise ConfigError("there is no such file", path=path)
    return parse(text, path)


def parse(text: str, name: str = "") -> MarkdownFile:
    """Split a text into front matter and body. A text that does not begin with ``---`` has no settings.

    People write ``description: Use this: it helps``, which is not YAML. So front matter that cannot be parsed is
    tried a second time, top-level key by key, where a value that is not YAML is taken as text. If that fails too, the
    first error is raised.
    """
    source = Source(name, text)
    opening = _OPEN.match(text)
    if not opening:
        return MarkdownFile({}, text.lstrip("\ufeff").strip(), source)
    closing = _CLOSE.search(text, opening.end())
    if not closing:
        raise source.error_at(0, "the front matter that begins here is never closed by a line of ---")
    start, end = opening.end(), closing.start()
    if end - start > _MAX_FRONT_MATTER:
        raise source.error_at(0, f"the front matter is longer than {_MAX_FRONT_MATTER:,} characters")
    try:
        value = _parse_yaml(source, start, end)
    except ConfigError as error:
        source.values.clear()
        source.keys.clear()
        value = _parse_by_key(source, start, end, error)
    settings: Document | None = {} if value is None else as_object(value)
    if settings is None:
        raise source.error_at(start, "front matter is a list of `key: value` lines")
    return MarkdownFile(settings, text[closing.end() :].strip(), source)


def _parse_by_key(source: Source, start: int, end: int, first_error: ConfigError) -> Document:
    keys = list(_TOP_LEVEL_KEY.finditer(source.text, start, end))
    if not keys or re.sub(r"(?m)^#.*", "", source.text[start : keys[0].start()]).strip():
        raise first_error
    settings: Document = {}
    for match, next_start in zip(keys, [*(key.start() for key in keys[1:]), end], strict=True):
        try:
            member: Document = as_object(_parse_yaml(source, match.start(), next_start)) or {}
        except ConfigError:
            lines = [line.strip() for line in source.text[match.end() : next_start].split("\n")]
            if not lines[0]:
                raise first_error from None  # a mapping or list below its key is never text
            key = match[0][:-1].rstrip()
            member = {key: "\n".join(lines).strip()}
            source.keys[key,] = match.start()
            source.values[key,] = match.end()
        if settings.keys() & member.keys():
            raise first_error
        settings |= member
    return settings


class _Loader(yaml.SafeLoader):
    """PyYAML's parser with everything rejected that settings do not use."""

    yaml_implicit_resolvers = {}  # all scalars stay text here; resolve() decides

    def fetch_key(self) -> None:
        raise yaml.MarkedYAMLError(None, None, f"`?` begins a complex key in YAML: {_IN_QUOTES}", self.get_mark())

    def fetch_more_tokens(self) -> Any:
        parser = cast("Any", self)  # types-PyYAML leaves the parser's methods untyped
        if max(parser.flow_level, len(parser.indents)) > _MAX_DEPTH:
            raise RecursionError
        return cast("Any", super()).fetch_more_tokens()

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        parser = cast("Any", self)
        event = parser.peek_event()
        mark = event.start_mark
        if type(event) is yaml.AliasEvent:
            construct = "`*` begins an alias"
        elif event.anchor:
            construct = "`&` begins an anchor"
        elif getattr(event, "tag", None):
            construct = "`!` begins a tag"
        else:
            return super().compose_node(parent, index)
        raise yaml.MarkedYAMLError(None, None, f"{construct} in YAML: {_IN_QUOTES}", mark)


def _parse_yaml(source: Source, start: int, end: int) -> Any:
    """Parse the YAML between two offsets of ``source``, and record where each key and value stands."""
    text = source.text[start:end]
    # Stand-ins of the same length keep all positions. They are taken from the code points that the text does not use.
    free = (chr(code) for code in _PRIVATE_USE if chr(code) not in text)
    stand_ins = dict(zip(dict.fromkeys(_UNREADABLE.findall(text)), free, strict=False))
    originals = {ord(stand_in): char for char, stand_in in stand_ins.items()}
    readable = text.translate({ord(char): stand_in for char, stand_in in stand_ins.items()})
    try:
        root = yaml.compose(readable, Loader=_Loader)
        return None if root is None else _Builder(source, start, originals).value(root, ())
    except yaml.MarkedYAMLError as error:
        offset, reason = _explain(error, readable)
        raise source.error_at(start + offset, reason) from None
    except yaml.YAMLError as error:
        raise source.error_at(start, f"not YAML: {error}") from None
    except (ValueError, OverflowError):  # chr() of an escape beyond Unicode
        escape = _TOO_LARGE_ESCAPE.search(readable)
        raise source.error_at(start + (escape.start() if escape else 0), "this escape is not a character") from None
    except RecursionError:
        raise source.error_at(start, "nested too deeply") from None


class _Builder:
    """Makes plain values of PyYAML's nodes."""

    def __init__(self, source: Source, start: int, originals: dict[int, str]) -> None:
        self._source = source
        self._start = start
        self._originals = originals

    def value(self, node: yaml.Node, path: SettingPath) -> Any:
        self._source.values[path] = self._start + node.start_mark.index
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*path, at)) for at, item in enumerate(node.value)]
        if isinstance(node, yaml.MappingNode):
            members: Document = {}
            for key_node, value_node in node.value:
                offset = self._start + key_node.start_mark.index
                if not isinstance(key_node, yaml.ScalarNode):
                    raise self._source.error_at(offset, "a key is text, not a list or a mapping")
                key = key_node.value.translate(self._originals)
                if key in members:
                    raise self._source.error_at(offset, f"{key!r} appears twice")
                self._source.keys[*path, key] = offset
                members[key] = self.value(value_node, (*path, key))
            return members
        text = str(node.value).translate(self._originals)
        is_plain = isinstance(node, yaml.ScalarNode) and not node.style
        return resolve(text) if is_plain else text


def resolve(text: str) -> Any:
    """Return the value of a plain scalar by YAML 1.2's core schema: a number, a boolean, ``None`` or the text."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INTEGER.fullmatch(text) and len(text) < _MAX_DIGITS:
        return int(text, 0 if text[:2] in ("0x", "0o") else 10)
    # JavaScript has one kind of number, so 1.0 is an integer for OpenCode.
    if _FLOAT.fullmatch(text) and math.isfinite(number := float(text)):
        return int(number) if number.is_integer() else number
    return text


def _explain(error: yaml.MarkedYAMLError, text: str) -> tuple[int, str]:
    """Return where an error is best reported, and the reason for a person."""
    problem, context = error.problem or "", error.context or ""
    at = error.problem_mark.index if error.problem_mark else 0
    began = error.context_mark.index if error.context_mark else at
    if reason := next((reason for words, reason in _CONTEXT_REASONS if words in context), None):
        return began, reason
    if reason := next((reason for words, reason in _REASONS if words in problem), None):
        return at, reason
    if "end of stream" in problem or "<stream end>" in problem:
        return began, f"`{text[began : began + 1]}` is never closed"
    if "unknown escape" in problem:
        return at - 1, f"`\\{text[at : at + 1]}` is not an escape; write a backslash twice"
    reason = problem if "YAML" in problem else f"not YAML: {problem}"
    if "expected <block end>" in problem:
        before = text[text.rfind("\n", 0, at) + 1 : at].rstrip()
        reason = (
            "something follows the end of this value" if before else "this line does not belong to what is above it"
        )
        at = text.rfind("\n", 0, at) + 1 + len(before) if before else at
    return at, reason
