"""Syntax highlighting with six classes: keyword, string, comment, number, name, type.

Everything else is plain text, which keeps pages small. Languages are never guessed, and only those of
:data:`LANGUAGES` are highlighted: a lexer is a set of regular expressions that hostile code runs through.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any

from markupsafe import Markup
from pygments.lexers import find_lexer_class_by_name
from pygments.token import Token

from .visible_text import code

MAX_LINES = 200
MAX_LENGTH = 16_000
LANGUAGES = {
    "bash": "bash", "sh": "bash", "shell": "bash", "zsh": "bash", "console": "bash",
    "c": "c", "h": "c", "cpp": "cpp", "c++": "cpp", "cc": "cpp", "hpp": "cpp", "cs": "csharp", "csharp": "csharp",
    "css": "css", "scss": "scss", "dart": "dart", "dockerfile": "docker", "docker": "docker", "ex": "elixir",
    "elixir": "elixir", "erl": "erlang", "erlang": "erlang", "go": "go", "golang": "go", "graphql": "graphql",
    "hs": "haskell", "haskell": "haskell", "hcl": "hcl", "tf": "hcl", "html": "html", "htm": "html", "vue": "html",
    "svelte": "html", "ini": "ini", "cfg": "ini", "java": "java", "js": "javascript", "javascript": "javascript",
    "jsx": "javascript", "mjs": "javascript", "cjs": "javascript", "json": "json", "jsonc": "json", "jsonl": "json",
    "kt": "kotlin", "kotlin": "kotlin", "lua": "lua", "makefile": "make", "make": "make", "nix": "nix",
    "pl": "perl", "perl": "perl", "php": "php", "powershell": "powershell", "ps1": "powershell", "proto": "protobuf",
    "protobuf": "protobuf", "py": "python", "python": "python", "python3": "python", "pyi": "python", "r": "r",
    "rb": "ruby", "ruby": "ruby", "rs": "rust", "rust": "rust", "scala": "scala", "sql": "sql", "swift": "swift",
    "toml": "toml", "ts": "typescript", "typescript": "typescript", "tsx": "typescript", "xml": "xml", "svg": "xml",
    "yaml": "yaml", "yml": "yaml", "zig": "zig",
}  # fmt: skip
"""The lexer of each language and file name suffix."""
_CLASSES: tuple[tuple[Any, str], ...] = (
    (Token.Keyword.Type, "type"),
    (Token.Name.Class, "type"),
    (Token.Name.Exception, "type"),
    (Token.Keyword, "kw"),
    (Token.Operator.Word, "kw"),
    (Token.Literal.Number, "num"),
    (Token.Literal, "str"),
    (Token.Comment, "com"),
    (Token.Name.Function, "name"),
    (Token.Name.Decorator, "name"),
    (Token.Name.Builtin, "name"),
    (Token.Name.Tag, "name"),
    (Token.Name.Attribute, "name"),
    (Token.Name.Property, "name"),
)


def language_of_path(path: str) -> str:
    """Return the language of a file by the end of its name; empty if it is not known."""
    name = path.replace("\\", "/").rpartition("/")[2].lower()
    suffix = name.rpartition(".")[2]
    return suffix if suffix in LANGUAGES else ""


def highlighted(text: str, language: str, max_lines: int = MAX_LINES) -> Markup:
    """Return code with its words marked by class; only escaped if it is long or its language is not known."""
    lexer = LANGUAGES.get(language.lower())
    is_short = len(text) <= MAX_LENGTH * max_lines // MAX_LINES and text.count("\n") <= max_lines
    return _highlighted(text, lexer) if lexer and is_short else code(text)


@lru_cache(maxsize=256)
def _highlighted(text: str, name: str) -> Markup:
    text = text.replace("\r\n", "\n")
    pieces: list[Markup] = []
    length = 0
    lexer = find_lexer_class_by_name(name)(stripnl=False, ensurenl=False)
    tokens = ((_class_of(kind), value) for kind, value in lexer.get_tokens(text))
    for css_class, group in groupby(tokens, key=itemgetter(0)):
        words = "".join(value for _, value in group)
        length += len(words)
        pieces.append(Markup('<span class="{}">{}</span>').format(css_class, code(words)) if css_class else code(words))
    # A lexer may drop characters such as a byte order mark. Then the text is more important than its colours.
    return Markup("").join(pieces) if length == len(text) else code(text)


@lru_cache(maxsize=512)
def _class_of(kind: Any) -> str:
    return next((css_class for parent, css_class in _CLASSES if kind in parent), "")
