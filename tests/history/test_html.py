from __future__ import annotations

import base64
import re
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opensesh.history.formats import FormatOptions
from opensesh.history.import_export.destinations import to_folder, to_stream
from opensesh.history.import_export.exporting import Export, Selection
from opensesh.history.rendering.diff_html import diff_html
from opensesh.history.rendering.markdown_html import markdown_html
from opensesh.history.rendering.pictures import picture_url
from opensesh.storage.json_tree.store import JsonTree

from .sample_tree import Json, Sample

FIXTURES = Path(__file__).parents[1] / "fixtures"
HOSTILE = (
    "<script>document.title='PWNED'</script>",
    "</script><script>document.title='PWNED'</script>",
    "<img src=x onerror=\"document.title='PWNED'\">",
    '" onmouseover="document.title=\'PWNED\'" x="',
    "' autofocus onfocus='document.title=1",
    "</title></head><body onload=\"document.title='PWNED'\">",
    "[click](javascript:document.title='PWNED')",
    "[click](JaVaScRiPt&colon;alert(1))",
    "[click](data:text/html,<script>1</script>)",
    "<javascript:alert(1)>",
    "https://example.com/\"onmouseover=\"document.title='PWNED'",
    "```html\n<script>document.title='PWNED'</script>\n```",
    "`<script>document.title='PWNED'</script>`",
    "**<svg onload=document.title='PWNED'>**",
    "# <iframe srcdoc=\"<script>parent.document.title='PWNED'</script>\">",
    "- <style>@import 'https://example.com/x.css'</style>",
    "> <link rel=stylesheet href=https://example.com/x.css>",
    "{{ 7 * 7 }} {% raw %} {# x #}",
    "<!-- --><script>document.title='PWNED'</script>",
    "<base href=https://example.com/><form action=https://example.com/>",
    "]]><![CDATA[<script>1</script>",
    "\u202e<script>\u2028document.title='PWNED'</script>",
)
ATTRIBUTES = {
    "meta": {"charset", "http-equiv", "content", "name"},
    "html": {"lang"},
    "a": {"href", "rel", "target"},
    "article": {"id", "aria-label", "data-find"},
    "nav": {"aria-label"},
    "time": {"datetime", "title"},
    "details": {"id", "data-status", "open"},
    "div": {"id", "tabindex", "role", "aria-label"},
    "pre": {"tabindex"},
    "span": {"data-n", "role", "aria-label"},
    "input": {"id", "type", "placeholder", "aria-label"},
    "button": {"id", "type", "aria-pressed"},
    "output": {"id"},
    "img": {"src", "alt", "loading"},
    "ol": {"start"},
    "tr": {"data-find"},
}
TAGS = set(
    "p h3 h4 h5 h6 hr ul ol li blockquote pre code strong em i s a br span div table thead tbody tr th td figure "
    "figcaption button".split()
)
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 20).decode()


class Reader(HTMLParser):
    """Notes what a page is made of, and complains of what it should not be made of."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.scripts = 0
        self.text = ""
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.scripts += tag == "script"
        assert tag not in ("iframe", "object", "embed", "base", "form", "link", "svg"), tag
        allowed = ATTRIBUTES.get(tag, set()) | {"class", "dir"}
        assert {name for name, _ in attrs} <= allowed, (tag, attrs)
        for name, value in attrs:
            if name == "href":
                self.links.append(value or "")
            if name == "src":
                assert (value or "").startswith("data:image/png;base64,")

    def handle_data(self, data: str) -> None:
        self.text += data


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.scripts == 1
    assert page.count("<script") == 1
    for link in reader.links:
        assert re.match(r"https?://|mailto:|#t-msg_|ses_[A-Za-z0-9]+\.html", link), link
    return reader


def hostile_session(sample: Sample, words: str) -> Json:
    session = sample.session(words, directory=f"/srv/{words}")
    prompt = sample.prompt(session, words)
    sample.part(prompt, type="file", mime=words, filename=words, url=f"data:image/png;base64,{words}")
    sample.part(prompt, type="file", mime="image/svg+xml", filename=words, url="data:image/svg+xml,<svg onload=1>")
    sample.part(prompt, type="subtask", agent=words, description=words, prompt=words)
    answer = sample.answer(
        session, words, agent=words, modelID=words, error={"name": words, "data": {"message": words}}
    )
    sample.part(answer, type="reasoning", text=words, time={"start": 1})
    metadata = {"diff": f"--- a\n+++ b\n@@ -1 +1 @@\n-{words}\n+{words}"}
    sample.tool(answer, words, output=words, input={words: words, "command": words}, metadata=metadata)
    sample.tool(answer, words, "error", error=words)
    child = sample.session(words, parent=session["id"])
    sample.answer(child, words)
    return session


def page_of(sample: Sample, session: Json) -> str:
    stream = BytesIO()
    selection = Selection(ids=(session["id"],), children=True)
    to_stream(Export(JsonTree(sample.root), selection, "html"), stream, lambda done, total: None)
    return stream.getvalue().decode()


def visible(text: str) -> str:
    return "".join(text.split())


@pytest.mark.parametrize("words", HOSTILE)
def test_nothing_a_session_says_becomes_part_of_the_page(sample: Sample, words: str) -> None:
    reader = read(page_of(sample, hostile_session(sample, words)))
    assert visible(words.splitlines()[0]) in visible(reader.text)


@given(st.text(max_size=200))
def test_rendered_markdown_contains_only_text_and_known_tags(text: str) -> None:
    for made in (str(markdown_html(text)), str(diff_html(text))):
        reader = Reader()
        reader.feed(made)
        reader.close()
        assert set(reader.tags) <= TAGS


def test_the_markdown_that_models_write_is_rendered() -> None:
    made = str(
        markdown_html(
            "# Head\n\nSome **bold** and `x < y`.\n\n- one\n- two\n\n1. a\n2. b\n\n> quoted\n\n```py\nif a < b:\n```"
        )
    )
    for part in (
        "<h3>Head</h3>",
        "<p>Some <strong>bold</strong> and <code>x &lt; y</code>.</p>",
        "<ul>\n<li>one</li>\n<li>two</li>\n</ul>",
        "<ol>\n<li>a</li>",
        "<blockquote>\n<p>quoted</p>\n</blockquote>",
        '<pre tabindex="0"><code><span class="kw">if</span> a &lt; b:</code></pre>',
    ):
        assert part in made
    address = "https://example.com/a?b=1&amp;c=2"
    link = f'<a href="{address}" target="_blank" rel="noopener noreferrer nofollow">{address}</a>.'
    assert link in str(markdown_html("see https://example.com/a?b=1&c=2."))
    assert "<a" not in str(markdown_html("[x](javascript:alert(1)) [y](//example.com) [z](file:///etc/passwd)"))


def test_a_table_is_a_table_and_only_then() -> None:
    made = str(markdown_html("So:\n\n| a | b |\n|---|--:|\n| **x** | 1 \\| 2 |\n| y\n\nafter")).replace("\n", "")
    assert "<p>So:</p>" in made
    assert '<tr><th>a</th><th class="right">b</th></tr>' in made
    assert '<tr><td><strong>x</strong></td><td class="right">1 | 2</td></tr>' in made
    assert "<tr><td>y</td></tr>" in made
    assert "<p>after</p>" in made
    assert "<table" not in str(markdown_html("a | b\nc | d\n\n| a |"))


def test_a_diff_is_coloured_line_by_line() -> None:
    made = str(diff_html("--- a\n+++ b\n@@ -1 +1 @@\n-old <b>\n+new\n same\n--- c\n+++ d"))
    assert '<span class="del" data-n="    1      ">-old &lt;b&gt;</span>' in made
    assert '<span class="add" data-n="          1">+new</span>' in made
    assert made.count('class="head"') == 4


def test_long_lines_of_markup_take_no_time() -> None:
    for text in (
        "*" * 20_000,
        "`" * 20_000,
        "[" * 20_000,
        "> " * 20_000,
        "**a" * 8_000,
        "[a](" * 8_000,
        "- " * 9_000,
        "|-" * 9_000,
    ):
        markdown_html(text)


ELSEWHERE = (
    "https://example.com/x.png",
    "data:image/svg+xml;base64,PHN2Zz4=",
    "data:image/png;base64,PHN2ZyBvbmxvYWQ9MT4=",
    "data:text/html,x",
    'data:image/png;base64,A"B',
)


@pytest.mark.parametrize("url", ELSEWHERE)
def test_only_pictures_that_are_in_the_session_are_shown(url: str) -> None:
    assert picture_url(url) == ""


def test_a_picture_has_the_type_of_its_first_bytes() -> None:
    assert picture_url(f"data:text/html;base64,{PNG}") == f"data:image/png;base64,{PNG}"


def test_a_page_forbids_everything_it_does_not_bring(sample: Sample) -> None:
    page = page_of(sample, sample.talk("quiet"))
    [policy] = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy.startswith("default-src &#39;none&#39;")
    assert "unsafe-inline&#39;; script-src &#39;sha256-" in policy
    assert "https://" not in re.sub(r"<pre.*?</pre>", "", page)


def test_tool_calls_are_folded_and_subagents_nested(sample: Sample) -> None:
    tree = JsonTree(FIXTURES / "opencode-1.1.65" / "storage")
    stream = BytesIO()
    selection = Selection(ids=("ses_e1f50577fffejV6VGQt622W6kl",), children=True)
    to_stream(Export(tree, selection, "html"), stream, lambda done, total: None)
    page = stream.getvalue().decode()
    assert '<summary><span class="tool">task</span> <span class="subject">sub thing' in page
    assert "<summary>Subagent: sub thing (@general subagent)</summary>" in page
    assert page.index("from the child", page.index("Subagent:")) < page.index("parent done", page.index("Subagent:"))


def test_an_index_leads_to_every_page(sample: Sample, tmp_path: Path) -> None:
    sessions = [sample.talk(f"<b>number {number}</b>") for number in range(3)]
    to_folder(Export(JsonTree(sample.root), Selection(), "html"), str(tmp_path / "out"), lambda done, total: None)
    reader = read((tmp_path / "out" / "index.html").read_text())
    assert reader.links == [f"{session['id']}.html" for session in reversed(sessions)]
    assert all((tmp_path / "out" / link).exists() for link in reader.links)
    assert "<b>number 2</b>" in reader.text
    assert "Question 0" in reader.text


def test_a_page_among_others_leads_back_to_the_index(sample: Sample, tmp_path: Path) -> None:
    session = sample.talk()
    back = '<a class="meta" href="index.html">All sessions</a>'
    assert back not in page_of(sample, session)
    export = Export(JsonTree(sample.root), Selection(), "html", FormatOptions(indexed=True))
    to_folder(export, str(tmp_path / "out"), lambda done, total: None)
    assert back in (tmp_path / "out" / f"{session['id']}.html").read_text()


def test_the_index_shortens_a_long_prompt(sample: Sample, tmp_path: Path) -> None:
    for words in ("every word " * 30, "错误" * 200, "short"):
        sample.prompt(sample.session(), words)
    to_folder(Export(JsonTree(sample.root), Selection(), "html"), str(tmp_path / "out"), lambda done, total: None)
    page = (tmp_path / "out" / "index.html").read_text()
    for shown in ("every word " * 17 + "every word…", "错误" * 100 + "…", "short"):
        assert f'<span class="meta">{shown}</span>' in page
