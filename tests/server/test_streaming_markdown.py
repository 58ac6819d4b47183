from __future__ import annotations

import random
import time
from html import escape

from opensesh.server.streaming_markdown import MAX_OPEN_CHARACTERS, StreamingMarkdown, ViewerPosition

TEXT = """# Title

First paragraph
with a second line.

- one
- two

  inside two

- three

```python
def f():
    return `1`
``
    ~~~
```
After the code.

~~~~ text
```
~~~~

| a | b |
| - | - |
| 1 | 2 |

The end of it all"""


class Page:
    """Applies operations as the script of the pages does."""

    def __init__(self) -> None:
        self.settled = ""
        self.tail = ""
        self.text = ""
        self.seen = ViewerPosition()

    def update(self, markdown: StreamingMarkdown) -> None:
        for op, content in markdown.operations(self.seen):
            if op == "settle":
                self.settled += content
                self.tail = self.text = ""
            elif op == "tail":
                self.tail = content
                self.text = ""
            else:
                self.text += content
        self.seen = markdown.position


def block(source: str) -> str:
    return f"[{source.strip()}]"


def stream(text: str, sizes: list[int]) -> tuple[StreamingMarkdown, list[Page]]:
    """Stream a text in pieces to a page that sees every flush and to one that sees few."""
    markdown, every, few = StreamingMarkdown(block), Page(), Page()
    position = number = 0
    while position < len(text):
        size = sizes[number % len(sizes)]
        markdown.feed(text[position : position + size])
        position, number = position + size, number + 1
        every.update(markdown)
        if number % 7 == 0:
            few.update(markdown)
    few.update(markdown)
    return markdown, [every, few]


def test_blocks_are_settled_when_the_next_one_begins() -> None:
    _, (page, _) = stream(TEXT, [1])
    assert page.settled == "".join(
        block(source)
        for source in (
            "# Title",
            "First paragraph\nwith a second line.",
            "- one\n- two\n\n  inside two\n\n- three",
            "```python\ndef f():\n    return `1`\n``\n    ~~~\n```",
            "After the code.",
            "~~~~ text\n```\n~~~~",
            "| a | b |\n| - | - |\n| 1 | 2 |",
        )
    )
    assert (page.tail, page.text) == ("[The end of it all]", "")


def test_every_viewer_ends_with_the_same_page_however_the_text_is_split() -> None:
    expected = stream(TEXT, [len(TEXT)])[1][0]
    for seed in range(50):
        sizes = [random.Random(seed).randint(1, 7) for _ in range(20)]
        for page in stream(TEXT, sizes)[1]:
            assert (page.settled, page.tail, page.text) == (expected.settled, expected.tail, expected.text)


def test_an_open_code_block_grows_by_its_text_and_is_not_rendered_again() -> None:
    rendered: list[str] = []

    def render(source: str) -> str:
        rendered.append(source)
        return block(source)

    markdown, page = StreamingMarkdown(render), Page()
    for piece in ("  ```sh\n", "  ls", " -l\n", "   pwd\n", "  ``", "`x\n", "``", "`"):
        markdown.feed(piece)
        page.update(markdown)
    assert (page.tail, page.text) == ("[```sh\n```]", "ls -l\n pwd\n```x\n")
    assert rendered == ["```sh\n```"]
    markdown.feed("\n")
    page.update(markdown)
    assert (page.tail, page.text) == ("", "")
    assert page.settled == block("  ```sh\n  ls -l\n   pwd\n  ```x\n```")


def test_a_block_that_is_too_long_is_shown_as_text_until_it_is_settled() -> None:
    markdown, page = StreamingMarkdown(block), Page()
    paragraph = "word " * (MAX_OPEN_CHARACTERS // 5 + 10)
    markdown.feed(paragraph)
    page.update(markdown)
    markdown.feed("more\nand more")
    page.update(markdown)
    assert page.tail.startswith("<pre")
    assert page.text == f"{paragraph}more\nand more"
    markdown.feed("\n\nThe next paragraph")
    page.update(markdown)
    assert (page.settled, page.tail, page.text) == (block(f"{paragraph}more\nand more"), "[The next paragraph]", "")


def test_reasoning_is_plain_text() -> None:
    markdown, page = StreamingMarkdown(None), Page()
    for piece in ("# not a heading\n\n", "```\n", "open"):
        markdown.feed(piece)
        page.update(markdown)
    assert (page.settled, page.tail, page.text) == ("", "", "# not a heading\n\n```\nopen")


def test_the_time_of_a_hostile_text_is_linear() -> None:
    def seconds(text: str) -> float:
        began = time.process_time()
        markdown = StreamingMarkdown(escape)
        for start in range(0, len(text), 400):
            markdown.feed(text[start : start + 400])
        return time.process_time() - began

    for piece in ("`" * 50 + "\n", "[" * 40, "- x\n\n", "> " * 20 + "\n", "|a" * 30 + "\n", "```\n"):
        short, long = piece * (200_000 // len(piece)), piece * (800_000 // len(piece))
        assert min(seconds(long) for _ in range(3)) < 4 * 2.5 * max(seconds(short), 0.05)
