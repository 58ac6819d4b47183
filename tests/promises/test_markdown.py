from __future__ import annotations

import random
import time

import pytest

from opensesh.history.rendering.markdown_html import markdown_html

PIECES = [
    *"` `` ``` ~~~ | - # > * ** [ ]( ) http:// . a \\ _ : 1. |-| <http:// <a@b. <!-- <a &amp; & &# ~~ ![ = ' <".split(),
    *(" ", "\n", "\n\n", "    ", "# ", "> ", "* ", "1. ", "- > ", "  - ", "[a]: ", "[a]: u 't\n", "[a] ", "|a|\n|-|\n"),
]


def seconds(text: str, attempts: int = 3) -> float:
    times: list[float] = []
    for _ in range(attempts):
        start = time.process_time()
        rendered = markdown_html(text)
        times.append(time.process_time() - start)
        assert len(rendered) < 60 * len(text) + 1_000
    return min(times)


def repeat(text: str, length: int) -> str:
    return (text * (length // len(text) + 1))[:length]


def is_plain(text: str) -> bool:
    return str(markdown_html(text)).startswith('<pre class="plain"')


def table(columns: int, rows: int) -> str:
    return "|a" * columns + "|\n" + "|-" * columns + "|\n" + "|a\n" * rows


def test_promise_20_growing_runs_of_backticks_take_linear_time() -> None:
    short, long = (" ".join("`" * number for number in range(1, last)) for last in (70, 99))
    assert not is_plain(long)
    assert seconds(long) < max(0.05, 4 * seconds(short))


def test_promise_20_a_table_does_not_grow_with_the_product_of_rows_and_columns() -> None:
    text = table(90, 200)
    rendered = str(markdown_html(text))
    assert rendered.count("<td>") == 200
    assert len(rendered) < 60 * len(text)
    # The parser adds the missing cells before they are left out, which takes a second for 65,000 of them.
    assert is_plain(table(90, 400))
    assert is_plain("\n".join([text, text]))
    assert is_plain(table(700, 1))


@pytest.mark.parametrize(("text", "count"), [("`\n", 5_000), ("[\n", 2_000), ("a", 20_000), ("a" * 1_023 + "\n", 256)])
def test_promise_20_text_that_is_too_long_for_markdown_is_shown_as_it_is(text: str, count: int) -> None:
    assert not is_plain(text * count)
    assert is_plain(text * (count + 1))


@pytest.mark.parametrize("count", [60, pytest.param(3_000, marks=[pytest.mark.slow, pytest.mark.timeout(1200)])])
def test_promise_20_any_text_takes_linear_time_and_bounded_output(count: int) -> None:
    choose = random.Random(20)
    for _ in range(count):
        first, again, last = ("".join(choose.choices(PIECES, k=choose.randint(1, 3))) for _ in range(3))
        short, long = (first + repeat(again, length) + last for length in (4_000, 8_000))
        if seconds(short, 1) > 0.1:  # what is not linear takes seconds; 4,000 characters take 0.04
            assert seconds(long) < 3 * seconds(short), (first, again, last)


def test_promise_20_code_links_and_emphasis_are_rendered_as_before() -> None:
    html = str(markdown_html("a ``b ` c`` [`d`](http://e) **f** `g** h` ` i ``j"))
    assert "<code>b ` c</code>" in html
    assert '<a href="http://e" target="_blank" rel="noopener noreferrer nofollow"><code>d</code></a>' in html
    assert "<strong>f</strong>" in html
    assert "<code>g** h</code> ` i ``j" in html
