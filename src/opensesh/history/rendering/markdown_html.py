"""Markdown as safe HTML.

The parser never passes HTML through, and the rules below write a closed set of tags and attributes. Text that would
take long, or that the parser would cut, is shown as it is instead: see :func:`is_plain`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markupsafe import Markup

from .diff_html import diff_html
from .highlighting import highlighted
from .visible_text import HIDDEN, code, prose

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markdown_it.rules_core import StateCore
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token
    from markdown_it.utils import EnvType, OptionsDict

MAX_LENGTH = 256 << 10
_MAX_LINE_LENGTH = 20_000
_MAX_BRACKETS = 2_000
_MAX_BACKTICKS = 5_000
_MAX_COLUMNS = 100
_MAX_PADDING = 20_000
"""Empty cells that the parser may add to the short rows of tables."""
_MAX_NESTING = 15
_SAFE_LINK = re.compile(r"(?:https?://|mailto:)", re.IGNORECASE)
_RELATIVE_PATH = re.compile(r"(?!/?[/\\])[\w./@~%+-]+(?:[:#][\w.,:-]*)?")
_SCHEME = re.compile(r"(?<![a-zA-Z0-9])https?\Z")
_BARE_LINK = re.compile(rf"://[^\s<>\"'`\[\]{{}}{HIDDEN}]{{1,2000}}(?<![.,;:!?()*_~])")
_ADDRESS = re.compile(r"\s*(?:https?://)?([\w-]+(?:\.[\w-]+)+)(?=[/:?#\s]|\Z)", re.IGNORECASE)
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_BLANK_LINES = re.compile(r"\n[ \t]*(?:\n|\Z)")
_LINK = Markup('<a href="{}" target="_blank" rel="noopener noreferrer nofollow">')


def markdown_html(text: str) -> Markup:
    """Render Markdown: headings, lists, task lists, quotes, code, tables, emphasis, links."""
    return _rendered(_PARSER, text)


def typed_html(text: str) -> Markup:
    """Render what a user typed or pasted, such as a log: as it is but for fenced code, code in a line and links."""
    return _rendered(_TYPED_PARSER, text)


def _rendered(parser: MarkdownIt, text: str) -> Markup:
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if not is_plain(text):
        tokens = parser.parse(text, {})
        # The parser drops what is nested deeper than its limit, without a word.
        if max((token.level for token in tokens), default=0) < _MAX_NESTING:
            return Markup(parser.renderer.render(tokens, parser.options, {}))  # noqa: S704
    return Markup('<pre class="plain" tabindex="0">{}</pre>').format(code(text))


def is_plain(text: str) -> bool:
    """Whether a text is shown as it is, because to parse it as Markdown would take long or make a huge page."""
    if len(text) > MAX_LENGTH or text.count("[") > _MAX_BRACKETS or text.count("`") > _MAX_BACKTICKS:
        return True
    padding = 0
    for block in _BLANK_LINES.split(text):
        if len(block) > _MAX_LINE_LENGTH and max(map(len, block.split("\n"))) > _MAX_LINE_LENGTH:
            return True
        if "|" in block:
            bars = [line.count("|") for line in block.split("\n")]
            padding += max(bars) * len(bars) - sum(bars)
            if max(bars) > _MAX_COLUMNS or padding > _MAX_PADDING:
                return True
    return False


def fenced_html(text: str, language: str) -> Markup:
    """Render a code block with its language and a button to copy it."""
    is_diff = language.lower() in ("diff", "patch")
    content = diff_html(text) if is_diff else highlighted(text.removesuffix("\n"), language)
    template = Markup(
        '<figure class="code"><figcaption>{}<button class="copy">Copy</button></figcaption>'
        '<pre{} tabindex="0"><code>{}</code></pre></figure>\n'
    )
    return template.format(prose(language[:40]), Markup(' class="diff"') if is_diff else "", content)


class _TranscriptRenderer(RendererHTML):
    """The tags and attributes of rendered Markdown. Methods are named after the tokens that they render."""

    def text(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return prose(tokens[idx].content)

    def code_inline(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return Markup("<code>{}</code>").format(code(tokens[idx].content))

    def code_block(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return fenced_html(tokens[idx].content, "")

    def fence(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        words = tokens[idx].info.split(maxsplit=1)
        return fenced_html(tokens[idx].content, words[0] if words else "")

    def image(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """A link instead of a picture: a page makes no request for the content of a session."""
        href = str(tokens[idx].attrs.get("src", ""))
        label = prose(self.renderInlineAsText(tokens[idx].children, options, env) or href)
        opening = _link(href)
        return (
            Markup("{}{}</a>").format(opening, label)
            if opening
            else Markup('<span class="path">{}</span>').format(label)
        )

    def link_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return _link(str(tokens[idx].attrs.get("href", ""))) or Markup('<span class="path">')

    def link_close(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        start = idx - 1
        while tokens[start].type != "link_open":  # links contain no links
            start -= 1
        href = str(tokens[start].attrs.get("href", ""))
        label = self.renderInlineAsText(tokens[start + 1 : idx], options, env)
        if not _link(href):
            return Markup("</span>") + (Markup(" <code>{}</code>").format(code(href)) if label != href else "")
        host = urlsplit(href).hostname or href.partition(":")[2].partition("?")[0]
        claimed = _ADDRESS.match(label)
        is_other = claimed is not None and claimed[1].lower() not in (host.lower(), f"www.{host.lower()}")
        return Markup("</a>") + (Markup(' <span class="host">({})</span>').format(code(host)) if is_other else "")

    def heading_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """Below the headings of the page: the title and the turns."""
        return f"<h{_heading_level(tokens[idx])}>"

    def heading_close(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return f"</h{_heading_level(tokens[idx])}>\n"

    def list_item_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        checked = tokens[idx].meta.get("checked")
        if checked is None:
            return "<li>"
        label, sign = ("done", "☑") if checked else ("open", "☐")
        return f'<li class="task"><span role="img" aria-label="{label}">{sign}</span> '

    def table_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return '<div class="wide" tabindex="0" role="group" aria-label="table"><table>\n'

    def table_close(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return "</table></div>\n"

    def td_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        style = str(tokens[idx].attrs.get("style", ""))  # the policy of the pages forbids styles in attributes
        side = style.removeprefix("text-align:")
        return f'<{tokens[idx].tag} class="{side}">' if side in ("right", "center") else f"<{tokens[idx].tag}>"

    th_open = td_open


def _heading_level(token: Token) -> int:
    return min(int(token.tag[1:]) + 2, 6)


def _link(href: str) -> Markup | None:
    return _LINK.format(href) if _SAFE_LINK.match(href) else None


def _is_shown_as_link(url: str) -> bool:
    """Whether ``[label](url)`` is more than text: an address to open, or a path in the project to show."""
    return bool(_SAFE_LINK.match(url) or _RELATIVE_PATH.fullmatch(url))


def _bare_link(state: StateInline, silent: bool) -> bool:
    """Make a link of an address that stands in the text; called at its colon."""
    if silent or state.linkLevel or state.src[state.pos] != ":":
        return False
    scheme = _SCHEME.search(state.pending[-6:])
    address = _BARE_LINK.match(state.src, state.pos, state.posMax)
    if scheme is None or address is None:
        return False
    href = state.md.normalizeLink(scheme[0] + address[0])
    state.pending = state.pending[: -len(scheme[0])]
    state.push("link_open", "a", 1).attrs = {"href": href}
    state.push("text", "", 0).content = scheme[0] + address[0]
    state.push("link_close", "a", -1)
    state.pos = address.end()
    return True


def _unpad_rows(state: StateCore) -> None:
    """Remove the empty cells at the end of rows: the output would grow with the product of rows and columns."""
    tokens: list[Token] = []
    for token in state.tokens:
        if token.type == "tr_close":
            while len(tokens) > 3 and tokens[-1].type == "td_close" and not tokens[-2].content:
                del tokens[-3:]
        tokens.append(token)
    state.tokens = tokens


def _find_direction(state: StateCore) -> None:
    """Let the browser find the direction of each block of a text with letters that are written from right to left."""
    if _RIGHT_TO_LEFT.search(state.src):
        for token in state.tokens:
            if token.level == 0 and token.nesting == 1:
                token.attrSet("dir", "auto")


def _make_parser(preset: str, *rules: str) -> MarkdownIt:
    options: dict[str, Any] = {"html": False, "breaks": True, "xhtmlOut": False, "maxNesting": 20, "tasklists": True}
    parser = MarkdownIt(preset, options, renderer_cls=_TranscriptRenderer)
    parser.enable(rules)
    parser.validateLink = _is_shown_as_link
    parser.inline.ruler.before("escape", "bare_link", _bare_link)
    parser.core.ruler.after("block", "unpad_rows", _unpad_rows)
    parser.core.ruler.after("block", "find_direction", _find_direction)
    return parser


_PARSER = _make_parser("commonmark", "table", "strikethrough")
_TYPED_PARSER = _make_parser("zero", "fence", "backticks")
