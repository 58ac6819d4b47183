from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ..history.sample_stores import Tree
from ..history.sample_tree import Sample
from .running import Terminal

FIXTURES = Path(__file__).parents[1] / "fixtures"


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    made = Tree(tmp_path / "storage")
    monkeypatch.setenv("OPENSESH_STORE", str(tmp_path))
    return made


def test_hits_are_printed_by_session_with_their_place(terminal: Terminal, tree: Tree) -> None:
    session = tree.session(title="Dig a hole", directory="/srv/garden")
    message, part = tree.text(session, "where is the gravel?")
    tree.tool(session, "bash", message=message, input={"command": "find gravel"})
    out = terminal.run("search", "gravel", "--utc")
    assert out.splitlines()[0] == f"Dig a hole  {session}  /srv/garden"
    assert part in out
    assert "    where is the gravel?" in out
    assert "user bash" in out
    assert terminal.error == "2 hits in 1 session.\n"
    terminal.run("search", "gravel", "--limit", "1")
    assert terminal.error == "1 to 1 of 2 hits in 1 session; --offset 1 shows more.\n"
    terminal.run("search", "nothing-like-it")
    assert (terminal.code, terminal.error) == (0, "No matches.\n")
    terminal.run("search", "rave")
    assert terminal.error.startswith("No whole-word matches; showing partial matches. 2 hits")


def test_a_session_has_one_head_though_its_hits_are_not_neighbours(terminal: Terminal, tree: Tree) -> None:
    paths, beds = tree.session(title="Paths"), tree.session(title="Beds")
    for session in (paths, beds):
        tree.text(session, "gravel")
        tree.tool(session, "bash", input={"command": "find gravel among all the other things of the garden"})
    ranked = [hit["sessionID"] for hit in terminal.json("search", "gravel")["hits"]]
    assert ranked in ([paths, beds, paths, beds], [beds, paths, beds, paths])
    heads = [line.split()[1] for line in terminal.run("search", "gravel").splitlines() if line[:1].strip()]
    assert heads == ranked[:2]


def test_what_begins_with_a_dash_is_found_or_the_way_to_find_it_is_printed(terminal: Terminal, tree: Tree) -> None:
    session = tree.session()
    _, part = tree.tool(session, "bash", input={"command": "git commit --no-verify -x"})
    tree.text(session, "something else")

    def found(*words: str) -> list[str]:
        return [hit["partID"] for hit in json.loads(terminal.run("search", "--json", *words))["hits"]]

    assert found("--", "--no-verify") == found("--text", "--", "-x") == [part]
    terminal.run("search", "-x")
    assert (terminal.code, "Words that begin with a dash go after '--'." in terminal.error) == (2, True)
    terminal.run("search", "--", "-x")
    assert (terminal.code, "opensesh search --text -- -x\n" in terminal.error) == (2, True)
    terminal.run("search", "--without", "x")
    assert (terminal.code, "contains only exclusions" in terminal.error) == (2, True)


def test_words_and_options_may_stand_in_any_order(terminal: Terminal, tree: Tree) -> None:
    session = tree.session()
    _, sand = tree.text(session, "gravel and sand")
    _, stone = tree.text(session, "gravel and stone")

    def found(*words: str) -> list[str]:
        return [hit["partID"] for hit in terminal.json("search", *words)["hits"]]

    assert found("gravel", "--role", "user", "stone") == [stone]
    assert found("gravel", "--without", "stone") == [sand]
    assert json.loads(terminal.run("search", "--json", "--", "gravel", "-stone"))["hits"][0]["partID"] == sand
    assert found('"and sand"') == [sand]


def test_json_has_the_documented_shape(terminal: Terminal, tree: Tree) -> None:
    session = tree.session(title="T")
    message, part = tree.text(session, "gravel")
    answer = terminal.json("search", "gravel")
    assert answer["total"] == 1
    (hit,) = answer["hits"]
    moment, score = hit["time"], hit["score"]
    assert {key: hit[key] for key in ("sessionID", "messageID", "partID", "type", "time", "snippet", "score")} == {
        "sessionID": session,
        "messageID": message,
        "partID": part,
        "type": "text",
        "time": moment,
        "snippet": "gravel",
        "score": score,
    }
    assert isinstance(moment, int)
    assert score > 0
    assert terminal.json("search", "zzz") == {"total": 0, "hits": []}


def test_filters_and_modes_on_the_corpus(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENSESH_STORE", str(FIXTURES / "opencode-1.1.65" / "storage"))

    def total(*words: str) -> int:
        answer: Any = terminal.json("search", *words, "--limit", "0")
        assert len(answer["hits"]) == answer["total"]
        return answer["total"]

    everywhere = total("hello")
    assert everywhere > 0
    assert total("hello", "--project", "easstore") == everywhere
    assert total("hello", "--here") == 0
    assert total("hello", "--role", "user") + total("hello", "--role", "assistant") == everywhere
    assert 0 < total("hello", "--tool", "edit") < everywhere
    assert total("hello", "--session", "ses_e1f505ae8ffev56KO8VQGT1kHX") < everywhere
    assert total("hello", "--since", "2100-01-01") == total("hello", "--until", "1990-01-01") == 0
    assert total("hello", "--model", "scripted") == everywhere
    assert total("hello", "--agent", "nobody") == 0
    assert total("--regex", "h[e]llo w") > 0
    assert total("--text", '"oldString":"hello"') > 0
    assert 0 < total("hello", "--in", "prompts,inputs") < everywhere
    assert total("--file", "README.md") > 0
    assert total("漢字") > 0
    assert total("hello", "--check") == everywhere
    assert total("hello", "--newest", "--roots") <= everywhere


def test_mistakes_are_reported_in_a_line(terminal: Terminal, tree: Tree) -> None:
    tree.session(title="gravel")
    terminal.run("search")
    assert (terminal.code, "nothing to search for" in terminal.error) == (2, True)
    terminal.run("search", "--regex", "(")
    assert (terminal.code, terminal.error.count("\n")) == (2, 1)
    for mode in ("--text", "--regex"):
        terminal.run("search", "x", mode, "--without", "y")
        assert (terminal.code, "--without needs words" in terminal.error) == (2, True)
    terminal.run("search", "x", "--in", "nowhere")
    assert (terminal.code, "'nowhere'" in terminal.error) == (2, True)
    terminal.run("search", "x", "--project", "qqqqqq")
    assert terminal.code == 3
    terminal.run("search", "x", "--session", "qqqqqq")
    assert terminal.code == 3
    assert terminal.json("search", "x", "--since", "whenever")["error"]["name"] == "UsageError"


def test_a_store_with_nothing_in_it_holds_nothing(terminal: Terminal, tmp_path: Path) -> None:
    assert terminal.json("search", "x", "--store", str(tmp_path)) == {"total": 0, "hits": []}
    assert not (tmp_path / "nowhere").exists()


def test_nothing_a_session_says_can_steer_the_terminal(terminal: Terminal, tree: Tree) -> None:
    tree.text(tree.session(title="bad \x1b[2J title"), "gravel \x1b]0;owned\x07 \x9b31m here")
    out = terminal.run("search", "gravel")
    assert not {"\x1b", "\x07", "\x9b"} & set(out)


def test_damage_is_reported_and_affects_only_its_record(terminal: Terminal, tree: Tree) -> None:
    message, part = tree.text(tree.session(), "gravel")
    torn = tree.path("part", message, "prt_torn")
    torn.write_bytes(b'{"type": "te')
    assert [hit["partID"] for hit in terminal.json("search", "gravel")["hits"]] == [part]
    assert "1 damaged record skipped" in terminal.error
    assert str(torn) in terminal.error


def test_an_unchanged_store_is_searched_without_loading_what_reads_records(tree: Tree) -> None:
    tree.text(tree.session(), "gravel")
    tree.settle()
    code = (
        "import sys, io; from opensesh.cli.main import run; out, sys.stdout = sys.stdout, io.StringIO()\n"
        "run(['search', 'gravel', '--limit', '0']); out.write(' '.join(sys.modules))"
    )

    def loaded() -> set[str]:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert "1 hit in 1 session" in done.stderr
        return set(done.stdout.split())

    assert "msgspec" in loaded()
    heavy = {"msgspec", "rich", "asyncio", "dataclasses", "rapidfuzz", "subprocess", "logging", "opensesh.records"}
    assert not loaded() & heavy


def test_hits_in_an_unchanged_database_are_shown_without_loading_what_reads_rows(tmp_path: Path) -> None:
    data = tmp_path / "opencode.db"
    shutil.copy(FIXTURES / "opencode-1.2" / "opencode.db", data)
    os.utime(data, (1_790_000_000, 1_790_000_000))
    code = (
        "import sys, io; from opensesh.cli.main import run; out, sys.stdout = sys.stdout, io.StringIO()\n"
        f"run(['search', 'file', '--store', {str(data)!r}])\n"
        "out.write(' '.join(sys.modules) + '\\n' + sys.stdout.getvalue())"
    )

    def search() -> tuple[set[str], str]:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        modules, _, printed = done.stdout.partition("\n")
        return set(modules.split()), printed

    (first, cold), (second, warm) = search(), search()
    assert "prt_" in warm
    assert warm == cold
    assert "msgspec" in first
    assert not second & {"msgspec", "urllib.parse", "opensesh.records", "opensesh.storage.opencode_db.rows"}


def test_show_draws_markdown_and_diffs_only_for_a_terminal(tree: Tree) -> None:
    pty = pytest.importorskip("pty")
    session = tree.session(title="Drawn")
    tree.text(session, "**strong** words\x1b[2J", "assistant")
    tree.tool(session, "edit", input={"filePath": "/a"}, metadata={"diff": "--- a\n+++ b\n-old\n+new"})
    command = [sys.executable, "-m", "opensesh", "show", session]
    plain = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "**strong** words" in plain
    ours, theirs = pty.openpty()
    child = subprocess.Popen(command, stdout=theirs, env=_environment(tree))
    os.close(theirs)
    drawn = b""
    try:
        while data := os.read(ours, 65536):
            drawn += data
    except OSError:
        pass
    assert child.wait(30) == 0
    os.close(ours)
    text = drawn.decode()
    assert "\x1b[1mstrong\x1b[0m" in text
    assert "+new" in text
    assert "\x1b[2J" not in text


def _environment(tree: Tree) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TERM")}
    return kept | {"TERM": "xterm-256color", "COLUMNS": "80", "PAGER": "cat", "OPENSESH_STORE": str(tree.root)}


def test_list_says_how_many_more_may_belong(terminal: Terminal, tree: Tree) -> None:
    tree.project("abc", "/srv/eastore")
    tree.session(project="abc", directory="/srv/eastore")
    tree.session(directory="/mnt/old/eastore")
    terminal.run("list", "--project", "abc")
    assert terminal.error == "1 session.\n1 more may belong to this project, by folder or title.\n"
    assert terminal.json("list", "--project", "abc")["elsewhere"] == 1
    terminal.run("list", "--project", "/srv/eastore/")
    assert (
        "may belong to this project, by folder or title. 'opensesh list --project eastore' shows more of them."
        in terminal.error
    )
    assert "elsewhere" not in terminal.json("list")


def test_projects_whose_folder_is_gone_say_so(terminal: Terminal, tree: Tree, tmp_path: Path) -> None:
    tree.project("abc", "/srv/never/there")
    tree.project("def", str(tmp_path))
    assert [item["missing"] for item in terminal.json("projects")["projects"]] == [True, False]
    assert "/srv/never/there (missing)" in terminal.run("projects")


def test_sessions_without_a_project_go_by_their_own_folder(terminal: Terminal, tree: Tree, tmp_path: Path) -> None:
    tree.project("global", f"{tmp_path}/shop", vcs="git")
    proj = tree.session(directory=f"{tmp_path}/proj", title="first")
    shop = tree.session(directory=f"{tmp_path}/shop", title="second")
    tree.text(proj, "a needle")
    tree.text(shop, "a needle")
    lines = terminal.run("list").splitlines()
    assert [line.split()[-2:] for line in lines[1:]] == [["shop", "second"], ["proj", "first"]]
    assert [item["id"] for item in terminal.json("list", "--project", "shop")["sessions"]] == [shop]
    assert [item["id"] for item in terminal.json("list", "--project", f"{tmp_path}/proj")["sessions"]] == [proj]
    assert terminal.json("session", "remove", "--project", "shop", "--dry-run")["sessions"] == [shop]
    assert terminal.json("session", "archive", "--project", "proj", "--dry-run")["sessions"] == [proj]
    result = terminal.run("search", "needle", "--project", "shop")
    assert (shop in result, proj in result) == (True, False)
    exported = terminal.run("export", "--project", "shop", "--format", "jsonl")
    assert (shop in exported, proj in exported) == (True, False)
    rows = [line.split() for line in terminal.run("projects").splitlines()[1:]]
    assert [(row[0], row[1]) for row in rows] == [("shop", "1"), ("proj", "1")]
    assert [item["worktree"] for item in terminal.json("projects", "proj")["projects"]] == [f"{tmp_path}/proj"]
    assert {item["worktree"] for item in terminal.json("projects", "global")["projects"]} == {
        f"{tmp_path}/proj",
        f"{tmp_path}/shop",
    }


def test_a_session_whose_record_is_lost_can_still_be_read(terminal: Terminal, tree: Tree) -> None:
    session = tree.session()
    tree.text(session, "still here")
    tree.path("session", "global", session).unlink()
    assert "still here" in terminal.run("show", session)
    assert json.loads(terminal.run("show", session, "--json"))["info"]["id"] == session
    terminal.run("show", "ses_000000000099Aa")
    assert terminal.code == 3


def test_an_offset_behind_the_last_hit_says_how_many_there_are(terminal: Terminal, sample: Sample) -> None:
    sample.talk("gravel")
    terminal.run("search", "gravel", "--offset", "1000")
    assert terminal.error == "No more results: 1 hit in all, and --offset skips 1,000.\n"


WITHOUT_ROOM = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
from opensesh.__main__ import main
main()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no limit to the size of files")
@pytest.mark.parametrize("indexed", [True, False])
def test_history_is_found_where_nothing_can_be_written(terminal: Terminal, tree: Tree, indexed: bool) -> None:
    tree.text(tree.session(), "gravel")
    if indexed:
        terminal.run("search", "gravel")
        tree.text(tree.session(), "more gravel")
    command = [sys.executable, "-B", "-c", WITHOUT_ROOM, "search", "gravel", "--json"]
    done = subprocess.run(command, capture_output=True, check=True)
    assert json.loads(done.stdout)["total"] == 1 + indexed
    (reported,) = done.stderr.decode().splitlines()
    assert reported.startswith("(a temporary index was used, because it cannot be stored: ")
    for name in ("list", "stats"):
        shown = json.loads(subprocess.run([*command[:4], name, "--json"], capture_output=True, check=True).stdout)
        assert shown["total"]
