from __future__ import annotations

import base64
from typing import Any

import pytest

from opensesh.engine.projection import model_messages
from opensesh.models.model import Model
from opensesh.models.request import File, Text, ToolResults, User

from .histories import CLAUDE, PDF, PNG, answer, called, model, say, user

GPT = model("openai", "gpt-5", "@ai-sdk/openai")
GEMINI = model("google", "gemini-3-pro", "@ai-sdk/google")
BEDROCK = model("amazon-bedrock", "anthropic.claude-5", "@ai-sdk/amazon-bedrock")
WORDS_ONLY = model("anthropic", "claude-haiku-4", "@ai-sdk/anthropic", frozenset(("text",)))
TOO_LARGE = base64.b64encode(b"\x89PNG" + bytes(5 * 1024 * 1024)).decode()


def data_url(mime: str, content: bytes) -> str:
    return f"data:{mime};base64,{base64.b64encode(content).decode()}"


@pytest.mark.parametrize(
    ("mime", "content", "target"),
    [
        ("image/png", b"\x89PNG", CLAUDE),
        ("image/jpeg", b"\xff\xd8\xff", CLAUDE),
        ("image/jpg", b"\xff\xd8\xff", CLAUDE),
        ("image/gif", b"GIF89a", CLAUDE),
        ("image/webp", b"RIFF", CLAUDE),
        ("application/pdf", b"%PDF-1", CLAUDE),
        ("application/pdf", b"\xef\xbb\xbf%PDF-1", CLAUDE),
        ("text/html", b"<p>", CLAUDE),
        ("audio/mpeg", b"ID3", CLAUDE),
        ("image/heic", b"any", GEMINI),
        ("image/heif", b"any", GEMINI),
        ("application/zip", b"PK", BEDROCK),
        ("image/png", b"\x89PNG" + bytes(5 * 1024 * 1024 - 4), CLAUDE),
        ("application/pdf", b"%PDF" + bytes(5 * 1024 * 1024), CLAUDE),
        ("image/png", b"\x89PNG" + bytes(20 * 1024 * 1024 - 4), GPT),
    ],
    ids=lambda value: (
        value.ref if isinstance(value, Model) else value if isinstance(value, str) else f"{len(value)} bytes"
    ),
)
def test_a_file_that_the_model_takes_is_sent(mime: str, content: bytes, target: Model) -> None:
    url = data_url(mime, content)
    (turn,) = model_messages(user(1, {"type": "file", "mime": mime, "url": url}), target)
    assert turn == User(content=(File(mime=mime, url=url),))


def test_a_file_on_the_web_is_sent_by_its_address() -> None:
    for url in ("https://example.invalid/a.png", "http://example.invalid/a.png"):
        (turn,) = model_messages(user(1, {"type": "file", "mime": "image/png", "url": url}), CLAUDE)
        assert turn == User(content=(File(mime="image/png", url=url),))


@pytest.mark.parametrize(
    ("mime", "url", "target", "reason"),
    [
        ("image/heic", data_url("image/heic", b"any"), GPT, "this model does not take files of its type"),
        ("image/jpg", data_url("image/jpg", b"\x89PNG"), CLAUDE, "it is not really image/jpeg"),
        ("image/gif", data_url("image/gif", b"\x89PNG"), CLAUDE, "it is not really image/gif"),
        ("text/html", "data:text/html,hi", CLAUDE, "its content is not base64"),
        ("image/png", "https://example.invalid/é.png", CLAUDE, "it is not where it was"),
        ("image/png", "ftp://example.invalid/a.png", CLAUDE, "it is not where it was"),
        ("image/png", data_url("image/png", b"\x89PNG"), WORDS_ONLY, "this model does not take image as input"),
        ("application/pdf", data_url("x", b"%PDF"), WORDS_ONLY, "this model does not take a PDF as input"),
        ("application/pdf", data_url("x", b"%PDF" + bytes(20 * 1024 * 1024)), GPT, "it is larger than 20 MB"),
    ],
    ids=lambda value: value.ref if isinstance(value, Model) else value[:50],
)
def test_a_file_that_this_model_cannot_take_says_why(mime: str, url: str, target: Model, reason: str) -> None:
    (turn,) = model_messages(user(1, {"type": "file", "mime": mime, "url": url, "filename": "it"}), target)
    assert turn == User(content=(Text(text=f"[it was left out: {reason}]"),))


@pytest.mark.parametrize(
    ("mime", "url", "reason"),
    [
        ("image/png", "data:image/png;base64,", "empty"),
        ("image/png", "data:image/png;base64,%%", "damaged"),
        ("image/png", f"data:image/png;base64,{PDF}", "not really"),
        ("image/png", "file:///a.png", "not where it was"),
        ("image/svg+xml", f"data:image/svg+xml;base64,{PNG}", "type"),
        ("application/zip", f"data:application/zip;base64,{PNG}", "type"),
        ("video/mp4", f"data:video/mp4;base64,{PNG}", "video"),
        ("image/png", f"data:image/png;base64,{TOO_LARGE}", "larger than 5 MB"),
    ],
)
def test_a_file_that_cannot_be_sent_is_named_with_the_reason(mime: str, url: str, reason: str) -> None:
    (turn,) = model_messages(user(1, {"type": "file", "mime": mime, "url": url, "filename": "it.bin"}), CLAUDE)
    assert isinstance(turn, User)
    assert isinstance(turn.content[0], Text)
    assert "it.bin" in turn.content[0].text
    assert reason in turn.content[0].text


@pytest.mark.parametrize(
    ("npm", "name", "within"),
    [
        ("@ai-sdk/anthropic", "claude-sonnet-5", True),
        ("@ai-sdk/openai", "gpt-5", True),
        ("@ai-sdk/amazon-bedrock", "anthropic.claude-5", True),
        ("@ai-sdk/google-vertex/anthropic", "claude-sonnet-5", True),
        ("@ai-sdk/google", "Gemini-3-Pro", True),
        ("@ai-sdk/google", "gemini-2.5-pro", False),
        ("@ai-sdk/google", "gemma-4", False),
        ("@ai-sdk/google", "gemini-2-to-gemini-3", False),
        ("@ai-sdk/openai-compatible", "gemini-3-pro", False),
    ],
)
@pytest.mark.parametrize(("mime", "data"), [("image/png", PNG), ("application/pdf", PDF)])
def test_files_of_a_tool_follow_in_a_message_of_their_own_where_results_hold_only_words(
    npm: str, name: str, within: bool, mime: str, data: str
) -> None:
    files = [{"mime": mime, "url": f"data:{mime};base64,{data}", "filename": "it"}]
    turns = model_messages(answer(1, called(attachments=files)), model("some", name, npm))
    assert [type(turn).__name__ for turn in turns] == ["Assistant", "ToolResults"] + ["User"] * (not within)
    assert isinstance(turns[1], ToolResults)
    kept = (File(mime=mime, url=files[0]["url"], filename="it"),) if within else ()
    assert turns[1].content[0].output == (Text(text="ok"), *kept)


def test_of_what_a_tool_attached_only_media_that_can_be_sent_leave_its_result() -> None:
    image: dict[str, Any] = {"mime": "IMAGE/PNG", "url": f"data:image/png;base64,{PNG}", "filename": 7}
    empty = {"mime": "image/png", "url": "data:image/png;base64,", "filename": "empty.png"}
    table = {"mime": "text/csv", "url": "data:text/csv;base64,YSxi", "filename": "a.csv"}
    elsewhere = [{"mime": "image/png", "url": url} for url in ("https://example.invalid/a,b.png", "data:image/png")]
    attached = [*elsewhere, {}, image, empty, table]
    local = model("local", "qwen3", "@ai-sdk/openai-compatible")
    _, results, images = model_messages(answer(1, called(attachments=attached)), local)
    assert isinstance(results, ToolResults)
    words, left_out, kept = results.content[0].output
    assert words == Text(text="ok")
    assert left_out == Text(text="[empty.png was left out: it is empty]")
    assert kept == File(mime="text/csv", url=table["url"], filename="a.csv")
    assert isinstance(images, User)
    assert images.content[1:] == (File(mime="image/png", url=image["url"]),)


def test_a_result_without_words_holds_its_files_alone_and_one_without_anything_is_an_empty_text() -> None:
    files = [{"mime": "image/png", "url": f"data:image/png;base64,{PNG}"}, {"mime": "image/png", "url": "file:///x"}]
    for attached, expected in ((files, (File(mime="image/png", url=files[0]["url"]),)), ([], (Text(text=" "),))):
        _, result = model_messages(answer(1, called(output=" ", attachments=attached)), CLAUDE)
        assert isinstance(result, ToolResults)
        assert result.content[0].output == expected


def test_a_file_is_known_by_its_name_or_its_type_or_as_a_file() -> None:
    files = [{"mime": "video/mp4", "filename": "it.mp4"}, {"mime": "Video/MP4; codecs=x"}, {"mime": "", "filename": ""}]
    (turn,) = model_messages(user(1, *({"type": "file", "url": "file:///gone"} | file for file in files)), CLAUDE)
    assert isinstance(turn, User)
    reported = [piece.text.partition(" was left out: ")[0] for piece in turn.content if isinstance(piece, Text)]
    assert reported == ["[it.mp4", "[video/mp4", "[A file"]
    named = {"type": "file", "mime": "IMAGE/PNG; x=1", "url": f"data:image/png;base64,{PNG}", "filename": "it.png"}
    (turn,) = model_messages(user(1, named), CLAUDE)
    assert turn == User(content=(File(mime="image/png", url=named["url"], filename="it.png"),))


def test_files_whose_text_is_in_the_prompt_already_are_not_sent_again() -> None:
    listing = {"type": "file", "mime": "application/x-directory", "url": "file:///src"}
    text = {"type": "file", "mime": "text/plain", "url": "file:///a.txt"}
    assert model_messages(user(1, text, say("look"), listing), CLAUDE) == (User(content=(Text(text="look"),)),)
