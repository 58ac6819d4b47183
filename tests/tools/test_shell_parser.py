from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opensesh.tools.shell.lexer import Unparsable
from opensesh.tools.shell.parser import parse


def texts(source: str) -> list[str]:
    return [command.text for command in parse(source).commands]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("", []),
        ("ls -la", ["ls -la"]),
        ("a; b && c || d | e & f", ["a", "b", "c", "d", "e", "f"]),
        ("a\n\nb # c; d\ne", ["a", "b", "e"]),
        ("a \\\n  b", ["a \\\n  b"]),
        ("echo 'a; b' \"c; d\" e\\;f", ["echo 'a; b' \"c; d\" e\\;f"]),
        ("echo $(rm x) `rm y`", ["rm x", "rm y", "echo $(rm x) `rm y`"]),
        ('echo "$(rm "a b")"', ['rm "a b"', 'echo "$(rm "a b")"']),
        ("echo `echo \\`rm x\\``", ["rm x", "echo `rm x`", "echo `echo \\`rm x\\``"]),
        ("(cd a; rm b) > out", ["cd a", "rm b", "> out"]),
        ("{ a; b; } 2>&1", ["a", "b", "2>&1"]),
        ("if a; then b; elif c; then d; else e; fi", ["a", "b", "c", "d", "e"]),
        ("while a; do b; done < in", ["a", "b", "< in"]),
        ("until a; do b; done", ["a", "b"]),
        ("for x in 1 $(a) *.py; do b $x; done", ["a", "b $x"]),
        ("for x; do b; done", ["b"]),
        ("for ((i=0; i<$(a); i++)); do b; done", ["a", "b"]),
        ("select x in a b; do c; done", ["c"]),
        ("case $(a) in x|y) b;; (z) c;& *) d; esac; e", ["a", "b", "c", "d", "e"]),
        ("f() { a; }; f", ["a", "f"]),
        ("f ()\n(a)", ["a"]),
        ("function f { a; }", ["a"]),
        ("[[ $x =~ ^(a|b)$ && -f $(c) ]] && d", ["c", "d"]),
        ("! a", ["a"]),
        ("time -p a", ["a"]),
        ("X=1 Y=$(a) b c", ["a", "X=1 Y=$(a) b c"]),
        ("X=(1 $(a) 3)", ["a", "X=(1 $(a) 3)"]),
        ("diff <(a) >(b)", ["a", "b", "diff <(a) >(b)"]),
        ("echo ${a}b; rm x}", ["echo ${a}b", "rm x}"]),
        ('echo "${a}" ${#b} "${c%/*}"; d', ['echo "${a}" ${#b} "${c%/*}"', "d"]),
        ("echo ${x:-$(a)} ${y:-<(b)}", ["a", "b", "echo ${x:-$(a)} ${y:-<(b)}"]),
        ("echo $((1 + $(a)))", ["a", "echo $((1 + $(a)))"]),
        ("cat <<E > f\n$(a) 'b\nE\nc", ["cat <<E > f", "a", "c"]),
        ("cat <<'E'\n$(a) `b` \"\nE\nc", ["cat <<'E'", "c"]),
        ("cat <<-E\n\tx\n\tE\nc", ["cat <<-E", "c"]),
        ("cat <<A <<B\n1\nA\n2\nB\nc", ["cat <<A <<B", "c"]),
        ("cat <<E && (\n'\nE\na\nb \\')", ["cat <<E", "a", "b \\'"]),
        (
            'm "$(cat <<\'E\'\nit\'s (a) "test"\nE\n)" && p',
            ["cat <<'E'", 'm "$(cat <<\'E\'\nit\'s (a) "test"\nE\n)"', "p"],
        ),
        ("a > /dev/null 2>&1 &> b <<< 'c d'", ["a > /dev/null 2>&1 &> b <<< 'c d'"]),
        ("unt\\\nil a; do b; done", ["a", "b"]),
        ("echo if then; a", ["echo if then", "a"]),
        ("echo {a,b} }", ["echo {a,b} }"]),
        ("exec {fd}> f", ["exec {fd}> f"]),
    ],
)
def test_every_command_is_found(source: str, expected: list[str]) -> None:
    assert texts(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        "echo 'a",
        'echo "a',
        "echo `a",
        "echo $(a",
        "(a",
        "a)",
        "a \\",
        "cat <<E\nnever",
        "cat <<E",
        "echo $(cat <<E)\nx\nE",
        "a > ",
        "a >! b",
        "a &>>!b",
        "a (b)",
        "ls !(a|b)",
        "ls *(e:'rm x':)",
        "if (a) b",
        "{ a; } always { b; }",
        "coproc a",
        "echo $'it\\'s'",
        "echo $'\\0'",
        "echo $'\\x{72}m'",
        "echo $'\\cA'",
        "echo ${ rm x; }",
        "echo ${| rm x; }",
        'echo "${x:-\'}"',
        "echo $((a); (b))",
        "echo $[1]",
        "echo $\\\n(rm x)",
        "cat <<E\nE\\\n\nE\n",
        "function f g { rm x; }",
        "x=(a)b c",
        "a;; b",
        "case x in",
        "case x in a b) c;; esac",
        "[[ a; b ]]",
        "a\0b",
        "$(" * 80 + "a" + ")" * 80,
    ],
)
def test_what_is_not_certain_is_not_guessed(source: str) -> None:
    with pytest.raises(Unparsable):
        parse(source)


def test_shells_without_extensions_see_other_commands() -> None:
    assert [command.text for command in parse("[[ a || rm x ]]", "posix").commands] == ["[[ a", "rm x ]]"]
    assert [command.words[0].value for command in parse("a &>b c", "posix").commands if command.words] == ["a", "c"]


def test_words_have_the_values_that_the_command_receives() -> None:
    command = parse("r\"m\" 'a b' c\\ d \"$X\"y $'e' > out 2>&1").commands[0]
    assert [word.value for word in command.words] == ["rm", "a b", "c d", "$Xy", "e"]
    assert [word.static for word in command.words] == [True, True, True, False, True]
    assert command.words[3].bare == "y"
    assert [(redirect.operator, redirect.target.value, redirect.writes) for redirect in command.redirects] == [
        (">", "out", True),
        (">&", "1", False),
    ]


def test_characters_spelled_by_number_are_those_characters() -> None:
    command = parse(r"$'\x72\155' $'\u002fetc' $'\U2f\tetc' $'a\q\\\"b'").commands[0]
    assert [word.value for word in command.words] == ["rm", "/etc", "/\tetc", 'a\\q\\"b']
    assert all(word.static for word in command.words)
    assert not parse(r"$'\x72m'", "posix").commands[0].words[0].static


def test_subshells_pipes_and_background_are_scopes_of_their_own() -> None:
    scopes = {command.text: command.scope for command in parse("a; (b; (c)); d | e; { f; g; } & h; $(i); j").commands}
    assert scopes["a"] == scopes["h"] == scopes["j"] == ()
    assert len(scopes["b"]) == 1
    assert scopes["c"][:1] == scopes["b"]
    assert scopes["d"] != scopes["e"]
    assert scopes["f"] == scopes["g"] != ()
    assert len(scopes["i"]) == 1


names = st.sampled_from([f"cmd{number}" for number in range(40)])
arguments = st.sampled_from(["x", "'a b'", '"; z"', "$X", "--flag=1", "a\\;b", "*.py", "{1,2}", "''", "12"])


def compound(inner: st.SearchStrategy[tuple[str, list[str]]]) -> st.SearchStrategy[tuple[str, list[str]]]:
    def joined(template: str, count: int) -> st.SearchStrategy[tuple[str, list[str]]]:
        return st.lists(inner, min_size=count, max_size=count).map(
            lambda pieces: (
                template.format(*(text for text, _ in pieces)),
                [name for _, result in pieces for name in result],
            )
        )

    templates = [
        ("{0}; {1}", 2),
        ("{0} && {1}", 2),
        ("{0} || {1}", 2),
        ("{0} | {1}", 2),
        ("{0}\n{1}", 2),
        ("{0} & {1}", 2),
        ("({0})", 1),
        ("{{ {0}; }}", 1),
        ("if {0}; then {1}; else {2}; fi", 3),
        ("for i in a b; do {0}; done", 1),
        ("while {0}; do {1}; done", 2),
        ("case x in x|y) {0} ;; *) {1} ;; esac", 2),
        ("f() {{ {0}; }}", 1),
        ("echo $( {0})", 1),
        ('echo "a $( {0}) b"', 1),
        ("X=$( {0}) echo", 1),
        ("echo <({0})", 1),
        ("echo ${{x:-$( {0})}}", 1),
        ("[[ -n $( {0}) ]] && {1}", 2),
        ("cat <<E\n$( {0})\nE\n{1}", 2),
        ("cat <<'E'\nit's $(\nE\n{0}", 1),
        ('echo "$(cat <<E\n(\nE\n{0}\n)"', 1),
        ("! {0}", 1),
        ("{0} # ' it\n{1}", 2),
        ("( ( {0} ) )", 1),
    ]
    return st.one_of([joined(template, count) for template, count in templates])


simple = st.tuples(names, st.lists(arguments, max_size=3)).map(lambda pair: (" ".join([pair[0], *pair[1]]), [pair[0]]))
lines = st.recursive(simple, compound, max_leaves=6)


@given(lines)
@settings(max_examples=300)
def test_every_command_name_of_a_valid_line_is_reported(line: tuple[str, list[str]]) -> None:
    source, expected = line
    try:
        commands = parse(source).commands
    except Unparsable:
        assert "<<" in source  # heredocs do not mix with what must end on one line
        return
    assert set(expected) <= {command.words[0].value for command in commands if command.words}


pieces = st.sampled_from(
    """ca cb cc ; & && || | ( ) { } $( ` " ' \\ $ ${ x= x=( <<E E < > >> &> <( # if then else fi while do done for in
    case esac ;; [[ ]] (( )) $(( ! $X ${X} "${X}" f() function time = [ ] ~ 1""".split()
)
junk = st.lists(st.tuples(pieces, st.sampled_from(["", " ", " ", "\n"])), min_size=1, max_size=14).map(
    lambda result: "".join(piece + gap for piece, gap in result)
)


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@given(source=st.one_of(junk, lines.map(lambda line: line[0].replace("cmd", "c"))))
@settings(max_examples=150)
def test_bash_itself_runs_no_command_that_was_not_reported(
    source: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    try:
        result = parse(source).commands
    except Unparsable:
        return
    reported: set[str] = set()
    for command in result:
        for word in command.words:
            reported |= {word.value, word.bare}
            if word.bare:
                break
    ran = run_in_bash(source, tmp_path_factory.getbasetemp() / "bash")
    assert {name for name in ran if name.startswith("c")} <= reported


def run_in_bash(source: str, folder: Path) -> set[str]:
    """The names of the commands that bash would have run, had there been any."""
    folder.mkdir(exist_ok=True)
    log, profile = folder / "log", folder / "profile"
    log.write_text("")
    handler = 'printf "%s\\\\0" "$1" >> "$LOG"; [ "${#1}" = 2 ];'
    profile.write_text(f"LOG={log}\ncommand_not_found_handle() {{ {handler} }}\n")
    bash = subprocess.Popen(
        [shutil.which("bash") or "bash", "--norc", "-c", source],
        cwd=folder,
        env={"PATH": "/nonexistent", "BASH_ENV": str(profile)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    with suppress(subprocess.TimeoutExpired):  # a loop without end: what it ran so far is what counts
        bash.wait(0.3)
    with suppress(ProcessLookupError):
        os.killpg(bash.pid, 9)
    bash.wait()
    return set(log.read_text(errors="replace").split("\0"))
