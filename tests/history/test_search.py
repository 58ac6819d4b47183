from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unicodedata import combining, normalize

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from opensesh.errors import UsageError
from opensesh.history.cache.derived_cache import DerivedCache
from opensesh.history.search import tokenizer
from opensesh.history.search.facets import newest_matches
from opensesh.history.search.query import Atom, RequiredTerms, parse, required_terms, terms_of_regex
from opensesh.history.search.search_filters import FIELDS, Filters
from opensesh.history.search.snippets import snippet
from opensesh.history.search.text_layer import TEXT, build_vocabulary
from opensesh.history.search.text_search import RANKED_PARTS, Query, Results, search
from opensesh.storage import open_store
from opensesh.storage.locations import find_stores

from .sample_stores import START, Tree

FIXTURES = Path(__file__).parents[1] / "fixtures"
DAY = 86_400_000
NOW = START + 100 * DAY


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path / "storage")


@pytest.fixture
def index(tree: Tree) -> Iterator[DerivedCache]:
    made = DerivedCache(find_stores(str(tree.root.parent)))
    yield made
    made.close()


@pytest.fixture
def ask(index: DerivedCache) -> Callable[..., Results]:
    def asked(
        text: str = "",
        mode: Any = "words",
        *,
        limit: int = 0,
        offset: int = 0,
        newest: bool = False,
        ranked: int = RANKED_PARTS,
        **more: Any,
    ) -> Results:
        index.refresh(TEXT)
        return search(index, Query(text, mode, Filters(**more), limit, offset, newest), now=NOW, ranked=ranked)

    return asked


Ask = Callable[..., Results]


def parts(result: Results) -> list[str | None]:
    return [hit.part for hit in result.hits]


def test_words_are_found_in_any_order_case_and_accent(tree: Tree, ask: Ask) -> None:
    session = tree.session()
    _, part = tree.text(session, "The Café serves gravel, not sand. Naïve Straße")
    for text in ("gravel", "GRAVEL the", "sand gravel", "cafe", "CAFÉ", "naive"):
        assert parts(ask(text)) == [part], text
    for text in ("gravel stone", "grave", "caf"):
        assert ask(f'"{text}"').total == 0, text


def test_phrases_need_their_order(tree: Tree, ask: Ask) -> None:
    session = tree.session()
    _, part = tree.text(session, "parse the config file")
    assert parts(ask('"the config"')) == [part]
    assert parts(ask('"config the"')) == []
    assert parts(ask('"the conf"*')) == [part]
    assert parts(ask('"parse the config fi')) == []


def test_beginnings_and_insides_of_words(tree: Tree, ask: Ask) -> None:
    session = tree.session()
    _, part = tree.text(session, "authentication by tokenizer42")
    for text in ("auth*", "*entica*", "*zer42*", "*TOKEN*", "*ation", "by auth*"):
        assert parts(ask(text)) == [part], text
    for text in ("entica*", "*authx*", "*authentic"):
        assert ask(text).total == 0, text


def test_a_word_that_only_stands_inside_others_is_found_and_that_is_reported(tree: Tree, ask: Ask) -> None:
    session = tree.session()
    _, part = tree.text(session, "reauthenticate")
    result = ask("authentic")
    assert (parts(result), result.widened) == ([part], True)
    tree.text(session, "authentic")
    assert not ask("authentic").widened


def test_words_that_come_later_are_found_by_what_is_inside_them(tree: Tree, ask: Ask) -> None:
    session = tree.session()
    tree.text(session, "first")
    assert ask("*irs*").total == 1
    _, part = tree.text(session, "afterwards the Überraschung")
    assert parts(ask("*terwar*")) == [part]
    assert parts(ask("*raschun*")) == [part]
    assert parts(ask("berraschung", "text")) == [part]


def test_what_is_not_wanted_is_left_out(tree: Tree, ask: Ask) -> None:
    session = tree.session()
    _, sand = tree.text(session, "gravel and sand")
    _, stone = tree.text(session, "gravel and stone")
    assert parts(ask("gravel -sand")) == [stone]
    assert parts(ask('gravel -"and stone"')) == [sand]
    assert parts(ask("gravel -*ston*")) == [sand]
    assert ask("-gravel").total == 1  # the title


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("def parse_config_file(path)", "config"),
        ("def parse_config_file(path)", "parse_config_file"),
        ("def parse_config_file(path)", "parseConfigFile"),
        ("new ConfigFileParser()", "config"),
        ("new ConfigFileParser()", "ConfigFileParser"),
        ("new ConfigFileParser()", "configfileparser"),
        ("new ConfigFileParser()", '"file parser"'),
        ("an HTTPServer here", "server"),
        ("an HTTPServer here", "httpserver"),
        ("see src/app/main.py:12", "src/app/main.py"),
        ("see src/app/main.py:12", "main.py"),
        ("x = obj.method(arg)", "obj.method"),
        ("uses PostgreSQL", "postgresql"),
    ],
)
def test_identifiers_are_found_whole_and_by_their_parts(tree: Tree, ask: Ask, text: str, asked: str) -> None:
    _, part = tree.text(tree.session(), text)
    result = ask(asked)
    assert (parts(result), result.widened) == ([part], False)
    assert result.hits[0].snippet.marks


def test_parts_of_two_identifiers_make_no_phrase(tree: Tree, ask: Ask) -> None:
    tree.text(tree.session(), "fooBar and bazQux")
    assert ask('"bar baz"').total == 0
    assert ask('"foo bar"').total == 1


@pytest.mark.parametrize(
    ("text", "asked", "fits"),
    [
        ("我喜欢在北京大学学习", "北京", True),
        ("我喜欢在北京大学学习", "北京大学", True),
        ("我喜欢在北京大学学习", "京", True),
        ("我喜欢在北京大学学习", "习", True),
        ("我喜欢在北京大学学习", "大北", False),
        ("テストが失敗しました", "失敗", True),
        ("テストが失敗しました", "スト", True),
        ("한국어를 배웁니다", "한국어", True),
        ("fix 解析器 bug", "解析器", True),
        ("fix 解析器 bug", '"解析器 bug"', True),
        ("fix 解析器 bug", '"fix 解析"', True),
        ("ภาษาไทย", "ไทย", True),
        ("हिन्दी भाषा", "हिन्दी", True),
        ("हिन्दी भाषा", "न्दी", False),
        ("Привет Мир", "привет", True),
        ("Ｆｕｌｌ width", "full", True),
    ],
)
def test_scripts_of_all_kinds(tree: Tree, ask: Ask, text: str, asked: str, fits: bool) -> None:
    tree.text(tree.session(), text)
    assert ask(asked).total == int(fits)


def test_text_as_it_stands(tree: Tree, ask: Ask) -> None:
    session = tree.session()
    _, part = tree.text(session, "if (a && b) { return x->y; } // C++ ==> 🎉")
    for text in ("a && b", "x->y", "==>", "C++", "(a && b) {", "🎉", "eturn x", "&&"):
        assert parts(ask(text, "text")) == [part], text
    for text in ("a & b", "x-> y", "+++"):
        assert ask(text, "text").total == 0, text
    assert parts(ask("&&")) == [part]
    assert ask("   ", "text").total == 2
    _, quoted = tree.text(session, 'she said "no')
    assert parts(ask('"')) == [quoted]


def test_regular_expressions(tree: Tree, ask: Ask) -> None:
    session = tree.session()
    _, one = tree.text(session, "error E1234 in line 7\nTODO: gravel")
    _, two = tree.text(session, "Error e99 somewhere")
    assert set(parts(ask(r"error e\d+", "regex"))) == {one, two}
    assert parts(ask(r"\bE\d{4}\b", "regex")) == [one]
    assert parts(ask(r"^TODO:\s+\w+$", "regex")) == [one]
    assert parts(ask(r"some(where|thing)", "regex")) == [two]
    assert parts(ask(r"(?-i:Error) e", "regex")) == [two]
    assert set(parts(ask(r"\d", "regex"))) == {one, two}
    assert parts(ask(r"\w{9,10}", "regex")) == [two]
    with pytest.raises(UsageError, match="not a regular expression"):
        ask("(", "regex")


def test_every_field_is_searched_and_can_be_asked_alone(tree: Tree, ask: Ask) -> None:
    session = tree.session(title="gravel title")
    tree.text(session, "gravel prompt")
    tree.text(session, "gravel context", synthetic=True)
    message = tree.message(session, "assistant", error={"name": "APIError", "data": {"message": "gravel failure"}})
    tree.part(session, message, type="reasoning", text="gravel thought", time={"start": 1, "end": 2})
    tree.part(session, message, type="text", text="gravel answer", time={"start": 1, "end": 2})
    tree.tool(session, "bash", message=message, input={"command": "ls gravel", "deep": [{"x": "gravelly"}]})
    tree.tool(session, "grep", message=message, output="gravel output")
    tree.tool(session, "gravel_tool", message=message)
    tree.tool(session, "read", message=message, input={"filePath": "/srv/gravel.txt"})
    tree.tool(session, "write", message=message, status="error", error="no gravel")
    tree.part(session, message, type="patch", hash="1", files=["/srv/gravel/a.py"])
    tree.part(session, message, type="subtask", prompt="gravel task", agent="plan")
    tree.part(session, message, type="file", mime="text/plain", filename="b", url="file:///srv/gravel%20b.txt")
    tree.part(session, message, type="step-finish", reason="gravel")
    tree.part(session, message, type="snapshot", snapshot="gravel")
    fields = {name: sorted({hit.type for hit in ask("gravel", fields=(name,)).hits}) for name in FIELDS}
    assert fields == {
        "titles": ["title"],
        "prompts": ["subtask", "text"],
        "answers": ["text"],
        "reasoning": ["reasoning"],
        "context": ["text"],
        "tools": ["tool"],
        "inputs": ["tool"],
        "outputs": ["tool"],
        "errors": ["error", "tool"],
        "paths": ["file", "patch", "tool"],
    }
    assert ask("gravel").total == 14
    assert ask("gravel", fields=("prompts", "outputs")).total == 3
    assert ask("gravelly", fields=("inputs",)).total == 1
    assert ask("*rave*", fields=("outputs",)).total == 1
    assert ask("gravel", "regex", fields=("errors",)).total == 2
    with pytest.raises(UsageError, match="'nowhere'"):
        ask("gravel", fields=("nowhere",))


def _is_p2(project: str, folder: str, title: str) -> bool:
    return (project, folder, title) == ("p2", "/srv/two", "A session")


def test_filters(tree: Tree, ask: Ask) -> None:
    one = tree.session(project="p1", directory="/srv/one")
    two = tree.session(project="p2", directory="/srv/two", parentID=one)
    _, asked = tree.text(one, "gravel")
    _, output = tree.text(one, "gravel", "assistant")
    _, call = tree.tool(two, "bash", input={"command": "gravel"})
    other = tree.message(two, "assistant", modelID="big-model", agent="Plan", providerID="other")
    _, write = tree.tool(two, "write", message=other, input={"filePath": "/srv/x/notes.md", "content": "gravel"})
    assert set(parts(ask("gravel"))) == {asked, output, call, write}
    assert set(parts(ask("gravel", session=one))) == {asked, output}
    assert set(parts(ask("gravel", session_matches=_is_p2))) == {call, write}
    assert set(parts(ask("gravel", role="user"))) == {asked}
    assert set(parts(ask("gravel", role="assistant"))) == {output, call, write}
    assert set(parts(ask("gravel", tool="bash"))) == {call}
    assert set(parts(ask("gravel", tool="*"))) >= {call, write}
    assert set(parts(ask("gravel", model="BIG"))) == {write}
    assert set(parts(ask("gravel", agent="plan"))) == {write}
    assert set(parts(ask("gravel", file="notes.md"))) == {call, write}
    assert set(parts(ask("gravel", children=False))) == {asked, output}
    moment = ask("gravel", session=one).hits[0].time
    assert ask("gravel", since=moment).total + ask("gravel", until=moment).total == 4
    assert ask("gravel", until=1).total == 0


@pytest.mark.parametrize("name", ["session", "tool", "model", "agent", "file"])
def test_a_filter_that_is_not_text_finds_nothing(tree: Tree, ask: Ask, name: str) -> None:
    tree.text(tree.session(), "gravel")
    assert ask("gravel", **{name: "a\udcff"}).total == 0


@pytest.mark.parametrize(
    ("arguments", "fits"),
    [
        ("/srv/app/src/main.py", {"read", "edit"}),
        ("main.py", {"read", "edit", "other"}),
        ("MAIN.py", {"read", "edit", "other"}),
        ("src/main.py", {"read", "edit"}),
        ("ain.py", set[str]()),
        ("*.py", {"read", "edit", "other", "patch", "windows"}),
        ("app/src/*", {"read", "edit"}),
        ("src/", {"read", "edit"}),
        ("/srv/app/", {"read", "edit", "patch"}),
        ("/app/", set[str]()),
        ("Dev\\", {"windows"}),
        ("shop.py", {"windows"}),
        ("new.py", {"patch"}),
        ("/main.py", set[str]()),
        ("nowhere.txt", set[str]()),
    ],
)
def test_who_touched_a_file(tree: Tree, ask: Ask, arguments: str, fits: set[str]) -> None:
    session = tree.session()
    calls = {
        "read": {"filePath": "/srv/app/src/main.py"},
        "edit": {"filePath": "src/main.py"},
        "other": {"filePath": "/elsewhere/main.py"},
        "patch": {"patchText": "*** Begin Patch\n*** Add File: lib/new.py\n+x"},
        "shell": {"command": "cat main.py"},
        "windows": {"filePath": "C:\\Dev\\shop.py"},
    }
    names = {tree.tool(session, name, input=arguments)[1]: name for name, arguments in calls.items()}
    assert {names[str(part)] for part in parts(ask(file=arguments))} == fits
    for hit in ask(file=arguments).hits:
        assert hit.snippet.field == "paths"


def test_a_file_named_from_here_is_the_one_here(
    tree: Tree, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _, here = tree.tool(tree.session(), "read", input={"filePath": str(tmp_path / "a.py")})
    tree.tool(tree.session(), "read", input={"filePath": "/other/a.py"})
    for named in (str(tmp_path / "a.py"), "./a.py", f"../{tmp_path.name}/a.py", f"{tmp_path}/", "./"):
        assert parts(ask(file=named)) == [here], named
    assert len(parts(ask(file="a.py"))) == 2


def test_titles_and_prompts_come_before_outputs_and_new_before_old(tree: Tree, ask: Ask) -> None:
    old = tree.session(title="gravel")
    _, first = tree.text(old, "gravel")
    _, output = tree.tool(old, "bash", output="gravel")
    for _ in range(20):
        tree.text(old, "something else entirely")
    assert [(hit.type, hit.part) for hit in ask("gravel").hits] == [("title", None), ("text", first), ("tool", output)]
    assert parts(ask("gravel", newest=True)) == [output, first, None]
    new = tree.session(title="other", time={"created": NOW, "updated": NOW})
    message = tree.message(new, time={"created": NOW})
    fresh = tree.part(new, message, type="text", text="gravel")
    assert parts(ask("gravel"))[:2] == [None, fresh]
    scores = [hit.score for hit in ask("gravel").hits]
    assert scores == sorted(scores, reverse=True)


def test_what_is_newer_comes_first_whenever_it_was_indexed(tree: Tree, ask: Ask) -> None:
    _, new = _said_at(tree, NOW, "gravel")
    assert parts(ask("gravel")) == [new]
    _, old = _said_at(tree, NOW - 200 * DAY, "gravel")
    assert parts(ask("gravel")) == [new, old]


def test_the_newest_are_ranked_where_there_are_too_many(tree: Tree, ask: Ask) -> None:
    text = [_said_at(tree, NOW - day * DAY, "gravel")[1] for day in range(9)]
    assert parts(ask("gravel", limit=3, ranked=3)) == text[:3]


def _said_at(tree: Tree, moment: int, text: str) -> tuple[str, str]:
    session = tree.session(time={"created": moment, "updated": moment})
    message = tree.message(session, time={"created": moment})
    return message, tree.part(session, message, type="text", text=text)


def test_only_whole_words_are_marked_where_whole_words_were_looked_for(tree: Tree, ask: Ask) -> None:
    tree.text(tree.session(), "gravelly gravel")
    assert ask("gravel").hits[0].snippet.marks == ((9, 15),)
    assert ask("gravel*").hits[0].snippet.marks == ((0, 6), (9, 15))


def test_pages_add_up_to_all_and_counts_are_true(tree: Tree, ask: Ask) -> None:
    for number in range(30):
        session = tree.session()
        for _ in range(3):
            tree.text(session, f"gravel {'stone ' * (number % 5)}")
    for mode, text in (("words", "gravel"), ("words", "*rave*"), ("regex", "gra.el"), ("text", "gravel ")):
        whole = ask(text, mode)
        assert (whole.total, whole.sessions, len(whole.hits)) == (90, 30, 90)
        pages = [ask(text, mode, limit=20, offset=offset) for offset in range(0, 120, 20)]
        assert [len(page.hits) for page in pages] == [20, 20, 20, 20, 10, 0]
        assert {page.total for page in pages} == {90}
        assert [part for page in pages for part in parts(page)] == parts(whole)


def test_pages_continue_beyond_what_is_ranked(tree: Tree, ask: Ask) -> None:
    session = tree.session()
    for number in range(60):
        tree.text(session, f"gravel {number}")
    pages = [ask("gravel", limit=10, offset=offset, ranked=25) for offset in range(0, 60, 10)]
    result = [part for page in pages for part in parts(page)]
    assert (len(result), len(set(result))) == (60, 60)
    assert set(result) == set(parts(ask("gravel")))


def test_a_hit_names_the_very_part_and_shows_the_place(tree: Tree, ask: Ask) -> None:
    session = tree.session(title="Where")
    tree.text(session, "nothing here")
    message, part = tree.text(session, f"{'filler ' * 500}the gravel\n\troad {'filler ' * 500}", "assistant")
    (hit,) = ask("gravel road").hits
    assert (hit.session, hit.message, hit.part, hit.type, hit.role) == (session, message, part, "text", "assistant")
    assert len(hit.snippet.text) < 200
    assert [hit.snippet.text[start:end] for start, end in hit.snippet.marks] == ["gravel", "road"]
    assert "gravel road" in hit.snippet.text
    document = hit.document()
    assert list(document)[:7] == ["sessionID", "messageID", "partID", "type", "time", "snippet", "score"]
    (title,) = ask("where").hits
    assert (title.message, title.part, title.type) == (None, None, "title")


def test_long_runs_of_data_are_not_words_and_giant_texts_have_an_end(tree: Tree, ask: Ask, index: DerivedCache) -> None:
    session = tree.session()
    _, part = tree.text(session, f"before {'QUJD' * 5_000} after")
    _, giant = tree.text(session, "word " * 300_000 + "beyond")
    assert parts(ask("after")) == [part]
    assert parts(ask("word")) == [giant]
    assert ask("beyond").total == 0
    index.write(build_vocabulary)
    longest = "SELECT max(length(word)) FROM term"
    assert index.query(TEXT, lambda db: db.execute(longest).fetchone()[0]) <= tokenizer.MAX_WORD_LENGTH
    tree.text(session, f"{'Z' * 5_000} later")
    assert ask("*late*").total == 1
    assert index.query(TEXT, lambda db: db.execute(longest).fetchone()[0]) <= tokenizer.MAX_WORD_LENGTH


CORPUS = [
    "the quick brown fox",
    "quick_brown = fox.jump(over)",
    "QuickBrownFox jumps",
    "a-b a_b a.b ab",
    "",
    "x",
    "naïve café “quoted” text",
    "line one\nline two\nend",
    "C:\\path\\to\\file.txt",
    "aaa bbb ccc aab",
    "日本語のテスト and english",
    "tab\tseparated\x00nul",
    "foo(bar) [baz] {qux} ^caret$ *star* +plus? a|b",
]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DerivedCache, dict[str, str]]]:
    folder = tmp_path_factory.mktemp("corpus")
    tree = Tree(folder / "storage")
    session = tree.session(title="")
    texts = {tree.text(session, text)[1]: text for text in CORPUS}
    index = DerivedCache(find_stores(str(tree.root)), folder=str(folder / "cache"))
    index.refresh(TEXT)
    yield index, texts
    index.close()


@settings(max_examples=150)
@example("NEAR(a b)", "words")
@example('"a" OR "b', "words")
@example("said:x ^a {b}:c a+b -", "words")
@example("\ud800 \x00 *", "words")
@example("* ** *** -* -", "words")
@example("a" * 5_000, "words")
@example("x " * 3_000, "words")
@example('"' * 99, "text")
@given(st.text(max_size=60), st.sampled_from(["words", "text", "regex"]))
def test_no_question_is_too_strange(corpus: tuple[DerivedCache, dict[str, str]], text: str, mode: Any) -> None:
    index, texts = corpus
    try:
        result = search(index, Query(text, mode, limit=5))
    except UsageError:
        assert mode == "regex"
        return
    assert len(result.hits) == min(5, result.total)
    assert result.total <= len(texts)


LITERALS = st.sampled_from(
    ["quick", "br", "fox", "a", "b", "_", " ", r"\.", "jump", "x", "é", "line", r"\(", "日本", "aa"]
)
ATOMS = st.one_of(
    LITERALS,
    st.sampled_from(
        [
            r"\w+",
            r"\s",
            r"\b",
            ".",
            "[a-f]",
            "[^x]",
            "(quick|slow)",
            r"\w{3}",
            ".{10,}",
            "[a-z]{12}",
            "(o.){2}",
            "(?:fox)?",
            "^",
            "$",
            r"\d*",
        ]
    ),
    st.tuples(LITERALS, st.sampled_from(["?", "*", "+", "{2}", "{0,3}", "+?"])).map("".join),
)
PATTERNS = st.lists(ATOMS, min_size=1, max_size=5).map("".join)


@settings(max_examples=150)
@given(st.lists(PATTERNS, min_size=1, max_size=2).map("|".join))
def test_the_index_finds_what_reading_everything_would(
    corpus: tuple[DerivedCache, dict[str, str]], pattern: str
) -> None:
    index, texts = corpus
    try:
        compiled = re.compile(pattern, re.IGNORECASE | re.MULTILINE)
    except re.error:
        return
    expected = {part for part, text in texts.items() if text and compiled.search(f"{text}\n\n\n\n\n")}
    assert {hit.part for hit in search(index, Query(pattern, "regex", limit=0)).hits} == expected


@settings(max_examples=150)
@given(st.sampled_from([text for text in CORPUS if text]), st.integers(0, 20), st.integers(1, 12))
def test_any_piece_of_a_text_finds_it(
    corpus: tuple[DerivedCache, dict[str, str]], text: str, start: int, length: int
) -> None:
    index, texts = corpus
    piece = text[start : start + length]
    if not piece.strip():
        return
    expected = {part for part, kept in texts.items() if re.search(re.escape(piece), kept, re.IGNORECASE)}
    assert {hit.part for hit in search(index, Query(piece, "text", limit=0)).hits} == expected
    if piece.isascii() and piece.isalnum():
        result = {hit.part for hit in search(index, Query(f"*{piece}*", limit=0)).hits}
        assert result == {part for part, kept in texts.items() if piece.lower() in _without_accents(kept)}


def _without_accents(text: str) -> str:
    return "".join(item for item in normalize("NFKD", text.lower()) if not combining(item))


@pytest.mark.parametrize("name", ["opencode-1.1.65", "opencode-1.18.33", "opencode-1.2", "id-wrap"])
def test_everything_in_the_corpora_is_found_by_its_own_words(name: str) -> None:
    path = str(FIXTURES / name)
    store = open_store(path)
    index = DerivedCache(find_stores(path))
    index.refresh(TEXT)
    expected: dict[str, set[str]] = {}
    for (_, _, part), value in store.scan(("part",)):
        state = value.get("state", {})
        for text in (value.get("text"), state.get("output"), state.get("error"), state.get("input", {}).get("command")):
            for word in re.findall("[A-Za-z0-9]{3,}", text or "")[:20]:
                expected.setdefault(word.lower(), set()).add(part)
    assert expected
    for word, holders in expected.items():
        assert holders <= {hit.part for hit in search(index, Query(f'"{word}"', limit=0)).hits}, word
    index.close()


def test_words_of_a_question() -> None:
    assert [atom.text for atom in parse('one "two three" four* -five')] == ["one", "two three", "four", "five"]
    assert [atom.negated for atom in parse('one "two three" four* -five')] == [False, False, False, True]
    assert parse("commit --no-verify")[1] == Atom("--no-verify")
    assert [atom.text for atom in parse("a && b - c")] == ["a", "b", "c"]
    assert [atom.text for atom in parse("foo AND bar")] == ["foo", "bar"]
    assert [atom.text for atom in parse("--")] == ["--"]
    assert parse("") == parse('""') == []


def test_what_a_text_must_hold() -> None:
    assert required_terms("x.read(y").words == (("read", False),)
    assert required_terms(" parse").words == (("parse", True),)
    assert required_terms("parse").inside == "parse"
    assert required_terms("caf\u00e9 x").inside == "caf"
    assert terms_of_regex(r"\d+") is None
    assert terms_of_regex(r"(?x) a b c") is None
    assert terms_of_regex(r"\x41bc") is None
    assert terms_of_regex("abc|d*") is None
    for counted in (r"\d{10}", ".{100}", "[a-f]{40}", "(ab){12}", r"\s{12,34}?", "(?:x|y){10,}"):
        assert terms_of_regex(counted) is None, counted
    assert terms_of_regex(r"[0-9]{12}-abc-") == [RequiredTerms((("abc", False),), "")]


def test_a_snippet_is_about_what_was_looked_for() -> None:
    text = f"gravel {'x ' * 200}gravel and sand {'y ' * 200}"
    both = [re.compile("gravel"), re.compile("sand")]
    result = snippet({"said": text}, both)
    assert "gravel and sand" in result.text
    assert snippet({"tool": "bash", "input": "ls"}, [re.compile("zzz")]).text == "ls"
    assert snippet({}, both).text == ""
    assert snippet({"said": "a" * 10_000}, [re.compile("a*")]).text.startswith("a")


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="the zone is the system's")
def test_matches_are_counted_by_the_month_of_the_local_time(
    tree: Tree, index: DerivedCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as zone:
        zone.setenv("TZ", "America/New_York")
        time.tzset()
        noon = datetime(2026, 8, 1, 12, tzinfo=UTC)
        for hours, word in ((0, "august"), (-9, "july")):  # 23:00 of the day before, by local time
            session = tree.session()
            moment = int((noon + timedelta(hours=hours)).timestamp() * 1000)
            tree.part(session, tree.message(session, time={"created": moment}), type="text", text=word)
        index.refresh(TEXT)
        months = {word: newest_matches(index, Query(word)).facets["month"] for word in ("august", "july")}
    time.tzset()
    assert months == {"august": {"2026-08": 1}, "july": {"2026-07": 1}}
