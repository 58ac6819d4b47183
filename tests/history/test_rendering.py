from __future__ import annotations

import re
import time
from html.parser import HTMLParser
from typing import Any

import nh3
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from opensesh.history.formatting import format_duration, strip_colors
from opensesh.history.rendering.diff_html import count_changes, diff_html, split_diff_html
from opensesh.history.rendering.highlighting import LANGUAGES, highlighted, language_of_path
from opensesh.history.rendering.markdown_html import is_plain, markdown_html, typed_html
from opensesh.history.rendering.pictures import picture_type
from opensesh.history.rendering.turns import (
    RenderOptions,
    render_body,
    render_part,
    render_turn,
)
from opensesh.history.rendering.visible_text import code
from opensesh.storage.protocol import StoredMessage

from .hostile_content import HOSTILE_TEXTS, LONG_TEXTS, hostile_message

PAGE = RenderOptions(address="/ui/session/ses_1")
EXPORT = RenderOptions(show=frozenset(("reasoning", "outputs", "marks")))
TAGS = set(
    "article header h2 h3 h4 h5 h6 bdi span a time button div p details summary pre code figure figcaption table "
    "thead tbody tr th td ul ol li blockquote strong em i s br hr img".split()
)
COMMON = {"class", "id", "aria-label", "tabindex", "role", "dir"}
ATTRIBUTES = {
    "a": COMMON | {"href", "rel", "target", "download"},
    "article": COMMON | {"data-find"},
    "button": COMMON | {"type", "aria-haspopup"},
    "details": COMMON | {"open", "data-status"},
    "img": {"src", "alt", "loading"},
    "ol": {"start", "dir"},
    "span": COMMON | {"data-n"},
    "time": {"datetime", "title"},
}


class Elements(HTMLParser):
    """The elements, attributes and texts of a fragment, as a list."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[Any] = []
        self.text = ""
        self.addresses: list[str] = []
        self.feed(str(html))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, sorted((name, value or "") for name, value in attrs)))
        self.addresses += [value or "" for name, value in attrs if name in ("href", "src")]

    def handle_endtag(self, tag: str) -> None:
        self.found.append(f"/{tag}")

    def handle_data(self, data: str) -> None:
        self.text += data


def check(html: Markup) -> Elements:
    """Compare a fragment with what a sanitiser leaves of it: everything."""
    made = html.encode(errors="replace").decode()
    attributes = {tag: ATTRIBUTES.get(tag, COMMON) for tag in TAGS}
    cleaned = nh3.clean(
        made,
        tags=TAGS,
        attributes=attributes,
        url_schemes={"http", "https", "mailto", "data"},
        link_rel=None,
        strip_comments=False,
    )
    elements = Elements(made)
    assert Elements(cleaned).found == elements.found
    for address in elements.addresses:
        assert re.match(r"https?://|mailto:|#|/ui/session/ses_1|data:image/(png|jpeg|gif|webp);base64,", address), (
            address
        )
    return elements


def squeezed(text: str) -> str:
    return "".join(text.split())


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
@pytest.mark.parametrize("options", [PAGE, EXPORT], ids=["page", "export"])
def test_hostile_content_is_text_and_nothing_else(text: str, options: RenderOptions) -> None:
    for role in ("user", "assistant"):
        message = hostile_message(text, role)
        check(render_turn(message, options))
        for part in message.parts:
            check(render_body(part, options))
            check(render_part(part, options))


@pytest.mark.parametrize("text", HOSTILE_TEXTS[:9])
def test_what_a_tool_was_given_and_returned_is_readable_to_the_letter(text: str) -> None:
    _, _, call, *_ = hostile_message(text).parts
    shown = check(render_body(call, EXPORT)).text
    assert squeezed(shown).count(squeezed(text)) >= 2


@given(st.text(max_size=300))
def test_any_text_is_rendered_with_the_known_elements(text: str) -> None:
    check(markdown_html(text))
    check(typed_html(text))
    check(Markup("<pre>{}</pre>").format(diff_html(text)))


@pytest.mark.parametrize("text", LONG_TEXTS, ids=lambda text: f"{text[:6]!r}x{len(text)}")
def test_long_hostile_content_takes_time_in_proportion_and_makes_a_small_page(text: str) -> None:
    def seconds(content: str) -> float:
        start = time.process_time()
        page = render_turn(hostile_message(content), PAGE)
        assert len(page) < 60 * len(content) + 200_000
        return time.process_time() - start

    half = min(seconds(text[: len(text) // 2]) for _ in range(2))
    whole = seconds(text)
    assert whole < max(1.0, 4 * half)


def test_a_page_holds_only_the_beginning_of_a_text_that_is_shown_as_it_is() -> None:
    part = {"id": "prt_1", "type": "text", "text": "a" * 5_000_000}
    page = render_part(part, PAGE)
    assert len(page) < 50_000
    assert '<a class="load all" href="/ui/session/ses_1/parts/prt_1?lines=all">show all 1 line</a>' in page
    assert len(render_body(part, PAGE, whole=True)) > 5_000_000
    assert len(render_part(part, EXPORT)) > 5_000_000


def test_invisible_characters_are_visible() -> None:
    state = {"status": "completed", "input": {"command": "ls \u202e\u200d; rm"}, "output": "\x00a\u200bb\ud800"}
    call = {"id": "prt_1", "type": "tool", "tool": "bash", "state": state}
    for shown in (render_part(call, PAGE), render_body(call, PAGE)):
        assert "\u202e" not in shown
        assert 'U+202E</i><i class="unseen">U+200D</i>; rm' in shown
    assert "U+0000</i>a" in render_body(call, PAGE)
    assert "U+D800" in render_body(call, PAGE)
    assert markdown_html("👩\u200d💻 \u202ex") == '<p>👩\u200d💻 <i class="unseen">U+202E</i>x</p>\n'


def test_output_for_a_terminal_loses_its_sequences_and_keeps_its_text() -> None:
    output = (
        "\x1b[1;31mFAIL\x1b[0m\x1b[2K\x1b[1A \x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\ \x1b]0;title\x07\x1b(B\x1b7end"
    )
    assert strip_colors(output) == "FAIL link end"


def test_lists_nest_under_numbers_and_code_may_be_bold() -> None:
    made = squeezed(markdown_html("1. one\n   - a\n   - b\n\n     ```py\n     x = 1\n     ```\n2. two **`bold`**"))
    assert made.startswith("<ol><li>one<ul><li><p>a</p></li><li><p>b</p><figure")
    assert "<strong><code>bold</code></strong>" in made


def test_task_lists_show_what_is_done() -> None:
    made = markdown_html("- [x] dig\n- [ ] fill")
    assert '<li class="task"><span role="img" aria-label="done">☑</span> dig</li>' in made
    assert 'aria-label="open">☐</span> fill' in made


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("[https://bank.example](https://evil.example/x)", "evil.example"),
        ("[bank.example](https://evil.example)", "evil.example"),
        ("[see here](https://evil.example)", ""),
        ("[bank.example/a](https://bank.example/a)", ""),
        ("https://bank.example/a", ""),
        ("[bank.example](mailto:a@evil.example)", "a@evil.example"),
    ],
)
def test_a_link_that_looks_like_another_address_shows_the_real_one(text: str, host: str) -> None:
    made = markdown_html(text)
    assert re.findall(r'<span class="host">\(([^)]*)\)</span>', made) == ([host] if host else [])


def test_addresses_in_the_text_become_links_and_end_before_punctuation() -> None:
    made = markdown_html("**https://a.example/x_y**, (see http://b.example/c). nothttp://d.example `http://e.example`")
    assert Elements(made).addresses == ["https://a.example/x_y", "http://b.example/c"]


def test_a_picture_becomes_a_link_and_a_path_stays_a_path() -> None:
    made = markdown_html("![plan](https://a.example/p.png) [parser](src/parser.py:12)")
    assert "<img" not in made
    assert Elements(made).addresses == ["https://a.example/p.png"]
    assert '<span class="path">parser</span> <code>src/parser.py:12</code>' in made


def test_what_is_nested_deeper_than_the_parser_reads_is_shown_as_it_is() -> None:
    deep = "> " * 18 + "bottom"
    assert "bottom" in markdown_html(deep)
    assert markdown_html(deep).startswith('<pre class="plain"')
    assert not is_plain("> " * 5 + "text")


def test_code_is_marked_with_six_classes_and_loses_no_character() -> None:
    source = '\n\tdef f(x: int) -> None:  # why\n    return "a<b" + 1\n\n'
    made = highlighted(source, "python")
    assert Elements(made).text == source
    classes = {"kw", "str", "com", "num", "name", "type"}
    assert set(re.findall(r'class="(\w+)"', made)) <= classes
    assert '<span class="com"># why</span>' in made
    assert highlighted("x = 1", "no-such-language") == "x = 1"
    assert "<span" not in highlighted("x = 1\n" * 300, "python")
    assert language_of_path("/src/a.test.TSX") == "tsx"
    assert language_of_path("/src/Makefile") == "makefile"
    assert language_of_path("notes") == ""


@pytest.mark.parametrize("name", sorted(set(LANGUAGES.values())))
def test_every_known_language_has_a_lexer_that_keeps_the_text(name: str) -> None:
    source = "#!/x\n{ \"a\": [1, 'b'] } <c> // d\n/* e */ fn f() { return; }\n"
    assert Elements(highlighted(source, name)).text == source


def test_a_diff_has_its_old_and_new_lines_side_by_side() -> None:
    made = split_diff_html("--- a\n+++ a\n@@ -4,3 +4,4 @@\n <i>\n-return None\n+return []\n+more\n\n")
    rows = re.findall("<tr>(.*?)</tr>", made)
    same = '<td class="n">4</td><td class="same">&lt;i&gt;</td>'
    assert rows == [
        '<td class="hunk" colspan="4">@@ -4,3 +4,4 @@</td>',
        same + same,
        '<td class="n">5</td><td class="del">return <span class="word">None</span></td>'
        '<td class="n">5</td><td class="add">return <span class="word">[]</span></td>',
        '<td class="n"></td><td></td><td class="n">6</td><td class="add">more</td>',
    ]
    assert "<b" not in split_diff_html("@@ -1 +1 @@\n<b onclick=x>\n-<b>\n+<b>")


def test_a_diff_has_line_numbers_and_marks_the_words_that_differ() -> None:
    head = "Index: a\n===\n--- a\n+++ a\n@@ -9,4 +9,3 @@\n"
    diff = f"{head} same\n-- old\n-return None\n same\n+return []\n\\ No newline at end of file\n"
    made = diff_html(diff)
    assert '<span class="same" data-n="    9     9"> same</span>' in made
    assert '<span class="del" data-n="   10      ">-- old</span>' in made
    assert '<span class="add" data-n="         11">+return []</span>' in made
    assert '-return <span class="word">None</span>' in diff_html("@@ -1 +1 @@\n-return None\n+return []")
    assert '+return <span class="word">[]</span>' in diff_html("@@ -1 +1 @@\n-return None\n+return []")
    assert 'class="word"' not in diff_html("-one two three\n+quite another sentence here")
    assert "Index:" not in made  # the file is named elsewhere
    assert count_changes(diff) == (1, 2)
    assert count_changes("@@ -1,2 +1,1 @@\n--- x\n-y\n+++ z") == (1, 2)


@pytest.mark.parametrize("end", ["", "\n "])
def test_the_edits_of_one_file_do_not_name_it_again(end: str) -> None:
    names = "Index: a.py\n===\n--- a.py\told\n+++ a.py\tnew\n"
    edits = f"{names}@@ -1,2 +1,2 @@\n-one\n+two{end}\n{names}@@ -8,1 +8,1 @@\n---- three\n+four"
    for made in (Elements(diff_html(edits)).text, Elements(split_diff_html(edits)).text):
        assert "a.py" not in made
        assert "===" not in made
        assert "--- three" in made
    assert count_changes(edits) == (2, 2)
    assert "+++ b.py" in diff_html(f"{edits}\n{names.replace('a.py', 'b.py')}@@ -1,1 +1,1 @@\n-x\n+y")


def call(number: int, tool: str = "read", **state: Any) -> dict[str, Any]:
    fields = {"status": "completed", "input": {"filePath": f"/a{number}"}, "output": "x\ny\n", **state}
    return {"id": f"prt_{number}", "type": "tool", "tool": tool, "state": fields}


def answer(*parts: dict[str, Any], **info: Any) -> StoredMessage:
    fields = {"id": "msg_1", "role": "assistant", "time": {"created": 1_000}, "agent": "build", "modelID": "m", **info}
    return StoredMessage(fields, list(parts))


def test_a_call_is_one_line_with_its_outcome_at_the_end() -> None:
    diff = "@@ -1 +1,2 @@\n-a\n+b\n+c"
    made = render_part(call(1, "edit", metadata={"diff": diff}, time={"start": 1_000, "end": 1_040}), PAGE)
    assert Elements(made).text.split() == ["edit", "/a1", "+2", "\N{MINUS SIGN}1", "·", "40", "ms", "Show"]
    assert '<a class="load" href="/ui/session/ses_1/parts/prt_1">' in made
    failed = render_part(call(2, "bash", metadata={"exit": 1}), PAGE)
    assert '<span class="bad">exit 1</span>' in failed
    assert "bad" not in render_part(call(2, "bash", metadata={"exit": 0}), PAGE)
    assert 'data-status="running"' in render_part(call(3, "bash", status="running"), PAGE)


@pytest.mark.parametrize(
    ("output", "lines"),
    [
        (
            "<path>/a1</path>\n<type>file</type>\n<content>1: a\n2: 3: b\n\n(End of file - total 2 lines)\n</content>",
            "2 lines",
        ),
        ("<file>\n00001| a\n\n(End of file - total 1 lines)\n</file>", "1 line"),
        ("<path>/a</path>\n<type>directory</type>\n<entries>\nb.py\n\n(1 entries)\n</entries>", ""),
        ("Image read successfully", ""),
    ],
)
def test_a_file_that_was_read_has_the_number_of_its_lines(output: str, lines: str) -> None:
    assert Elements(render_part(call(1, output=output), PAGE)).text.split() == ["read", "/a1", *lines.split(), "Show"]


@pytest.mark.parametrize(
    ("error", "word"),
    [
        ("The user dismissed this question", "skipped"),
        ("Error: the user dismissed the question", "skipped"),
        ("The user rejected permission to use this specific tool call.", "denied"),
        ("Error: The user refused this use of bash with this message: not now", "denied"),
        ("Error: bash was not allowed for a\nb: the user refused it", "denied"),
        ("Tool execution aborted", "stopped"),
    ],
)
def test_what_the_user_ended_is_not_shown_as_a_failure(error: str, word: str) -> None:
    part = call(1, "question", status="error", error=error)
    assert Elements(render_part(part, PAGE)).text.split() == ["question", "/a1", word, "Show"]
    assert "bad" not in render_part(part, PAGE)
    assert "failure" not in render_body(part, PAGE)
    assert f'<div class="label">{word}</div>' in render_body(part, PAGE)


def test_an_error_that_only_mentions_the_user_is_a_failure() -> None:
    for error in ("Error: no such file: The user dismissed this question", "bash was not allowed for x: a rule"):
        part = call(1, "bash", status="error", error=error)
        assert '<span class="bad">failed</span>' in render_part(part, PAGE)
        assert '<pre class="failure"' in render_body(part, PAGE)


def test_a_stopped_answer_is_not_shown_as_a_failure() -> None:
    stopped = answer(error={"name": "MessageAbortedError", "data": {"message": "The user stopped this"}})
    assert '<p class="stopped">The user stopped this</p>' in render_turn(stopped, PAGE)
    failed = answer(error={"name": "APIError", "data": {"message": "overloaded", "isRetryable": True}})
    assert '<p class="failure">overloaded</p>' in render_turn(failed, PAGE)


def test_three_lookups_in_a_row_are_one_line() -> None:
    parts = [call(1), call(2), call(3), call(4, "grep"), call(5, "bash"), call(6), call(7)]
    made = render_turn(answer(*parts), PAGE)
    assert made.count('class="part group"') == 1
    assert "read 3 files, 1 search" in made
    assert made.count('class="part call"') == 7


def test_an_output_is_cut_until_all_of_it_is_asked_for() -> None:
    part = call(1, "bash", input={"command": "seq 1000"}, output="\n".join(map(str, range(1_000))))
    cut = render_body(part, PAGE)
    assert "199\n" in cut.replace("</pre>", "\n")
    assert "200\n" not in cut.replace("</pre>", "\n")
    assert "show all 1,000 lines" in cut
    assert "999" in render_body(part, PAGE, whole=True)


def test_a_prompt_is_shown_as_it_was_typed_with_its_code() -> None:
    log = "# not a title\n    indented  words\nTotal\n-----\n * item **x** \\* `code` [l](javascript:x)"
    rendered = typed_html(f"{log}\n```python\nx\n```\nsee https://example.org/a_b.")
    paragraph, _, rest = rendered.partition("</p>")
    assert paragraph == Markup("<p>") + code(log).replace("`code`", Markup("<code>code</code>"))
    assert '<figcaption>python<button class="copy">' in rest
    assert '<a href="https://example.org/a_b"' in rest
    text = "x\n---\n*y*"
    typed = {"id": "prt_1", "type": "text", "text": text}
    for role, expected in (("user", text), ("assistant", "<h4>x</h4>")):
        message = StoredMessage({"id": "msg_1", "role": role, "time": {"created": 1}}, [typed])
        assert expected in render_turn(message)


def test_a_new_day_a_further_step_and_an_empty_answer_are_marked() -> None:
    first = answer({"id": "prt_1", "type": "text", "text": "x"})
    later = answer({"id": "prt_1", "type": "text", "text": "x"}, time={"created": 90_000_000})
    options = PAGE._replace(utc=True)
    assert '<time datetime="1970-01-02">' in render_turn(later, options, previous=first)
    assert 'class="turn answer step"' in render_turn(first, options, previous=first)
    assert 'class="turn answer"' in render_turn(first, options)
    export = EXPORT._replace(utc=True)
    assert ">1970-01-01 00:00</time>" in render_turn(first, export)
    assert ">00:00</time>" in render_turn(first, export, previous=first), "it must fit beside the outcome of a call"
    assert 'class="turn answer blank"' in render_turn(answer(time={"created": 1, "completed": 2}))
    assert 'class="turn answer"' in render_turn(answer())


def test_reasoning_is_loaded_on_demand_and_can_be_shown_at_once() -> None:
    part = {"id": "prt_1", "type": "reasoning", "text": "secret plan", "time": {"start": 1, "end": 4_001}}
    folded = render_part(part, PAGE)
    assert "Thought for 4.0 s" in folded
    assert "secret plan" not in folded
    assert "secret plan" in render_body(part, PAGE)
    assert "secret plan" in render_part(part, PAGE._replace(show=frozenset(("reasoning",))))
    assert render_turn(answer(part), EXPORT._replace(reasoning=False)).count("thought") == 0


def test_durations_are_written_for_people() -> None:
    spans = {40: "40 ms", 3_100: "3.1 s", 125_000: "2 min 5 s", 4_800_000: "1 h 20 min"}
    assert {span: format_duration(span) for span in spans} == spans


def test_pictures_are_known_by_their_first_bytes() -> None:
    assert picture_type(b"\x89PNG\r\n\x1a\nxx") == "image/png"
    assert picture_type(b"\xff\xd8\xff\xe0") == "image/jpeg"
    assert picture_type(b"GIF89a") == "image/gif"
    assert picture_type(b"RIFF\0\n\0\0WEBPVP8 ") == "image/webp"
    assert picture_type(b"<svg xmlns") == picture_type(b"") == picture_type(b"%PDF") == ""


def test_blocks_of_a_text_from_right_to_left_find_their_direction() -> None:
    assert markdown_html("שלום\n\n- אחד") == '<p dir="auto">שלום</p>\n<ul dir="auto">\n<li>אחד</li>\n</ul>\n'
    assert markdown_html("hello") == "<p>hello</p>\n"


def test_paths_below_the_folder_of_the_session_are_shown_without_it() -> None:
    def shown(**arguments: str) -> str:
        state = {"status": "completed", "input": arguments, "output": "", "time": {"start": 1, "end": 2}}
        part = {"id": "prt_1", "type": "tool", "tool": "any", "state": state}
        found = re.search(r'class="subject">(.*?)</span>', render_part(part, RenderOptions("/", directory="/srv/shop")))
        assert found is not None
        return found[1]

    assert shown(filePath="/srv/shop/src/a.py") == "src/a.py"
    assert shown(filePath="/srv/shopping/a.py") == "/srv/shopping/a.py"
    assert shown(command="ls /srv/shop/src") == "ls /srv/shop/src"
    assert shown(pattern="retry(", path="/srv/shop") == "retry("
    assert shown(pattern="retry(", path="/srv/shop/src") == "retry( in src"
