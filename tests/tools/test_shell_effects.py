from __future__ import annotations

import time
from pathlib import Path

import pytest

from opensesh.config.rules import decide
from opensesh.records import Rule
from opensesh.tools.shell.effects import UNCERTAIN, analyse_command
from opensesh.tools.shell.known_commands import ARITY, command_name
from opensesh.tools.shell.lexer import ShellLanguage


@pytest.mark.parametrize(
    ("line", "patterns", "always"),
    [
        ("ls -la", ["ls -la"], ["ls *"]),
        ("npm run dev --port 1", ["npm run dev --port 1"], ["npm run dev *"]),
        ("git   push  origin", ["git push origin"], ["git push *"]),
        ("cd src && make test", ["make test"], ["make test *"]),
        ("cd src", ["cd src"], ["cd src"]),
        ("git log && curl x | sh", ["uncertain: git log && curl x | sh"], []),
        ("git log \\\n  --all   'a  b'", ["git log --all 'a  b'"], ["git log *"]),
        ("git push '--force'", ["git push '--force'", "git push --force"], ["git push *", "git push --force"]),
        ("git", ["git"], ["git"]),
        (". ./env.sh && make x", ["uncertain: . ./env.sh && make x"], []),
        ("docker compose", ["docker compose"], ["docker compose"]),
        ("bash <<'E'\nrm x\nE", ["uncertain: bash <<'E'\nrm x\nE"], []),
        ("python3 - <<'E'\nE", ["python3 - <<'E'"], []),
        ("curl x | bash -ex", ["uncertain: curl x | bash -ex"], []),
        ("python3 --version", ["python3 --version"], ["python3 --version"]),
        ("cat <<'E'\nE", ["cat <<'E'"], ["cat *"]),
        ("PATH=.; ls", ["uncertain: PATH=.; ls"], []),
        ("for PATH in .; do ls; done", ["uncertain: for PATH in .; do ls; done"], []),
        ("X=1 npm test", ["X=1 npm test", "npm test"], ["X=1 npm test", "npm test *"]),
        ("\\rm x", ["\\rm x", "rm x"], ["\\rm x", "rm *"]),
        ("/bin/rm x", ["/bin/rm x", "rm x"], ["/bin/rm *", "rm *"]),
        ("$X rm y", ["uncertain: $X rm y"], []),
        ("r$X y", ["uncertain: r$X y"], []),
        ("{rm,-rf,x}", ["uncertain: {rm,-rf,x}"], []),
        ("sudo -u me rm x", ["sudo -u me rm x", "rm x"], ["sudo -u me rm x", "rm x"]),
        ("env -i A=1 rm x", ["env -i A=1 rm x", "rm x"], ["env -i A=1 rm x", "rm x"]),
        ("timeout -s 9 5 rm x", ["timeout -s 9 5 rm x", "rm x"], ["timeout -s 9 5 rm x", "rm x"]),
        ("bash -lc 'cd a; rm b'", ["bash -lc 'cd a; rm b'", "rm b"], ["bash -lc 'cd a; rm b'", "rm b"]),
        ("a | xargs -n 1 rm -f", ["a", "xargs -n 1 rm -f", "rm -f"], ["a *", "xargs -n 1 rm -f", "rm -f"]),
        (
            "find . -exec rm {} \\; -print",
            ["find . -exec rm {} \\; -print", "rm {}"],
            ["find . -exec rm {} \\; -print", "rm {}"],
        ),
        ('eval "rm $X"', ['uncertain: eval "rm $X"'], []),
        ("git -C x push", ["git -C x push", "git push"], ["git -C x push", "git push"]),
        (
            "/bin/git --no-pager -c a=b log",
            ["/bin/git --no-pager -c a=b log", "git --no-pager -c a=b log", "git log"],
            ["/bin/git *", "git --no-pager -c a=b log", "git log"],
        ),
        ("python -c 'x*y'", ["python -c 'x*y'"], []),
        ("> out", ["> out"], ["> out"]),
        ("awk '{print $(NF-1)}'", ["awk '{print $(NF-1)}'"], ["awk *"]),
        ("X='costs $5'; [[ $X == '$5' ]]", ["X='costs $5'; [[ $X == '$5' ]]"], []),
        ("X='see `rm`'; echo \"$X\"", ["uncertain: X='see `rm`'; echo \"$X\""], []),
        ("printf 'see `rm`: 5$\\n'", ["printf 'see `rm`: 5$\\n'"], ["printf *"]),
        ("X=1", ["X=1"], ["X=1"]),
        ("ls -la && git status", ["ls -la", "git status"], ["ls *", "git status *"]),
        ("FOO=1 pytest -q", ["FOO=1 pytest -q", "pytest -q"], ["FOO=1 pytest -q", "pytest *"]),
        ("grep -rn x src | head -5", ["grep -rn x src", "head -5"], ["grep *", "head *"]),
        ("echo hi > out.txt", ["echo hi > out.txt"], ["echo *"]),
        ('for f in *.py; do wc -l "$f"; done', ['wc -l "$f"'], ["wc *"]),
        ("npm test 2>&1 | tail -20", ["npm test 2>&1", "tail -20"], ["npm test *", "tail *"]),
        ("[ -f a ] && cat a || echo none", ["[ -f a ]", "cat a", "echo none"], ["[ *", "cat *", "echo *"]),
        ("if [[ -d src && ! -L src ]]; then ls src; fi", ["ls src"], ["ls *"]),
        ("set -euo pipefail; make", ["set -euo pipefail", "make"], ["set -euo pipefail", "make"]),
        ('version=$(git describe); echo "$version"', ["git describe", 'echo "$version"'], ["git describe *", "echo *"]),
        ("sleep 1 & wait $!", ["sleep 1", "wait $!"], ["sleep *", "wait *"]),
        (
            'while IFS= read -r name; do echo "$name"; done < names',
            ["IFS= read -r name", "read -r name", 'echo "$name"'],
            ["IFS= read -r name", "read -r name", "echo *"],
        ),
        ("echo ${name%.py} ${#name} ${name:-none}", ["echo ${name%.py} ${#name} ${name:-none}"], ["echo *"]),
        ("diff <(sort a) <(sort b)", ["sort a", "sort b", "diff <(sort a) <(sort b)"], ["sort *", "diff *"]),
        (
            "NODE_ENV=test CI=1 npm test",
            ["NODE_ENV=test CI=1 npm test", "npm test"],
            ["NODE_ENV=test CI=1 npm test", "npm test *"],
        ),
        ("chrt -o 0 rm x", ["chrt -o 0 rm x", "rm x"], ["chrt -o 0 rm x", "rm x"]),
    ],
)
def test_commands_become_patterns(line: str, patterns: list[str], always: list[str], tmp_path: Path) -> None:
    result = analyse_command(line, str(tmp_path))
    assert result.patterns == patterns
    assert result.always == always


@pytest.mark.parametrize("line", ["echo 'x && rm -rf y", "echo $((a); (rm -rf y))", "eval " * 30 + "rm -rf y"])
def test_a_line_that_cannot_be_read_is_allowed_only_by_a_rule_for_everything(line: str, tmp_path: Path) -> None:
    result = analyse_command(line, str(tmp_path))
    assert result.patterns == [UNCERTAIN + line]
    assert result.always == []
    allow_some = [
        Rule(permission="bash", pattern="echo *", action="allow"),
        Rule(permission="bash", pattern="eval *", action="allow"),
    ]
    assert decide("bash", result.patterns[0], allow_some).action == "ask"
    assert decide("bash", result.patterns[0], [Rule(permission="bash", pattern="*", action="allow")]).action == "allow"


def verdicts(line: str, directory: Path, shell: ShellLanguage = "bash") -> set[str]:
    rules = [
        Rule(permission="bash", pattern="*", action="allow"),
        Rule(permission="bash", pattern="rm *", action="deny"),
    ]
    effects = analyse_command(line, str(directory), shell)
    return {decide("bash", subject, rules).action for subject in (*effects.patterns, *effects.possible)}


@pytest.mark.parametrize("line", ["echo 'x && rm -rf y", "echo $((1; $(rm -rf y)))", "rm x\n("])
def test_what_is_forbidden_is_found_in_a_line_that_cannot_be_read(line: str, tmp_path: Path) -> None:
    assert "deny" in verdicts(line, tmp_path)


@pytest.mark.parametrize(
    "line",
    [
        "git log && rm x",
        "git log; rm x",
        "git log | rm x",
        "git log & rm x",
        "git log\nrm x",
        "git log $(rm x)",
        "git log `rm x`",
        'git log "$(rm x)"',
        "git log <(rm x)",
        "git log <<E\n$(rm x)\nE",
        "git log || { rm x; }",
        "(rm x)",
        "if true; then rm x; fi",
        "f() { rm x; }; f",
        "git log --format=${X:-$(rm x)}",
        "X=$(rm x) git log",
        "command rm x",
        "nohup rm x",
        "bash -c 'git log; rm x'",
        "sudo env A=b nice -n 5 rm x",
        "echo x | xargs rm",
        "find . -execdir rm {} +",
        "trap 'rm x' EXIT",
        "ls | xargs -i rm {}",
        "ls | xargs -l rm",
        "ls | xargs -0I {} rm {}",
        "ls | xargs --max-args 1 rm",
        "sudo -nu root rm x",
        "sudo --user root rm x",
        "sudo --us=root rm x",
        "timeout --signal KILL 5 rm x",
        "stdbuf --output L rm x",
        "env -S 'rm x'",
        "env -vS'rm x'",
        "env --split-string='nice rm x'",
        "env -uS rm x",
        "flock lock -c 'git log; rm x'",
        "watch -n 2 'git log; rm x'",
        "bash -ce 'rm x'",
        "bash -c -o pipefail 'rm x'",
        "su me -c 'rm x'",
        "su --command='rm x' me",
        "script -qc 'rm x' /dev/null",
        "fd old -x rm",
        "busybox rm x",
        "gosu root rm x",
        "su-exec root rm x",
        "setuidgid root rm x",
        "faketime 2020-01-01 rm x",
        "lckdo lock rm x",
        "runcon context rm x",
        "perf stat rm x",
        "rr record rm x",
        "systemd-inhibit rm x",
        "[[ 'a[$(rm x)]' -eq 0 ]]",
        "[[ -v 'a[`rm x`]' ]]",
        "test -v 'a[$(rm x)]'",
        "[ -v 'a[$(rm x)]' ]",
        "declare 'a[$(rm x)]=1'",
        "printf -v 'a[$(rm x)]' 1",
        "n='a[$(rm x)]'; echo $((n))",
        "n=('a[$(rm x)]'); echo $((n))",
        "for n in 'a[$(rm x)]'; do echo $((n)); done",
        "((a['$(rm x)']))",
        "echo ${a['$(rm x)']}",
        "'rm' x",
        "{,rm} x",
        'r"m" x',
        "r\\m x",
        "$'\\x72\\155' x",
        "/usr/bin/rm x",
        "$NOTHING rm x",
        "rm$NOTHING x",
        "r\\\nm x",
        "rm\tx",
        "time rm x",
        "! rm x",
        "{rm,x}",
    ],
)
def test_no_spelling_gets_around_a_rule(line: str, tmp_path: Path) -> None:
    assert "deny" in verdicts(line, tmp_path)


@pytest.mark.parametrize("shell", ["bash", "zsh", "ksh", "posix"])
def test_ordinary_lines_are_certain_for_every_known_shell(shell: ShellLanguage, tmp_path: Path) -> None:
    for line in (
        "ls -la && git status",
        "cd sub && make test",
        "a=1; echo $a > out",
        'for f in *.py; do wc -l "$f"; done',
    ):
        assert not analyse_command(line, str(tmp_path), shell).possible, line


def test_nothing_is_certain_for_an_unknown_shell(tmp_path: Path) -> None:
    assert analyse_command("ls", str(tmp_path), "other").patterns == [UNCERTAIN + "ls"]


def test_a_program_for_time_is_not_taken_for_the_word(tmp_path: Path) -> None:
    for line in ("time -o out rm x", "time -p rm x"):
        assert analyse_command(line, str(tmp_path), "posix").patterns == [UNCERTAIN + line]


def test_what_always_allows_never_covers_more_than_the_same_command(tmp_path: Path) -> None:
    for line in (
        "git log",
        "git",
        "npm",
        "npm run dev",
        "sudo ls",
        "sh -c ls",
        "FOO=1 make x",
        "find . -name '*.py'",
        "xargs rm",
    ):
        allowed = [
            Rule(permission="bash", pattern=pattern, action="allow")
            for pattern in analyse_command(line, str(tmp_path)).always
        ]
        for other in ("rm -rf /", "sudo rm x", "sh -c 'rm x'", "git push", "npm publish", "xargs shred"):
            patterns = analyse_command(other, str(tmp_path)).patterns
            assert "ask" in {decide("bash", pattern, allowed).action for pattern in patterns}, (line, other)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("cat a.txt", ["a.txt"]),
        ("rm -rf -- -x ../y", ["-x", "../y"]),
        ("cp --target-directory=/etc a", ["/etc", "a"]),
        ("cp -tsub a; mv -vtsub b; ln -stsub c; install -Dtsub d", ["sub", "a", "b", "c", "d"]),
        ("ls /etc", []),
        ("cd sub && cat ../a ../../b", ["sub", "a", "../b"]),
        ("(cd sub; cat a); cat b", ["sub", "sub/a", "b"]),
        ("cd sub | cat b", ["sub", "b"]),
        ("cd nowhere; cat ../a", ["nowhere", "../a", "a"]),
        ("cat < /etc/passwd > out 2> /dev/null", ["/etc/passwd", "out"]),
        ("cat {/etc/a,b}", ["/etc/a", "b"]),
        ("rm -rf /etc/$X/y", ["/etc"]),
        ("rm $X", []),
        ("cat $PWD/a", ["a"]),
        ('cat "$(pwd)/../a" `pwd`/b', ["../a", "b"]),
        ("bash -c 'rm /etc/x'", ["/etc/x"]),
        ("cat $'\\x2fetc\\057x'", ["/etc/x"]),
        ("cd sub && cd - && cat ../a", ["sub", "../a", "a"]),
        ("pushd sub; popd; cat ../a", ["sub", "../a", "a"]),
        ("bash -c 'cd sub' && cat ../a", ["sub", "../a"]),
        ("command cd sub && cat ../a", ["sub", "a"]),
        ("cp -t/etc -R../a b", ["/etc", "../a", "b"]),
        ("dd if=/dev/zero of=../a", ["../a"]),
        ('D=/etc; rm -rf $D/x "${D}"', ["/etc/x", "/etc"]),
        ("export D=/etc && cat $D/x", ["/etc/x"]),
        ("A=/etc; B=$A/x; cat $B", ["/etc/x"]),
        ("for f in a /etc/x; do cat $f; done", ["/etc/x", "a"]),
        ("cat $PLACE/a $NOWHERE/a", ["/place/a"]),
        ("cat $OLDPWD/a", ["a"]),
        ("cd -", []),
    ],
)
def test_files_are_found_from_where_the_command_runs(
    line: str, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLACE", "/place")
    monkeypatch.delenv("NOWHERE", raising=False)
    (tmp_path / "sub").mkdir()
    required = [str((tmp_path / path).resolve()) for path in expected]
    assert analyse_command(line, str(tmp_path)).paths == required


@pytest.mark.parametrize(
    "line",
    [
        "cat li*/x",
        "cat l?nk/x",
        "cat s*/[b]ack/x",
        "cd sub; cat b*/x",
        "cat .?/out/x",
        "cat .*/out/x",
        "cat s*/../li*/x",
    ],
)
def test_a_pattern_is_followed_through_links_and_upwards(line: str, tmp_path: Path) -> None:
    project, outside = tmp_path / "project", tmp_path / "out"
    (project / "sub").mkdir(parents=True)
    outside.mkdir()
    (project / "link").symlink_to(outside)
    (project / "sub" / "back").symlink_to(outside)
    assert str(outside / "x") in analyse_command(line, str(project)).paths


def test_a_pattern_that_leads_nowhere_else_names_itself_alone(tmp_path: Path) -> None:
    for name in ("a.py", "b.py", ".hidden"):
        (tmp_path / name).touch()
    assert analyse_command("cat *.py .[!.]*", str(tmp_path)).paths == [str(tmp_path / "*.py"), str(tmp_path / ".[!.]*")]


def test_no_number_of_values_hides_one_that_leads_away(tmp_path: Path) -> None:
    many = " ".join(f"f{number}" for number in range(1500))
    assert "/etc/x" in analyse_command(f"for f in {many} /etc/x; do cat $f; done", str(tmp_path)).paths


def test_files_are_found_in_a_line_that_cannot_be_read(tmp_path: Path, isolated: Path) -> None:
    (tmp_path / "link").symlink_to("/etc")
    result = analyse_command('echo "${x:-"a"}" $HOME/x of=/etc/y link/z --out=../w', str(tmp_path))
    assert result.patterns[0].startswith(UNCERTAIN)
    for path in (str(isolated / "x"), "/etc/y", str(tmp_path / "link" / "z"), str(tmp_path.parent / "w")):
        assert path in result.paths


def test_home_is_a_place_outside(tmp_path: Path, isolated: Path) -> None:
    for line in ("cat ~/x", "cat $HOME/x", 'cat "${HOME}/x"'):
        assert analyse_command(line, str(tmp_path)).paths == [str(isolated / "x")]
    assert analyse_command("cd", str(tmp_path)).paths == [str(isolated)]


def test_redirections_and_tee_write_files(tmp_path: Path) -> None:
    result = analyse_command("a > x; b >> y 2>&1; c | tee -a z; d < w; cat > v <<E\nE\n", str(tmp_path))
    assert result.writes == [str(tmp_path / name) for name in "xyzv"]


@pytest.mark.parametrize("target", ["/dev/stdin", "/dev/stdout", "/dev/fd/3", "/dev/{fd/3,null}"])
@pytest.mark.parametrize(
    "line",
    [
        "echo a 3<x >{}",
        "tee {} <x",
        "while read y; do ls 2>>{}; done <x",
        "y={}; (exec 3<x; ls >$y)",
        "bash -c 'ls >{}' <x",
    ],
)
def test_to_write_what_is_open_writes_the_file_that_was_opened_to_be_read(
    line: str, target: str, tmp_path: Path
) -> None:
    result = analyse_command(line.format(target), str(tmp_path))
    assert result.any_write or result.writes == [str(tmp_path / "x")]


def test_a_command_that_changes_what_is_open_changes_the_file_that_was_opened_to_be_read(tmp_path: Path) -> None:
    assert analyse_command("dd of=/dev/stdin <x", str(tmp_path)).changed == (str(tmp_path / "x"),)
    assert analyse_command("cat <x; ls >/dev/null 2>&1", str(tmp_path)).writes == []


@pytest.mark.parametrize(
    "target", ["x$Y", "${Y:-x}", "$(echo x)", "`echo x`", "*", "x?", "[x]", "{x,y}", "{a..b}", "$1x", '"$@"x']
)
@pytest.mark.parametrize("operator", [">", ">>", ">|", "<>", "2>", "&>", "| tee", ">&"])
def test_a_target_that_the_text_does_not_tell_may_be_any_file(target: str, operator: str, tmp_path: Path) -> None:
    result = analyse_command(f"ls {operator} {target}", str(tmp_path))
    assert result.any_write
    assert result.any_path


def test_a_directory_that_the_text_does_not_tell_may_be_any(tmp_path: Path) -> None:
    assert analyse_command("cd $(cat x) && ls", str(tmp_path)).any_path
    result = analyse_command("cd ${X:-..} && ls > out", str(tmp_path))
    assert result.any_path
    assert result.any_write
    assert not analyse_command("ls > /dev/null 2>&1; D=a; ls > $D", str(tmp_path)).any_path


def test_the_arity_table_names_commands() -> None:
    assert len(ARITY) > 100
    assert command_name(["git", "push", "origin"]) == ("git", "push")
    assert command_name(["git", "remote", "add", "x"]) == ("git", "remote", "add")
    assert command_name(["docker", "compose", "up", "-d"]) == ("docker", "compose", "up")
    assert command_name(["gh", "pr", "list", "x"]) == ("gh", "pr", "list")
    assert command_name(["ls", "-la"]) == ("ls",)
    assert command_name(["npm"]) == ("npm",)


@pytest.mark.parametrize(
    "line",
    [
        "ls > ${x}../out/f; x=sub/",
        "false && x=sub/; ls > ${x}../out/f",
        "if false; then x=sub/; fi; ls > ${x}../out/f",
        "(x=sub/); ls > ${x}../out/f",
        "x=sub/ & ls > ${x}../out/f",
        "x=sub/ ls > ${x}../out/f",
        "false && for x in sub/; do ls; done; ls > ${x}../out/f",
        "x=.; x+=./out/f; ls > $x",
        "x=sub; read -r x < names; ls > $x",
        "cd $(cat name); ls > $PWD/f",
    ],
)
def test_a_value_that_is_not_certainly_assigned_does_not_hide_a_file_outside(line: str, tmp_path: Path) -> None:
    (tmp_path / "project" / "sub").mkdir(parents=True)
    result = analyse_command(line, str(tmp_path / "project"))
    assert result.any_write or str(tmp_path / "out" / "f") in result.writes


def test_a_value_that_is_certainly_assigned_is_the_only_one(tmp_path: Path) -> None:
    for line in ("set -e; cd .\nD=a\nls > $D/f", "export D=a && ls > $D/f", "for D in a; do ls > $D/f; done"):
        assert analyse_command(line, str(tmp_path)).writes == [str(tmp_path / "a" / "f")], line


@pytest.mark.parametrize(
    "line",
    [
        "timeout $x ls",
        "timeout * ls",
        "bash -c l*",
        "[ * ]",
        "test $x",
        "printf *",
        "find . $x",
        "env PATH=. ls",
        "nice {a,b} ls",
        "echo rm x | xargs env",
        "echo -exec rm x | xargs find .",
        "echo -x rm x | xargs fd .",
        "xargs --process-slot-var=PATH ls",
        "strace -o '|x' ls",
        "strace -E PATH=. ls",
        "fakeroot --faked ./x ls",
        "dbus-run-session --dbus-daemon ./x ls",
        "echo rm x | parallel",
        "echo rm x | xargs -I ls ls",
        "((ls))",
        "find . -name $x",
        "find . *",
        "find . {-print,-delete}",
        "fd -Hx ls",
        "echo a\\\nb",
        "ls > /dev/tcp/127.0.0.1/9",
        "x=/dev/udp; ls 3<> $x/h/9",
        "cat < $(ls)",
        'read -r x; ls > "$x.txt"',
        "printf '%n' x",
        "for x in" + " a" * 2_000 + "; do ls; done",
        "ls;" * 2_000 + "ls",
    ],
)
def test_words_that_may_become_others_leave_a_line_uncertain(line: str, tmp_path: Path) -> None:
    assert analyse_command(line, str(tmp_path)).patterns == [UNCERTAIN + line]


@pytest.mark.parametrize(
    "line",
    [
        "find . -name *.py -o -name \\*.js -exec ls {} +",
        "ls -l \\\n  -a",
        "ls &&\\\n  ls",
        'ls > "$PWD/x"',
        "printf '%s %5d %% %.2f\\n' a 1 2",
    ],
)
def test_ordinary_spellings_leave_a_line_certain(line: str, tmp_path: Path) -> None:
    assert not analyse_command(line, str(tmp_path)).possible


@pytest.mark.parametrize("line", ["cd a;" * 500, "x[" * 20_000, "ls " + "[a" * 20_000, "cd {a,b}{a,b}{a,b}*;" * 20])
def test_a_line_takes_neither_time_nor_memory(line: str, tmp_path: Path) -> None:
    started = time.process_time()
    analyse_command(line, str(tmp_path))
    assert time.process_time() - started < 20
