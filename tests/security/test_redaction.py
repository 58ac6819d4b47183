from __future__ import annotations

import gc
import json
import logging
import random
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from opensesh.cli.logfile import log_crash, log_path, show_warnings
from opensesh.history.formats import FORMATS
from opensesh.redaction import Redactor
from opensesh.redaction.secret_patterns import RULES

from ..cli.running import Terminal
from ..history.sample_tree import Sample
from ..redaction.test_rules import SECRETS
from ..server.serving import serving
from ..sharing.faulty_server import FaultyServer, PublishingSetup
from ..web.test_entry import sign_in
from .secret_corpus import (
    CONFIGURED,
    KNOWN,
    LOGIN,
    SHAPES,
    VARIABLE,
    attachments,
    remains,
    remains_encoded_twice,
    spellings,
)

SPELLINGS = spellings()
ATTACHMENTS = attachments()
TEXT_FORMATS = sorted(set(FORMATS) - {"parquet"})


@pytest.fixture
def machine(isolated: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home whose login, configuration and environment have the known secrets."""
    data = isolated / ".local" / "share" / "opencode"
    data.mkdir(parents=True)
    data.joinpath("auth.json").write_text(json.dumps({"p": {"type": "api", "key": LOGIN}}))
    settings = isolated / ".config" / "opencode"
    settings.mkdir(parents=True)
    settings.joinpath("opencode.json").write_text(json.dumps({"provider": {"x": {"options": {"apiKey": CONFIGURED}}}}))
    monkeypatch.setenv("MY_DEPLOY_TOKEN", VARIABLE)
    return isolated


def fill(sample: Sample) -> dict[str, Any]:
    """A session with every spelling of every secret: in prompts, answers, tool calls, names of files and fields."""
    session = sample.session("Deploy with " + LOGIN + " and " + SHAPES["github"])
    for _, text in (SPELLINGS | ATTACHMENTS).values():
        sample.prompt(session, text)
    answer = sample.answer(session, "\n\n".join(text for _, text in SPELLINGS.values()))
    for name, (_, text) in SPELLINGS.items():
        sample.tool(answer, input={"command": text, name: {"deep": [text]}, text: name}, output=text)
    for _, text in ATTACHMENTS.values():
        sample.tool(answer, input={"url": text}, output=text)
        sample.part(answer, type="file", mime="text/plain", filename="a.txt", url=text)
    for secret in (SHAPES | KNOWN).values():
        file = {"type": "file", "mime": "text/plain", "filename": f"{secret}.txt", "url": f"file:///srv/{secret}.txt"}
        sample.part(answer, **file)
    return session


def leaks(text: str) -> dict[str, list[str]]:
    return {name: parts for name, secret in (SHAPES | KNOWN).items() if (parts := remains(secret, text))}


@pytest.mark.parametrize("name", SPELLINGS)
def test_l12_a_secret_is_removed_in_every_spelling(name: str) -> None:
    secret, text = SPELLINGS[name]
    redactor = Redactor(KNOWN.values())
    redacted = redactor.text(f"before {text} after")
    assert not remains(secret, redacted)
    assert not remains_encoded_twice(secret, redacted)
    assert redacted.startswith("before ")
    assert redacted.endswith(" after")
    assert redactor.counts.total() >= 1
    assert Redactor(KNOWN.values()).text(redacted) == redacted


@pytest.mark.parametrize("name", ATTACHMENTS)
def test_a_secret_is_removed_from_what_is_or_looks_like_an_attachment(name: str) -> None:
    secret, text = ATTACHMENTS[name]
    redacted = Redactor(KNOWN.values()).text(text)
    assert not remains(secret, redacted)
    assert not remains(secret, unquote(redacted))
    assert Redactor(KNOWN.values()).text(redacted) == redacted


@pytest.mark.parametrize("format_name", TEXT_FORMATS)
def test_h10_no_export_contains_a_secret(terminal: Terminal, sample: Sample, machine: Path, format_name: str) -> None:
    session = fill(sample)
    raw = terminal.run("export", session["id"], "--format", format_name, "--tools", "summary")
    assert leaks(raw).keys() == (SHAPES | KNOWN).keys()
    redacted = terminal.run("export", session["id"], "--format", format_name, "--tools", "summary", "--redact")
    assert terminal.code == 0
    assert "known-secret" in terminal.error
    assert not leaks(redacted)


def test_h10_no_file_of_a_folder_of_exports_contains_a_secret(
    terminal: Terminal, sample: Sample, machine: Path, tmp_path: Path
) -> None:
    fill(sample)
    for format_name in TEXT_FORMATS:
        terminal.run("export", "--format", format_name, "--split", str(tmp_path / format_name), "--redact-paths")
        files = [path for path in (tmp_path / format_name).rglob("*") if path.is_file()]
        assert files
        assert not leaks("\n".join(f"{path.name}\n{path.read_text()}" for path in files))


async def test_h10_no_share_contains_a_secret(publishing: PublishingSetup, faulty_server: FaultyServer) -> None:
    session = fill(publishing.sample)
    async with publishing.service(known_secrets=KNOWN.values) as service:
        shared = await service.share(session["id"])
    assert shared.redacted["known-secret"] > len(KNOWN)
    assert not leaks(json.dumps(faulty_server.requests, ensure_ascii=False))


def test_promise_1_h10_no_log_and_no_printed_warning_contains_a_secret(machine: Path) -> None:
    printed: list[str] = []
    for _, text in SPELLINGS.values():
        log_crash("run", ValueError(text))
    with show_warnings(printed.append):  # the output of a server may be a log too
        for _, text in SPELLINGS.values():
            logging.getLogger("opensesh.test").warning("the server said %s", text)
    written = Path(log_path()).read_text()
    assert written.count("ValueError") >= len(SPELLINGS)
    assert len(printed) == len(SPELLINGS)
    assert not leaks(written)
    assert not leaks("\n".join(printed))


@pytest.mark.parametrize(
    ("address", "formats"),
    [
        ("/history/sessions/{}/export?format={}", ["json", "html"]),
        ("/ui/export?ids={}&format={}", ["jsonl", "html"]),
    ],
    ids=["session", "selected sessions"],
)
async def test_promise_1_no_download_contains_a_secret(
    sample: Sample, machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, formats: list[str]
) -> None:
    session = fill(sample)
    monkeypatch.setenv("OPENSESH_STORE", str(sample.root))
    async with serving(tmp_path / "p") as client:
        browser = await sign_in(client)
        for format_name in formats:
            download = address.format(session["id"], format_name)
            raw = await browser.request("GET", download)
            redacted = await browser.request("GET", f"{download}&redact=true")
            assert (raw.status_code, redacted.status_code) == (200, 200), redacted.text
            assert leaks(raw.text)
            assert not leaks(redacted.text), format_name
            assert "[redacted:" in redacted.text


async def test_promise_1_no_share_of_the_server_contains_a_secret(
    sample: Sample, machine: Path, tmp_path: Path, faulty_server: FaultyServer
) -> None:
    session = fill(sample)
    settings = machine / ".config" / "opencode" / "opencode.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"enterprise": {"url": faulty_server.url}}))
    async with serving(tmp_path / "p", store=str(sample.root)) as client:
        await client.post(f"/session/{session['id']}/share")
    assert faulty_server.requests
    assert not leaks(json.dumps(faulty_server.requests, ensure_ascii=False))


def test_h10_a_log_is_written_and_redacted_while_the_configuration_cannot_be_read(machine: Path) -> None:
    machine.joinpath(".config", "opencode", "opencode.json").write_text("{ not json")
    with show_warnings(lambda line: None):
        logging.getLogger("opensesh.test").warning("the server said %s", LOGIN)
    assert "the server said [redacted:known-secret]" in Path(log_path()).read_text()


def test_l13_names_of_fields_are_redacted_and_no_field_is_lost() -> None:
    key = SHAPES["anthropic"]
    redactor = Redactor([LOGIN])
    value = {key: 1, key + "2": [{LOGIN: {"x": "y"}}], "[redacted:anthropic-key]": 3, "kept": 4}
    redacted = redactor.value(value)
    assert redacted == {
        "[redacted:anthropic-key] 2": 1,
        "[redacted:anthropic-key] 3": [{"[redacted:known-secret]": {"x": "y"}}],
        "[redacted:anthropic-key]": 3,
        "kept": 4,
    }
    assert list(redacted)[-1] == "kept"
    assert redactor.counts == {"anthropic-key": 2, "known-secret": 1}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("KEY={}\nOTHER_NAME=5", "KEY=[redacted:anthropic-key]\nOTHER_NAME=5"),
        ("{}\nThe next line\n", "[redacted:anthropic-key]\nThe next line\n"),
        ("{}\nsrc/main2.py", "[redacted:anthropic-key]\nsrc/main2.py"),
        ("{}\n\nA1b2C3", "[redacted:anthropic-key]\n\nA1b2C3"),
    ],
)
def test_l12_what_stands_below_a_secret_stays(text: str, expected: str) -> None:
    assert Redactor().text(text.format(SHAPES["anthropic"])) == expected


@pytest.mark.parametrize(
    "text",
    [
        "\x1b[31mred\x1b[0m and \u200bthin\u200b air",
        "task-6909399b254c721579bd193635882646b4739c16 and risk-averse-and-long-hyphenated-words",
        "src/sk-learn-contrib\nnotes2.txt\nsrc/models/tokenizer.py",
        "docker run -u 1000:1000 image curl",
        "mysql -p -u root",
        "RANDOMKEYIN AUTH JSON",
    ],
)
def test_l12_text_without_a_secret_stays(text: str) -> None:
    assert Redactor(KNOWN.values()).text(text) == text


# -- time --------------------------------------------------------------------------------------------------------------


def repeat(text: str, length: int) -> str:
    return (text * (length // len(text) + 1))[:length]


def attacks() -> dict[str, tuple[str, str, str]]:
    """What comes first, what is repeated, and what comes last."""
    beginnings = {secret[:end] for secret in SECRETS.values() for end in (4, 8, 12, len(secret) - 1, len(secret))}
    hints = {hint for rule in RULES for hint in rule.hint.split("|")}
    odd = {
        "!",
        "a",
        " ",
        "\n",
        "a\n",
        "\\",
        "://a:",
        "key=",
        "\x1b[1",
        "\u200b",
        "AA1\n",
        '"\n"',
        "data:",
        "a;",
        "curl ",
        "%25",
        "%2573",
        "&amp;",
        "\\163",
        "\\u{73}",
        "\uff53",
    }
    words = sorted(beginnings | hints | odd)
    alone = {f"{word!r} alone": ("", word, "") for word in words}
    choose = random.Random(7)
    mixed = {
        f"{first!r}, {again!r}, {last!r}": (first, again, last)
        for first, again, last in (choose.choices(words, k=3) for _ in range(150))
    }
    netrc = {f"netrc {again!r}": ("machine a login b password ", again, "") for again in ("!", "\\", "a!machine")}
    return netrc | alone | mixed


def seconds(redactor: Redactor, text: str) -> float:
    """The least time of a few: what else runs on the machine only adds."""
    times: list[float] = []
    for _ in range(4):
        start = time.process_time()
        redactor.text(text)
        times.append(time.process_time() - start)
    return min(times)


def test_m2_redaction_takes_time_in_proportion_to_the_length() -> None:
    redactor = Redactor([LOGIN, CONFIGURED], paths=True)
    gc.disable()
    try:
        for name, (first, again, last) in attacks().items():
            short = seconds(redactor, first + repeat(again, 25_000) + last)
            if short < 0.02:  # a quadratic pattern takes seconds
                continue
            long = seconds(redactor, first + repeat(again, 50_000) + last)
            assert long < 3 * short, name
    finally:
        gc.enable()


def test_no_command_about_the_configuration_prints_a_key_in_an_address(terminal: Terminal) -> None:
    servers = {
        "remote": {"type": "remote", "url": f"https://user:{VARIABLE}@x.invalid/?key={SHAPES['anthropic']}"},
        "local": {"type": "local", "command": ["serve", "--key", SHAPES["github"]]},
        "named": {"type": "remote", "url": "https://y.invalid/?a=b&access_token=s3cret"},
        "flags": {"type": "local", "command": ["serve", "--token", "s3cret", "--api-key=s3cret"]},
    }
    Path("opencode.json").write_text(json.dumps({"mcp": servers}))
    for command in (("config",), ("config", "--json"), ("plugins",), ("plugins", "--json"), ("plugins", "--trust")):
        printed = terminal.run(*command) + terminal.error
        assert "x.invalid" in printed, command
        for secret in (VARIABLE, SHAPES["anthropic"], SHAPES["github"]):
            assert remains(secret, printed) == [], command
        if command[0] == "config":
            assert "s3cret" not in printed
