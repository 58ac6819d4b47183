"""Words as HTML: the Markdown that models write, diffs in colour, and nothing that could do harm.

Everything is escaped before it is marked up, so no character of a session can become a tag, an attribute or a script.
Links lead to ``http``, ``https`` and ``mailto`` only.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

if TYPE_CHECKING:
    from collections.abc import Iterator

_FENCE = re.compile(r"[ ]{0,3}(`{3,}|~{3,})[ ]*([\w+#.-]*)[^`]*")
_HEADING = re.compile(r"[ ]{0,3}(#{1,6})[ ]+(.*?)[ ]*#*[ ]*")
_ITEM = re.compile(r"[ ]*(?:[-*+]|(\d{1,9})[.)])[ ]+(.*)")
_QUOTE = re.compile(r"[ ]{0,3}>[ ]?(.*)")
_RULE = re.compile(r"[ ]{0,3}(?:(?:-[ ]*){3,}|(?:\*[ ]*){3,}|(?:_[ ]*){3,})")
_COLUMNS = re.compile(r"\|?(?:[ ]*:?-+:?[ ]*\|)+[ ]*(?::?-+:?[ ]*)?")
_CELL_END = re.compile(r"(?<!\\)\|")
_INLINE = re.compile(
    r"(?P<ticks>`+)(?P<code>.+?)(?<!`)(?P=ticks)(?!`)"
    r"|\[(?P<label>[^\[\]\n]{1,300})\]\((?P<href>[^()\s]{1,2000})\)"
    r"|(?P<bare>https?://[^\s<>\"'`\[\]{}]{1,2000}[^\s<>\"'`\[\]{}.,;:!?()])"
    r"|\*\*(?P<bold>[^\s*](?:[^*\n]{0,500}[^\s*])?)\*\*"
    r"|(?<![\w*])\*(?P<italic>[^\s*](?:[^*\n]{0,500}[^\s*])?)\*(?![\w*])"
)
_SAFE_LINK = re.compile(r"(?:https?://|mailto:)", re.IGNORECASE)
_IMAGE = re.compile(r"data:image/(?:png|jpe?g|gif|webp);base64,[A-Za-z0-9+/=\s]+")


def rendered(text: str) -> Markup:
    """Markdown as HTML: headings, lists, quotes, code, tables, emphasis, links. What is not understood stays as it
    is."""
    return Markup("\n").join(_blocks(text.splitlines()))


def coloured(diff: str) -> Markup:
    """A unified diff with a class for each line."""
    lines = [Markup('<span class="{}">{}</span>').format(_diff_class(line), line) for line in diff.splitlines()]
    return Markup("\n").join(lines)


def image_url(url: str) -> str:
    """The address of a picture that may be shown; empty for everything else."""
    return url if _IMAGE.fullmatch(url) else ""


def _diff_class(line: str) -> str:
    if line.startswith(("+++", "---", "Index:", "===", "diff ")):
        return "head"
    return {"+": "add", "-": "del", "@": "hunk"}.get(line[:1], "same")


def _blocks(lines: list[str]) -> Iterator[Markup]:
    position = 0
    while position < len(lines):
        line = lines[position]
        if fence := _FENCE.fullmatch(line):
            block, position = _code(lines, position, fence)
        elif heading := _HEADING.fullmatch(line):
            level = min(len(heading[1]) + 2, 6)
            block, position = Markup("<h{0}>{1}</h{0}>").format(level, _inline(heading[2])), position + 1
        elif _RULE.fullmatch(line):
            block, position = Markup("<hr>"), position + 1
        elif _QUOTE.match(line):
            block, position = _quote(lines, position)
        elif _ITEM.fullmatch(line):
            block, position = _list(lines, position)
        elif _begins_table(lines, position):
            block, position = _table(lines, position)
        else:
            block, position = _paragraph(lines, position)
        yield block


def _code(lines: list[str], start: int, fence: re.Match[str]) -> tuple[Markup, int]:
    mark, language = fence[1], fence[2].lower()
    end = start + 1
    while end < len(lines) and not lines[end].strip().startswith(mark):
        end += 1
    body = "\n".join(lines[start + 1 : end])
    inner = coloured(body) if language in ("diff", "patch") else escape(body)
    return Markup('<pre class="code">{}</pre>').format(inner), end + 1


def _quote(lines: list[str], start: int) -> tuple[Markup, int]:
    end, inner = start, list[str]()
    while end < len(lines) and (found := _QUOTE.match(lines[end])):
        inner.append(found[1])
        end += 1
    # One level is enough to read by, and a thousand would be a way to exhaust us.
    text = Markup("<br>").join(_inline(line.lstrip("> ")) for line in inner)
    return Markup("<blockquote>{}</blockquote>").format(text), end


def _list(lines: list[str], start: int) -> tuple[Markup, int]:
    end, items = start, list[Markup]()
    numbered = bool((_ITEM.fullmatch(lines[start]) or [None, None])[1])
    while end < len(lines) and (found := _ITEM.fullmatch(lines[end])):
        depth = min((len(lines[end]) - len(lines[end].lstrip())) // 2, 4)
        value = Markup(' value="{}"').format(found[1]) if found[1] and numbered else Markup("")
        items.append(Markup('<li class="d{}"{}>{}</li>').format(depth, value, _inline(found[2])))
        end += 1
    whole = Markup("<ol>{}</ol>") if numbered else Markup("<ul>{}</ul>")
    return whole.format(Markup("").join(items)), end


def _begins_table(lines: list[str], start: int) -> bool:
    return "|" in lines[start] and start + 1 < len(lines) and bool(_COLUMNS.fullmatch(lines[start + 1].strip()))


def _table(lines: list[str], start: int) -> tuple[Markup, int]:
    sides = [cell.endswith(":") and not cell.startswith(":") for cell in _cells(lines[start + 1])]
    end = start + 2
    while end < len(lines) and "|" in lines[end]:
        end += 1
    head = _row(lines[start], sides, Markup("<th{}>{}</th>"))
    body = Markup("\n").join(_row(line, sides, Markup("<td{}>{}</td>")) for line in lines[start + 2 : end])
    return Markup('<div class="wide"><table>{}\n{}</table></div>').format(head, body), end


def _row(line: str, sides: list[bool], shape: Markup) -> Markup:
    """A row of cells, as many as there are columns; those of numbers to the right."""
    cells = [*_cells(line), *[""] * len(sides)][: len(sides)]
    right = Markup(' class="number"')
    made = [shape.format(right if side else "", _inline(cell)) for cell, side in zip(cells, sides, strict=True)]
    return Markup("<tr>{}</tr>").format(Markup("").join(made))


def _cells(line: str) -> list[str]:
    inner = line.strip().removeprefix("|")
    inner = inner[:-1] if inner.endswith("|") and not inner.endswith("\\|") else inner
    return [cell.strip().replace("\\|", "|") for cell in _CELL_END.split(inner)]


def _paragraph(lines: list[str], start: int) -> tuple[Markup, int]:
    end = start
    while end < len(lines) and lines[end].strip() and (end == start or not _begins_block(lines, end)):
        end += 1
    if end == start:
        return Markup(""), start + 1
    return Markup("<p>{}</p>").format(Markup("<br>").join(_inline(line) for line in lines[start:end])), end


def _begins_block(lines: list[str], start: int) -> bool:
    line = lines[start]
    known = any(shape.fullmatch(line) for shape in (_FENCE, _HEADING, _RULE, _ITEM)) or bool(_QUOTE.match(line))
    return known or _begins_table(lines, start)


def _inline(text: str) -> Markup:
    pieces, position = list[Markup](), 0
    for found in _INLINE.finditer(text):
        pieces += [escape(text[position : found.start()]), _marked(found)]
        position = found.end()
    return Markup("").join([*pieces, escape(text[position:])])


def _marked(found: re.Match[str]) -> Markup:
    match found.lastgroup:
        case "code":
            return Markup("<code>{}</code>").format(found["code"].strip() or found["code"])
        case "href" if _SAFE_LINK.match(found["href"]):
            return _link(found["href"], found["label"])
        case "bare":
            return _link(found["bare"], found["bare"])
        case "bold":
            return Markup("<strong>{}</strong>").format(found["bold"])
        case "italic":
            return Markup("<em>{}</em>").format(found["italic"])
        case _:
            return escape(found[0])


def _link(href: str, label: str) -> Markup:
    return Markup('<a href="{}" rel="noreferrer nofollow">{}</a>').format(href, label)
