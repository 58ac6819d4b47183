from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from opensesh.engine.opening import open_engine
from opensesh.records import Rule
from opensesh.storage.disk import Disk
from opensesh.testing.scripted import ScriptedModel
from opensesh.workspace.attribution import CallTarget, command_targets
from opensesh.workspace.revert import RevertPreview, Reverts

from ..workspace.project_setup import Workspace, call, contents, new_repository, shell, write, writes

ALLOW = [Rule(permission="*", pattern="*", action="allow")]


@pytest.fixture(params=["in git", "outside git"])
def workspace(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    monkeypatch.setenv("OPENCODE_DISABLE_FILETIME_CHECK", "true")
    files = {"a.txt": "a\n", "b.txt": "b\n", "c.txt": "c\n"}
    folder = tmp_path / "work"
    if request.param == "in git":
        new_repository(folder, files)
    else:
        write(folder, files)
    workspace = Workspace(tmp_path / "home", folder)
    # With the state folder that engines use.
    workspace.reverts = Reverts(workspace.sessions, workspace.snapshots, disk=Disk(durable=False))
    return workspace


async def until(path: Path) -> None:
    async with asyncio.timeout(60):
        while not path.exists():
            await asyncio.sleep(0.02)


async def run(workspace: Workspace, script: str) -> str:
    session = workspace.sessions.create(title="T", permission=ALLOW).id
    models = {"it": ScriptedModel(script)}
    async with open_engine(str(workspace.folder), store=workspace.sessions.store, scripts=models) as engine:
        await engine.run(session, "Go.", model="scripted/it")
    return session


def script(tool: str, **arguments: str) -> str:
    return f"CALL {tool} {json.dumps(arguments)}\n---\nSAY done"


def prompt_of(workspace: Workspace, session: str) -> str:
    return str(workspace.history(session)[0].info["id"])


async def two_sessions_and_a_person(workspace: Workspace, signals: Path) -> tuple[str, str]:
    started, go = signals / "started", signals / "go"
    command = f'touch {started}; until [ -e {go} ]; do sleep 0.02; done; echo A >> a.txt; python3 -c \'open("d", "w")\''
    first = asyncio.create_task(run(workspace, script("bash", command=command, description="d")))
    await until(started)
    second = await run(
        workspace, script("edit", filePath=str(workspace.folder / "b.txt"), oldString="b", newString="B")
    )
    (workspace.folder / "c.txt").write_text("typed\n")
    go.touch()
    return await first, second


def test_promise_7_a_revert_takes_back_neither_another_sessions_writes_nor_a_persons(
    workspace: Workspace, tmp_path: Path
) -> None:
    first, second = asyncio.run(two_sessions_and_a_person(workspace, tmp_path))
    after = {"a.txt": "a\nA\n", "b.txt": "B\n", "c.txt": "typed\n", "d": ""}
    assert contents(workspace.folder) == after
    in_git = workspace.snapshots.readable

    preview = workspace.reverts.preview(first, prompt_of(workspace, first))
    assert preview.unattributed == {"b.txt": second, "c.txt": "", "d": ""}
    assert [diff["file"] for diff in workspace.sessions.diff(first)] == (["a.txt"] if in_git else [])
    workspace.reverts.revert(first, prompt_of(workspace, first))
    # Outside of git, what a file held before a command is not known.
    assert contents(workspace.folder) == after | {"a.txt": "a\n" if in_git else "a\nA\n"}
    workspace.reverts.unrevert(first)
    assert contents(workspace.folder) == after


def test_promise_7_other_changes_are_reverted_when_asked_for_but_never_another_sessions(
    workspace: Workspace, tmp_path: Path
) -> None:
    first, second = asyncio.run(two_sessions_and_a_person(workspace, tmp_path))
    if not workspace.snapshots.readable:
        pytest.skip("outside of git, what files held before a command is not known")
    done = workspace.reverts.revert(first, prompt_of(workspace, first), unattributed=True)
    assert done.preview.unattributed == {"b.txt": second}
    assert contents(workspace.folder) == {"a.txt": "a\n", "b.txt": "B\n", "c.txt": "c\n"}


def test_promise_7_a_file_that_two_sessions_wrote_is_a_conflict(workspace: Workspace) -> None:
    folder = workspace.folder
    first = asyncio.run(run(workspace, script("write", filePath=str(folder / "b.txt"), content="first")))
    asyncio.run(run(workspace, script("write", filePath=str(folder / "b.txt"), content="second")))
    assert [file.name for file in workspace.reverts.preview(first, prompt_of(workspace, first)).plan.conflicts] == [
        "b.txt"
    ]


def test_promise_7_a_file_that_the_session_edited_stays_its_own_when_a_command_changes_it_again(
    workspace: Workspace,
) -> None:
    edit = script("edit", filePath=str(workspace.folder / "b.txt"), oldString="b", newString="B").removesuffix(
        "SAY done"
    )
    # As a formatter does that is not given the name.
    reformat = script("bash", command='python3 -c \'open("b.txt", "a").write("formatted")\'', description="d")
    session = asyncio.run(run(workspace, edit + reformat))
    assert contents(workspace.folder)["b.txt"] == "B\nformatted"
    workspace.reverts.revert(session, prompt_of(workspace, session))
    assert contents(workspace.folder)["b.txt"] == "b\n"


def test_promise_7_a_persons_edit_during_a_command_that_cannot_change_files_is_left_alone(workspace: Workspace) -> None:
    def command(folder: Path) -> dict[str, object]:
        write(folder, {"c.txt": "typed\n"})
        return shell("pytest c.txt")

    session = workspace.session()
    prompt = workspace.prompt(session)
    workspace.step(session, prompt, writes({"a.txt": "A\n"}), command)
    preview: RevertPreview = workspace.reverts.preview(session, prompt)
    if workspace.snapshots.readable:
        assert (preview.unattributed, [file.name for file in preview.plan.files]) == ({"c.txt": ""}, ["a.txt"])
    workspace.reverts.revert(session, prompt)
    assert contents(workspace.folder)["c.txt"] == "typed\n"


def test_a_tool_of_another_kind_changes_the_file_that_it_is_given(workspace: Workspace) -> None:
    def convert(folder: Path) -> dict[str, object]:
        write(folder, {"a.txt": "converted\n"})
        return call("convert", {"path": "a.txt"}, {})

    session = workspace.session()
    prompt = workspace.prompt(session)
    workspace.step(session, prompt, convert)
    expected = ["a.txt"] if workspace.snapshots.readable else []
    assert [file.name for file in workspace.reverts.preview(session, prompt).plan.changes] == expected


@pytest.mark.parametrize(
    ("command", "targets"),
    [
        ("echo x > a", ["/w/a"]),
        ("echo x >> 'a b'; sort <c >d 2>&1", ["/w/a b", "/w/d"]),
        ("cd sub && rm -rf x y", ["/w/sub/x", "/w/sub/y"]),
        ("X=1 sudo mv a b | tee c", ["/w/a", "/w/b", "/w/c"]),
        ("cp a b", ["/w/b"]),
        ("sed -i s/a/b/ f", ["/w/s/a/b", "/w/f"]),
        ("sed s/a/b/ f", []),
        ("pytest tests/test_a.py", []),
        ("bash -c 'touch a'", ["/w/a"]),
        ("cat > a <<'EOF'\nit isn't > b\nEOF\ntouch c", ["/w/a", "/w/c"]),
        ("cat <<A <<-B >a\n>b\nA\n\t>c\n\tB\ntouch d", ["/w/a", "/w/d"]),
        ("echo $((1 <<2))\ntouch d\ncat <<<x >a", ["/w/d", "/w/a"]),
        ("git checkout main -- f", ["/w/main", "/w/f"]),
        ("echo $x > $y", []),
        ("echo 'unbalanced > a", []),
    ],
)
def test_the_targets_of_a_command_are_what_its_text_says(command: str, targets: list[str]) -> None:
    assert [target.path for target in command_targets(command, "/w")] == targets


def test_a_target_covers_what_it_names_and_what_is_in_it() -> None:
    assert CallTarget("/w/build", below=True).covers("/w/build/x/y")
    assert not CallTarget("/w/build", below=True).covers("/w/builder")
    assert not CallTarget("/w/log").covers("/w/log/x")
    assert CallTarget("/w/*.pyc", below=True).covers("/w/a.pyc")


def test_promise_19_a_preview_lists_ignored_files_that_a_command_changed(tmp_path: Path) -> None:
    folder = new_repository(tmp_path / "work", {".gitignore": "build/\n*.log\n", "a.txt": "a\n"})
    workspace = Workspace(tmp_path / "home", folder)
    reverts = Reverts(workspace.sessions, workspace.snapshots, disk=Disk(durable=False))
    write(folder, {"build/old.txt": "old\n"})
    os.utime(folder / "build" / "old.txt", (1_000_000_000, 1_000_000_000))
    command = "echo A > a.txt; echo new > build/new.txt; echo n > untracked.txt; echo l > ':(x)*.log'"
    session = asyncio.run(run(workspace, script("bash", command=command, description="d")))
    preview = reverts.preview(session, prompt_of(workspace, session))
    assert preview.ignored == (":(x)*.log", "build/new.txt")
    assert preview.document["ignored"] == [":(x)*.log", "build/new.txt"]
    assert [file.name for file in preview.plan.changes] == ["a.txt", "untracked.txt"]
    reverts.revert(session, prompt_of(workspace, session))
    left = contents(folder)
    assert left.pop("build/new.txt") == "new\n"
    assert left == {".gitignore": "build/\n*.log\n", "a.txt": "a\n", "build/old.txt": "old\n", ":(x)*.log": "l\n"}
