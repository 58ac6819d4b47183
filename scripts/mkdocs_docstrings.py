"""Extension for mkdocstrings: docstrings to Markdown. Roles become links, indented blocks become code."""

from __future__ import annotations

import re
from textwrap import dedent
from typing import Any

from griffe import Extension, Object

_ROLE = re.compile(r":(?:class|func|meth|mod|data|attr|exc):`(~?)([^`]+)`")
_LITERAL = re.compile(r"(?P<before>[^\n]*)::\n\n(?P<code>(?:[ \t]+[^\n]*\n?|\n)+)")


class Roles(Extension):
    """Converts docstrings as they are loaded."""

    def on_instance(self, *, obj: Object, **_: Any) -> None:
        """Convert one docstring."""
        if obj.docstring is not None:
            obj.docstring.value = in_markdown(obj.docstring.value)


def in_markdown(text: str) -> str:
    """Return a docstring as Markdown."""
    return _ROLE.sub(_code, _LITERAL.sub(_fenced, text))


def _code(role: re.Match[str]) -> str:
    name = role[2].rpartition(".")[2] if role[1] else role[2]
    if not role[2].startswith("opensesh."):
        return f"`{name}`"
    return f'<autoref identifier="{role[2]}" optional><code>{name}</code></autoref>'  # not every name has a page


def _fenced(block: re.Match[str]) -> str:
    before = f"{block['before']}:" if block["before"].strip() else ""
    code = dedent(block["code"]).strip("\n")
    kind = "python" if re.search(r"^(?:import|from|def|async def|@)\b", code, re.MULTILINE) else "text"
    return f"{before}\n\n```{kind}\n{code}\n```\n\n"
