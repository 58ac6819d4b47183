"""Safe HTML from session content: Markdown, diffs and image URLs.

Everything is escaped before it is marked up, so no character of a session can become a tag, an attribute or a script.
Only ``http``, ``https`` and ``mailto`` links become links. Time and output are proportional to the length of any text.
"""

from __future__ import annotations

import re

from markupsafe import Markup, escape

_FENCE = re.compile(r"[ ]{0,3}(`{3,}+|~{3,}+)[ ]*+([\w+#.-]*+)[^`]*+")
_HEADING = re.compile(r"[ ]{0,3}(#{1,6})[ ]+(.*)")
_ITEM = re.compile(r"[ ]*(?:[-*+]|(\d{1,9})[.)])[ ]+(.*)")
_QUOTE = re.compile(r"[ ]{0,3}>[ ]?(.*)")
_RULE = re.compile(r"[ ]{0,3}(?:(?:-[ ]*){3,}|(?:\*[ ]*){3,}|(?:_[ ]*){3,})")
_COLUMNS = re.compile(r"\|?(?:[ ]*:?-+:?[ ]*\|)+[ ]*(?::?-+:?[ ]*)?")
_CELL_END = re.compile(r"(?<!\\)\|")
_BACKTICKS = re.compile(r"`+")
_INLINE = re.compile(
    r"\[(?P<label>[^\[\]\n]{1,300})\]\((?P<href>[^()\s]{1,2000})\)"
    r"|(?P<bare>https?://[^\s<>\"'`\[\]{}]{1,2000}[^\s<>\"'`\[\]{}.,;:!?()])"
    r"|\*\*(?P<bold>[^\s*](?:[^*\n]{0,500}[^\s*])?)\*\*"
    r"|(?<![\w*])\*(?P<italic>[^\s*](?:[^*\n]{0,500}[^\s*])?)\*(?![\w*])"
)
_SAFE_LINK = re.compile(r"(?:https?://|mailto:)", re.IGNORECASE)
_IMAGE = re.compile(r"data:image/(?:png|jpe?g|gif|webp);base64,[A-Za-z0-9+/=\s]+")


def markdown_html(text: str) -> Markup:
    """Render Markdown: headings, lists, quotes, code, tables, emphasis, links. Everything else stays as it is."""
    lines, blocks = text.splitlines(), list[Markup]()
    position = 0
    while position < len(lines):
        line = lines[position]
        if fence := _FENCE.fullmatch(line):
            block, position = _code(lines, position, fence)
        elif heading := _HEADING.fullmatch(line):
            level = min(len(heading[1]) + 2, 6)
            block, position = (
                Markup("<h{0}>{1}</h{0}>").format(level, _inline(heading[2].rstrip(" ").rstrip("#").rstrip(" "))),
                position + 1,
            )
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
        blocks.append(block)
    return Markup("\n").join(blocks)


def diff_html(diff: str) -> Markup:
    """Render a unified diff, with a CSS class for each line."""
    lines: list[Markup] = []
    for line in diff.splitlines():
        is_header = line.startswith(("+++", "---", "Index:", "===", "diff "))
        kind = "head" if is_header else {"+": "add", "-": "del", "@": "hunk"}.get(line[:1], "same")
        lines.append(Markup('<span class="{}">{}</span>').format(kind, line))
    return Markup("\n").join(lines)


def image_url(url: str) -> str:
    """Return the URL if it is an embedded image of a safe type, else an empty string."""
    return url if _IMAGE.fullmatch(url) else ""


def _code(lines: list[str], start: int, fence: re.Match[str]) -> tuple[Markup, int]:
    mark, language = fence[1], fence[2].lower()
    end = start + 1
    while end < len(lines) and not lines[end].strip().startswith(mark):
        end += 1
    body = "\n".join(lines[start + 1 : end])
    inner = diff_html(body) if language in ("diff", "patch") else escape(body)
    return Markup('<pre class="code">{}</pre>').format(inner), end + 1


def _quote(lines: list[str], start: int) -> tuple[Markup, int]:
    end, inner = start, list[str]()
    while end < len(lines) and (line := _QUOTE.match(lines[end])):
        inner.append(line[1])
        end += 1
    # Nested quotes become one level: thousands of levels would exhaust the stack.
    text = Markup("<br>").join(_inline(line.lstrip("> ")) for line in inner)
    return Markup("<blockquote>{}</blockquote>").format(text), end


def _list(lines: list[str], start: int) -> tuple[Markup, int]:
    end, items = start, list[Markup]()
    numbered = bool((_ITEM.fullmatch(lines[start]) or [None, None])[1])
    while end < len(lines) and (item := _ITEM.fullmatch(lines[end])):
        depth = min((len(lines[end]) - len(lines[end].lstrip())) // 2, 4)
        value = Markup(' value="{}"').format(item[1]) if item[1] and numbered else Markup("")
        items.append(Markup('<li class="d{}"{}>{}</li>').format(depth, value, _inline(item[2])))
        end += 1
    template = Markup("<ol>{}</ol>") if numbered else Markup("<ul>{}</ul>")
    return template.format(Markup("").join(items)), end


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


def _row(line: str, sides: list[bool], template: Markup) -> Markup:
    """Render a table row, cut to the number of columns; ``sides`` says which are aligned right.

    A short row is not padded: many columns and many rows would make the output grow with their product.
    """
    cells = _cells(line)[: len(sides)]
    right = Markup(' class="number"')
    rendered = [template.format(right if side else "", _inline(cell)) for cell, side in zip(cells, sides, strict=False)]
    return Markup("<tr>{}</tr>").format(Markup("").join(rendered))


def _cells(line: str) -> list[str]:
    inner = line.strip().removeprefix("|")
    inner = inner[:-1] if inner.endswith("|") and not inner.endswith("\\|") else inner
    return [cell.strip().replace("\\|", "|") for cell in _CELL_END.split(inner)]


def _paragraph(lines: list[str], start: int) -> tuple[Markup, int]:
    end = start
    while end < len(lines) and lines[end].strip():
        begins_block = any(pattern.fullmatch(lines[end]) for pattern in (_FENCE, _HEADING, _RULE, _ITEM))
        if end > start and (begins_block or _QUOTE.match(lines[end]) or _begins_table(lines, end)):
            break
        end += 1
    if end == start:
        return Markup(""), start + 1
    return Markup("<p>{}</p>").format(Markup("<br>").join(_inline(line) for line in lines[start:end])), end


def _inline(text: str) -> Markup:
    pieces, position = list[Markup](), 0
    element = _INLINE.search(text)
    for start, code_start, code_end, end in [*_code_spans(text), (len(text),) * 4]:
        while element is not None and element.start() < start:
            if element.start() >= position:
                pieces += [escape(text[position : element.start()]), _element(element)]
                position = element.end()
            element = _INLINE.search(text, position)
        if position <= start < len(text):  # else the code is within a link or emphasis
            code = text[code_start:code_end]
            pieces += [escape(text[position:start]), Markup("<code>{}</code>").format(code.strip() or code)]
            position = end
    return Markup("").join([*pieces, escape(text[position:])])


def _code_spans(text: str) -> list[tuple[int, int, int, int]]:
    """Return where code begins and ends, with and without its backticks: each run of them is closed by the next run of
    the same length. Searching from the end finds that run without trying the others."""
    closing: dict[int, re.Match[str]] = {}
    spans: list[tuple[int, int, int, int]] = []
    for run in reversed(list(_BACKTICKS.finditer(text))):
        length = run.end() - run.start()
        if (close := closing.get(length)) is not None:
            spans.append((run.start(), run.end(), close.start(), close.end()))
        closing[length] = run
    spans.reverse()
    return spans


def _element(element: re.Match[str]) -> Markup:
    match element.lastgroup:
        case "href" if _SAFE_LINK.match(element["href"]):
            return _link(element["href"], element["label"])
        case "bare":
            return _link(element["bare"], element["bare"])
        case "bold":
            return Markup("<strong>{}</strong>").format(element["bold"])
        case "italic":
            return Markup("<em>{}</em>").format(element["italic"])
        case _:
            return escape(element[0])


def _link(href: str, label: str) -> Markup:
    return Markup('<a href="{}" rel="noreferrer nofollow">{}</a>').format(href, label)
