from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from opensesh.config.rules import decide, rules
from opensesh.config.schema import Permission
from opensesh.errors import PermissionRefusedError, PermissionRejectedError, ToolFailedError
from opensesh.permissions import may_be_denied
from opensesh.tools.bash import BashTool
from opensesh.tools.shell.certainty import BUILTINS, is_private_variable
from opensesh.tools.shell.effects import analyse_command
from opensesh.tools.shell.sandbox import Confinement, find_lock

from ..tools.bench import Bench

LINES: dict[str, list[str]] = json.loads((Path(__file__).parent / "shell_lines.json").read_text())
needs_lock = pytest.mark.skipif(find_lock() is None, reason="this machine has no sandbox")
SHELLS = [name for name in ("bash", "zsh", "ksh", "dash") if shutil.which(name)]
SOME_ALLOWED: Permission = {
    "bash": {"*": "ask", "ls *": "allow", "read *": "allow", "git status*": "allow", "rm *": "deny"},
    "edit": "deny",
    "external_directory": "ask",
}
READERS_ALLOWED: Permission = {
    "bash": {
        "*": "ask",
        **dict.fromkeys((f"{name} *" for name in "cat echo fd find ls printf tee xargs".split()), "allow"),
        "git diff *": "allow",
    },
    "edit": "deny",
    "external_directory": "ask",
}
ALL_BUT_ONE: Permission = {
    "bash": {"*": "allow", "rm *": "deny"},
    "edit": "deny",
    "external_directory": "allow",
}
BEYOND_RULES = (
    "python3 -c",
    "perl -e",
    "awk ",
    "sed -n '1e",
    "tar ",
    "ssh ",
    "git -c core.sshCommand",
    "git -c alias",
    "vim ",
    "make -f",
    "unlink ",
    "mv ",
    "install ",
    "truncate ",
    "dd ",
    "ln -sf",
    "find . -name victim -delete",
    "gdb ",
    "rsync ",
    "expect ",
    "git rm",
    "cp /bin/rm",
    "ln -s /bin/rm",
)
"""Programs that remove a file without running rm. A rule about rm does not know them: docs/security.md says so."""


class Unattended(Bench):
    """A context with rules and without a user: what is not allowed is refused."""

    def __init__(self, directory: Path, permission: Permission) -> None:
        super().__init__(directory)
        self.rules = self.ruleset = rules({"*": "allow", **(permission if isinstance(permission, dict) else {})}, "/")

    async def ask(
        self,
        permission: str,
        patterns: Sequence[str],
        *,
        always: Sequence[str] = (),
        metadata: Mapping[str, Any] | None = None,
        possible: Sequence[str] = (),
        forms: Sequence[str] = (),
    ) -> None:
        await super().ask(permission, patterns, always=always, metadata=metadata, possible=possible, forms=forms)
        uncertain = may_be_denied(permission, patterns, possible, self.ruleset, forms)
        if uncertain or any(decide(permission, pattern, self.ruleset).action != "allow" for pattern in patterns):
            raise PermissionRejectedError("no user", permission=permission, id="per_1")


@pytest.fixture
def project(isolated: Path) -> Path:
    work = isolated / "work"
    outside = isolated / "outside"
    for folder in ("evil", "evilhome", "0", "10", "options", "sub", "xé="):
        (work / folder).mkdir()
    outside.mkdir()
    (outside / "secret").write_text("secret\n")
    (work / "victim").write_text("victim\n")
    (work / "payload").write_text("a[$(touch canary)]\n")
    (work / ".env").write_text("KEY=1\n")
    for name in ("-exec", "-delete", "touch", "zcanary"):
        (work / "options" / name).touch()
    (work / "evilhome" / ".gitconfig").write_text(f'[core]\n\tfsmonitor = "touch {work}/canary; false"\n')
    (work / "evilhome" / "git").mkdir()
    (work / "evilhome" / "git" / "config").write_text(f'[core]\n\tfsmonitor = "touch {work}/canary; false"\n')
    (work / "x[1]").mkdir()
    for name in ("evil/ls", "0/ls", "10/ls", "xé=/evil", "x[1]/evil]=1"):
        (work / name).write_text(f"#!/bin/sh\n: >{work}/canary\n")
        (work / name).chmod(0o755)
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "begin"], ["init", "-q", "--bare", "bare"]):
        subprocess.run(["git", *command], check=True, cwd=work)
    with (work / "bare" / "config").open("a") as config:
        config.write(f'[core]\n\tbare = false\n\tworktree = "{work}/sub"\n\tfsmonitor = "touch {work}/canary; false"\n')
    return work


def state(project: Path) -> dict[str, str]:
    files: dict[str, str] = {}
    for root in (project, project.parent / "outside"):
        for path in sorted(root.rglob("*")):
            if path.is_file() and path.name != "index":
                files[str(path)] = f"{path.stat().st_mode} {hashlib.sha1(path.read_bytes()).hexdigest()}"
            elif path.is_dir():
                files[str(path)] = "folder"
    return files


def restore(project: Path, before: dict[str, str]) -> None:
    for path in sorted(set(state(project)) - set(before), reverse=True):
        shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
    (project / "victim").write_text("victim\n")


async def effects_of(lines: Sequence[str], shell: str, project: Path, permission: Permission) -> list[str]:
    """The lines that changed a file, on a machine without a sandbox."""
    environment = {**os.environ, "SHELL": shutil.which(shell) or shell}
    tool = BashTool(timeout_ms=20_000, environment=environment, lock=lambda: None)
    before = state(project)
    guilty: list[str] = []
    for line in lines:
        try:
            await Unattended(project, permission).run(tool, command=line)
        except (PermissionRefusedError, ToolFailedError):
            continue
        if state(project) != before:
            guilty.append(line)
            restore(project, before)
    return guilty


@pytest.mark.parametrize("shell", SHELLS)
async def test_c1_h1_h2_no_line_has_an_effect_that_the_rules_were_not_asked_about(shell: str, project: Path) -> None:
    lines = [*LINES["asked"], *LINES["zsh"], *LINES["more"]]
    assert len(lines) > 1_200
    assert await effects_of(lines, shell, project, SOME_ALLOWED) == []


@pytest.mark.parametrize("shell", SHELLS)
async def test_c1_no_line_makes_a_program_that_is_allowed_run_another(shell: str, project: Path) -> None:
    assert await effects_of(LINES["readers"], shell, project, READERS_ALLOWED) == []


@pytest.mark.parametrize("line", ["cd bare && git diff -O/dev/null", "git -C bare diff --output=/dev/null"])
async def test_h2_a_bare_repository_of_a_project_starts_nothing_for_any_git_command(line: str, project: Path) -> None:
    permission: Permission = {"bash": {"*": "ask", "git *": "allow"}}
    assert await effects_of([line], "bash", project, permission) == []


@pytest.mark.parametrize("shell", SHELLS)
async def test_m7_no_line_that_names_a_denied_command_runs_it(shell: str, project: Path) -> None:
    lines = [line for line in (*LINES["denied"], *LINES["zsh"]) if not line.startswith(BEYOND_RULES)]
    assert len(lines) > 300
    assert await effects_of(lines, shell, project, ALL_BUT_ONE) == []


@pytest.mark.parametrize("line", ["jobs -x rm victim", "ls; jobs -x rm victim", "jobs -lx rm victim"])
async def test_m7_a_command_that_jobs_runs_is_not_hidden(line: str, project: Path) -> None:
    assert await effects_of([line], "bash", project, ALL_BUT_ONE) == []


ALL_BUT_PUSHING: Permission = {
    "bash": {
        "*": "allow",
        "git push*": "deny",
        "npm publish*": "deny",
        "rm victim*": "deny",
        "git commit --amend*": "ask",
    }
}


@pytest.mark.parametrize(
    "line",
    [
        *("x=push; git $x origin", "x=pu; git ${x}sh", "for x in push; do git $x; done", "read x <<< push; git $x"),
        *("git {push,origin}", "git p[u]sh", "git p* origin", "git $(echo push)", "git `echo push`", "git ${x:-push}"),
        *("git 'push' origin", 'git pu"sh"', "/usr/bin/git $x", "git $options push", "git --git-dir=$x push"),
        *("d='. push'; git -C $d origin", "git --attr-source HEAD push", "npm --registry x publish", "npm --x y $z"),
        *("xargs git <<< push", "env git $x", "find . -exec git {} +", "echo push | xargs -n 1 /usr/bin/git"),
        *("rm 'victim'", 'rm "victim"', "rm vic\\tim", "rm $x", "git commit $x", "git commit '--amend'"),
    ],
)
async def test_m7_no_line_hides_the_words_of_a_command_that_a_rule_denies(line: str, project: Path) -> None:
    with pytest.raises(PermissionRefusedError):
        await Unattended(project, ALL_BUT_PUSHING).run(BashTool(lock=lambda: None), command=line)


@pytest.mark.parametrize(
    "line",
    [
        *("git status $x", 'git -C "$PWD" status', "git log $x", "git add *", 'git commit -m "$(echo a)"', "ls $x"),
        *("for x in *; do cat $x; done", "npm run $x", "grep -r 'git push' .", "xargs ls < victim", "rm -f other $x"),
    ],
)
def test_m7_what_a_rule_denies_does_not_concern_other_commands(line: str, project: Path) -> None:
    effects = analyse_command(line, str(project))
    ruleset = rules(ALL_BUT_PUSHING, "/")
    assert not may_be_denied("bash", effects.patterns, effects.possible, ruleset, effects.forms)
    assert all(decide("bash", pattern, ruleset).action == "allow" for pattern in effects.patterns)


async def check_plan_mode(lines: Sequence[str], shell: str, project: Path) -> None:
    """Run every line as if all of it were allowed."""
    tool = BashTool(timeout_ms=5_000, grace_seconds=0.1, environment={**os.environ, "SHELL": shutil.which(shell) or ""})
    before = state(project)
    bench = Bench(project)
    bench.confined = Confinement(planning=True)
    assert (await bench.run(tool, command="cat victim")).output == "victim\n", "lines are run"
    for line in lines:
        with suppress(ToolFailedError):  # a line with a NUL character cannot be run at all
            await bench.run(tool, command=line)
        assert state(project) == before, line


@needs_lock
@pytest.mark.parametrize("shell", SHELLS)
async def test_c2_in_plan_mode_no_line_changes_a_file_even_if_it_is_allowed(shell: str, project: Path) -> None:
    await check_plan_mode([*LINES["asked"], *LINES["zsh"]][SHELLS.index(shell) :: 8], shell, project)


@needs_lock
@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("shell", SHELLS)
async def test_c2_in_plan_mode_none_of_all_lines_changes_a_file(shell: str, project: Path) -> None:
    lines = [line for line in LINES["denied"] if not line.startswith(("ssh ", "vim ", "gdb "))]
    await check_plan_mode([*LINES["asked"], *LINES["zsh"], *LINES["more"], *LINES["readers"], *lines], shell, project)


@pytest.mark.parametrize("line", ["", "# nothing", "cd sub", "x=1", ":", "x=1 y=2", "{ x=1; }", "(cd sub)", "! x=1"])
async def test_c1_no_line_runs_without_a_question(line: str, project: Path) -> None:
    bench = Bench(project)
    await bench.run(BashTool(), command=line)
    assert bench.permissions() == ["bash"]
    assert bench.patterns("bash") == [line.strip()]


async def test_l5_a_repository_s_configuration_starts_nothing_for_a_command_that_reads(project: Path) -> None:
    with (project / ".git" / "config").open("a") as config:
        config.write(
            f'[core]\n\tfsmonitor = "touch {project}/canary; false"\n\thooksPath = evil\n\tpager = touch canary\n'
        )
    lines = ["git status", "git log -1", "git diff", "cd bare && git status", "git -C bare status", "git ls-files -m"]
    permission: Permission = {"bash": {"*": "ask", "git *": "allow"}}
    assert await effects_of(lines, "bash", project, permission) == []


@pytest.mark.parametrize(
    ("shell", "script"),
    [
        ("bash", "compgen -b"),
        ("zsh", "print -l ${(k)builtins} ${(k)reswords}"),
        ("ksh", "builtin | grep -v /"),
    ],
)
def test_every_built_in_command_of_a_shell_is_in_the_table(shell: str, script: str) -> None:
    if not shutil.which(shell):
        pytest.skip(f"needs {shell}")
    names = set(subprocess.run([shell, "-c", script], capture_output=True, text=True, check=True).stdout.split())
    syntax = set("! [[ { } case do done elif else esac fi for if then time until while".split())
    programs = {"sleep", "which"}
    assert names - syntax - programs <= BUILTINS


@pytest.mark.parametrize(
    ("shell", "script"),
    [("bash", "compgen -v"), ("zsh", "print -l ${(k)parameters}"), ("ksh", "set | cut -d= -f1")],
)
def test_every_variable_that_a_shell_sets_is_in_the_table(shell: str, script: str) -> None:
    if not shutil.which(shell):
        pytest.skip(f"needs {shell}")
    options = ["-f"] if shell == "zsh" else []
    environment = {"PATH": os.environ["PATH"]}
    run = subprocess.run([shell, *options, "-c", script], capture_output=True, text=True, check=True, env=environment)
    names = [name for name in run.stdout.split() if name.isidentifier()]
    assert len(names) > 10
    assert [name for name in names if is_private_variable(name)] == []


@pytest.mark.parametrize("action", ["deny", "ask"])
@pytest.mark.parametrize(
    "line",
    [
        "cp victim canary",
        "cp -t . outside/canary; cp --target-directory=. sub/canary",
        "cp -t. sub/canary",
        "install -vtsub/.. sub/canary",
        "ln -stsub/.. sub/canary",
        "cp -Sat victim canary",
        "mv victim canary",
        "mv canary elsewhere",
        "rm -f canary",
        "ln -sf victim canary",
        "install victim canary",
        "touch ./sub/../canary",
        "truncate -s 0 canary",
        "dd if=victim of=canary",
        "cd sub && cp ../victim ../canary",
        "cp sub/canary .",
        "ls | xargs touch canary",
        "env touch canary",
    ],
)
async def test_l3_a_rule_about_one_file_holds_for_commands_that_name_it(line: str, action: Any, project: Path) -> None:
    permission: Permission = {"edit": {"*": "allow", "canary": action, "*/canary": action}}
    with pytest.raises(PermissionRejectedError):
        await Unattended(project, permission).run(BashTool(), command=line)
    await Unattended(project, permission).run(BashTool(), command="cp victim other; cat canary; rm other")


@pytest.mark.parametrize("line", ["cp sub/canary .", "mv sub/canary .", "mv -t . sub/canary"])
async def test_l3_a_rule_about_one_file_holds_for_commands_that_name_its_folder(line: str, project: Path) -> None:
    with pytest.raises(PermissionRejectedError):
        await Unattended(project, {"edit": {"*": "allow", "canary": "deny"}}).run(BashTool(), command=line)


async def test_l3_a_rule_about_all_files_is_about_tools_and_redirections(project: Path) -> None:
    await Unattended(project, {"edit": "deny"}).run(BashTool(), command="cp victim other")
    assert (project / "other").exists()


@pytest.mark.parametrize(
    "line",
    [
        *("echo victim | xargs tee", "xargs tee logs/a <<< victim", "xargs -I logs/a tee logs/a <<< victim"),
        *("echo victim | xargs -n 1 /usr/bin/tee -a", "xargs nice tee <<< ../outside/canary"),
        *("echo x | env -C sub tee ../logs/a", "echo x | env --chdir ../outside tee logs/a", "env -C sub tee logs/a"),
        *("env -C ../outside sh -c 'echo > logs/a'", "env -C sub -C .. bash -c 'ls > logs/a'"),
        *("find sub ../outside -maxdepth 0 -execdir tee logs/a ';'", "chroot . tee logs/a", "chroot sub /bin/tee /a"),
        *("sudo -D sub tee logs/a", "sudo --chdir=sub tee logs/a", "unshare -w sub tee logs/a"),
    ],
)
async def test_no_line_writes_where_a_rule_about_files_was_not_asked(line: str, project: Path) -> None:
    for folder in (project, project / "sub", project.parent / "outside"):
        (folder / "logs").mkdir()
    permission: Permission = {"bash": "allow", "edit": {"*": "deny", "logs/*": "allow"}, "external_directory": "deny"}
    before = state(project)
    with pytest.raises(PermissionRefusedError):
        await Unattended(project, permission).run(BashTool(), command=line)
    assert state(project) == before
    await Unattended(project, permission).run(BashTool(), command="echo x | env -u x tee logs/a > logs/b")
