"""Random sequences of prompts, edits, reverts, forks, compactions and crashes, and the checks after each step."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from opensesh.engine.opening import open_engine
from opensesh.errors import OpenseshError, RevertConflictError, WriteError
from opensesh.project import resolve
from opensesh.records import Rule
from opensesh.sessions import Sessions
from opensesh.storage.disk import Disk
from opensesh.storage.json_tree.store import JsonTree
from opensesh.testing.scripted import ScriptedModel
from opensesh.workspace.files import FileState, blob_id
from opensesh.workspace.repository import data_folder
from opensesh.workspace.revert import RevertPreview, RevertResult, Reverts
from opensesh.workspace.snapshots import Snapshots

from .project_setup import git
from .test_revert_crash import Died, DyingDisk

Tree = dict[str, tuple[bytes, bool]]
Known = dict[str, list[tuple[bytes, bool]]]
NONE = (b"(none)", False)
"""Stands for a file that does not exist."""

ALLOW = [Rule(permission="*", pattern="*", action="allow")]
COMMANDS = ("shell", "remove", "chmod")
NAMES = ("a.txt", "b.txt", "sub/c.txt", "sub/deep/d.txt", "e.env", "f.sh")
MINE = ("mine.txt", "sub/mine.bin", "mine.env")
"""Files of the user that no tool call names."""
TEXTS = ("", "one\n", "two\n", "no end", "crlf\r\nlines\r\n", "ünïcødé 漢字\n", "long\n" * 300)
BYTES = (b"", b"one\n", b"user\n", b"caf\xe9\r\n", b"\xff\xfeh\x00i\x00", b"\x00\x01binary", b"\xef\xbb\xbfmarked\n")


class ToolEffect(NamedTuple):
    """What one tool call does."""

    tool: str
    name: str
    text: str = ""


class PromptRecord(NamedTuple):
    """A prompt of a session."""

    touched: frozenset[str]
    """The files that its tool calls name; some failed, or came after a crash."""
    changed: frozenset[str]
    """The files that are different after it."""
    before: Tree
    """All files before it."""
    contended: frozenset[str]
    """The files that a command and another tool call of the same step name."""


doings = st.builds(
    ToolEffect,
    st.sampled_from(("write", "write", "edit", "shell", "remove", "chmod")),
    st.sampled_from(NAMES),
    st.sampled_from(TEXTS),
)
# The numbers of the sessions and prompts to use: what Hypothesis draws must not depend on earlier steps.
picks = st.integers(0, 11)
patches = st.builds(
    ToolEffect, st.sampled_from(("add", "update", "delete", "move")), st.sampled_from(NAMES), st.sampled_from(TEXTS)
)


class FullDisk(Disk):
    """A disk with space for a number of new files. They are the same files each time if no two calls run at once."""

    def __init__(self, space: int) -> None:
        super().__init__(durable=False)
        self.space = space

    def open_new(self, path: str) -> int:
        self.space -= 1
        if self.space < 0:
            raise WriteError(f"{path}: no space", path=path)
        return super().open_new(path)


def _pick(choices: list[str], which: int) -> str:
    return choices[which % len(choices)]


class Journey(RuleBasedStateMachine):
    """The sequences in a folder without version control; :class:`GitJourney` has them in a repository."""

    in_git = False

    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp(prefix="journey", dir=os.environ["HOME"]))
        self.folder = self.home / "work"
        self.folder.mkdir()
        self.state = self.home / "state"
        self.said: dict[str, dict[str, PromptRecord]] = {}
        """The prompts of each session by id, in order."""
        self.origin: dict[str, Tree] = {}
        """The files that the current revert of a session has changed, as they were before it."""
        self.rested: dict[str, Tree] = {}
        """All files right after the current revert of a session."""

    def teardown(self) -> None:
        shutil.rmtree(self.home, ignore_errors=True)

    @initialize(contents=st.tuples(*[st.sampled_from(BYTES)] * (4 + len(MINE))))
    def _begin(self, contents: tuple[bytes, ...]) -> None:
        for name, content in zip((*NAMES[:4], *MINE), contents, strict=True):
            self._put(name, content)
        (self.folder / ".gitignore").write_text("*.env\n")
        if self.in_git:
            git(self.folder, "init", "-q")
            git(self.folder, "add", "-A")
            git(self.folder, "commit", "-q", "-m", "first")
        session = self._sessions().create(title="T", permission=ALLOW)
        self.said[session.id] = {}

    # -- what happens --------------------------------------------------------------------------------------------------

    @rule(which=picks, steps=st.lists(st.lists(doings, min_size=1, max_size=2), min_size=1, max_size=2))
    def prompt(self, which: int, steps: list[list[ToolEffect]]) -> None:
        self._ask(_pick(list(self.said), which), steps)

    @rule(which=picks, steps=st.lists(patches, min_size=1, max_size=2))
    def patch(self, which: int, steps: list[ToolEffect]) -> None:
        self._ask(_pick(list(self.said), which), [[step] for step in steps], model="gpt-5")

    @rule(which=picks, steps=st.lists(doings, min_size=1, max_size=3), space=st.integers(3, 35))
    def prompt_and_crash(self, which: int, steps: list[ToolEffect], space: int) -> None:
        self._ask(_pick(list(self.said), which), [[step] for step in steps], disk=FullDisk(space))

    @rule(name=st.sampled_from((*NAMES, *MINE)), content=st.sampled_from(BYTES))
    def user_writes(self, name: str, content: bytes) -> None:
        self._put(name, content)

    @rule(name=st.sampled_from((*NAMES, *MINE)))
    def user_deletes(self, name: str) -> None:
        (self.folder / name).unlink(missing_ok=True)

    @rule(name=st.sampled_from((*NAMES, *MINE)), executable=st.booleans())
    def user_changes_mode(self, name: str, executable: bool) -> None:
        if (self.folder / name).exists():
            (self.folder / name).chmod(0o755 if executable else 0o644)

    @rule(which=picks, point=picks, force=st.booleans(), crash=st.integers(0, 40))
    def revert(self, which: int, point: int, force: bool, crash: int) -> None:
        if not (prompted := self._prompted()):
            return
        session = _pick(prompted, which)
        target = _pick(list(self.said[session]), point)
        self._reverts().recover(session)
        before, preview = self._tree(), self._reverts().preview(session, target)
        assert self._tree() == before
        known = self._known(session, target)
        try:
            done = self._dying(crash).revert(session, target, force=force)
        except RevertConflictError:
            assert not force
            assert self._tree() == before
            return
        except Died:
            if not self._finished(session, target, before):
                return
            done = None
        self._check_revert(session, preview, before, done, known if not force else {})

    @rule(which=picks, force=st.booleans(), crash=st.integers(0, 40))
    def unrevert(self, which: int, force: bool, crash: int) -> None:
        if not self.origin:
            return
        session = _pick(list(self.origin), which)
        before, preview = self._tree(), self._reverts().preview_unrevert(session)
        try:
            done = self._dying(crash).unrevert(session, force=force)
        except RevertConflictError:
            assert not force
            assert self._tree() == before != self.rested[session]
            return
        except Died:
            self._reverts().recover(session)
            if self._sessions().get(session).revert is not None:
                assert self._tree() == before
                return
            done = None
        after = self._tree()
        left = {item.name for item in (done.left_alone if done else preview.plan.lost)}
        for name in before.keys() | after.keys():
            expected = self.origin[session] if name in self.origin[session] and name not in left else before
            assert self._same(after.get(name), expected.get(name)), name
        if before == self.rested[session]:
            assert not left, "every file that did not change since the revert is restored"
        del self.origin[session], self.rested[session]

    @rule(which=picks)
    def fork(self, which: int) -> None:
        if not (prompted := self._prompted()):
            return
        session = _pick(prompted, which)
        sessions = self._sessions()
        copy = sessions.fork(session).id
        sessions.update(
            copy, lambda info: info.update(permission=[{"permission": "*", "pattern": "*", "action": "allow"}])
        )
        names = {
            old.info["id"]: new.info["id"]
            for old, new in zip(sessions.messages(session), sessions.messages(copy), strict=True)
        }
        self.said[copy] = {names[prompt]: text for prompt, text in self.said[session].items()}

    @rule(which=picks)
    def compact(self, which: int) -> None:
        if not (prompted := self._prompted()):
            return
        session = _pick(prompted, which)
        before = self._tree()
        revert = self._sessions().get(session).revert
        if revert is not None and revert.message_id == next(iter(self.said[session])):
            return  # no message is left to compact
        self._forget_reverted(session)

        async def work() -> None:
            async with self._engine("SAY All of it, in short.") as engine:
                await (await engine.compact(session))

        asyncio.run(work())
        self._settle(session)
        assert self._tree() == before

    @invariant()
    def every_session_can_be_read(self) -> None:
        sessions = self._sessions()
        for session, text in self.said.items():
            stored = [message.info["id"] for message in sessions.messages(session)]
            assert set(text) <= set(stored)

    # -- what must hold ------------------------------------------------------------------------------------------------

    def _check_revert(
        self, session: str, preview: RevertPreview, before: Tree, done: RevertResult | None, known: Known
    ) -> None:
        after = self._tree()
        touched = frozenset[str]().union(*(text.touched for text in self.said[session].values()))
        lost = {item.name: item for item in (done.left_alone if done else preview.plan.lost)}
        planned = {file.name: file for file in preview.plan.files if file.name not in lost}
        # What cannot be brought to the point returns to its origin, if an earlier revert took it away from there.
        returned = {name: item for name, item in lost.items() if not item.was.fits(item.becomes) and not item.blocked}
        assert planned.keys() <= touched, "a revert changes only files that the session changed"
        origin = self.origin.setdefault(session, {})
        assert returned.keys() <= origin.keys(), "only files that an earlier revert changed are put back"
        for name in before.keys() | after.keys() | planned.keys():
            if name in returned:
                assert self._same(after.get(name), origin[name]), f"{name} is not what it was before the reverts"
            elif name not in planned:
                assert after.get(name) == before.get(name), f"{name} was not changed by this session"
            else:
                assert self._is(after.get(name), planned[name].becomes), name
            if name in planned and name in known:
                assert after.get(name, NONE) in known[name], f"{name} is not what it was before the prompt"
            if name in planned:
                origin.setdefault(name, before.get(name, NONE))
            if name in origin and self._same(after.get(name), origin[name]):
                del origin[name]
        self.rested[session] = after

    def _known(self, session: str, target: str) -> Known:
        """Return what the files may have been before the changes of the prompts from ``target`` on.

        A prompt that names a file and leaves it as it was may have changed it and back, or may have failed. Outside of
        git, what a file was before a command is not recorded: a tool call that runs at the same time may record what
        the command has made of the file.
        """
        known: Known = {}
        changed: set[str] = set()
        contended: set[str] = set()
        for text in list(self.said[session].values())[list(self.said[session]).index(target) :]:
            contended |= text.contended if not self.in_git else set()
            for name in text.touched - changed:
                known.setdefault(name, []).append(text.before.get(name, NONE))
            changed |= text.changed
        return {name: states for name, states in known.items() if name in changed - contended}

    def _finished(self, session: str, target: str, before: Tree) -> bool:
        """Return whether a revert that was killed is in effect; one that is not must have changed nothing."""
        self._reverts().recover(session)
        revert = self._sessions().get(session).revert
        if revert is None or revert.message_id != target:
            assert self._tree() == before
            assert (revert is not None) == (session in self.origin)
            return False
        # A revert to the point at which the session was already may not have begun; then nothing changed.
        return session not in self.origin or self._tree() != before

    # -- how it is done ------------------------------------------------------------------------------------------------

    def _ask(self, session: str, steps: list[list[ToolEffect]], *, model: str = "it", disk: Disk | None = None) -> None:
        self._forget_reverted(session)
        before = self._tree()
        seen = self._prompts(session)
        script = "\n---\n".join(["\n".join(map(self._call, step)) for step in steps] + ["SAY done"])

        async def work() -> None:
            async with self._engine(script, disk) as engine:
                await engine.run(session, "Go.", model=f"scripted/{model}")

        try:
            asyncio.run(work())
        except (OpenseshError, ExceptionGroup):
            assert disk is not None
        self._settle(session)
        touched = frozenset(name for step in steps for item in step for name in (item.name, f"{item.name}.moved"))
        contended = frozenset(
            item.name
            for step in steps
            for item in step
            if item.tool in COMMANDS and any(other.name == item.name and other.tool not in COMMANDS for other in step)
        )
        after = self._tree()
        for name in before.keys() | after.keys():
            assert name in touched or after.get(name) == before.get(name)
        for prompt in self._prompts(session):
            if prompt not in seen:
                changed = frozenset(name for name in touched if before.get(name) != after.get(name))
                self.said[session][prompt] = PromptRecord(touched, changed, before, contended)

    def _prompts(self, session: str) -> list[str]:
        return [message.info["id"] for message in self._sessions().messages(session) if message.info["role"] == "user"]

    def _forget_reverted(self, session: str) -> None:
        """Forget the prompts that a revert hides: the next prompt makes the revert final."""
        revert = self._sessions().get(session).revert
        if revert is not None:
            prompts = list(self.said[session])
            for prompt in prompts[prompts.index(revert.message_id) :]:
                del self.said[session][prompt]
        self.origin.pop(session, None)
        self.rested.pop(session, None)

    def _settle(self, session: str) -> None:
        """Make the revert of a session final, if the crash has left one."""
        self._reverts().cleanup(session)

    def _call(self, doing: ToolEffect) -> str:
        tool, name, text = doing
        path = str(self.folder / name)
        quoted = json.dumps(text)[1:-1].replace("'", "")
        match tool:
            case "write":
                arguments: dict[str, Any] = {"filePath": path, "content": text}
            case "edit":
                tool, arguments = "edit", {"filePath": path, "oldString": "one", "newString": f"1{text}"}
            case "shell":
                command = f"mkdir -p $(dirname {path}); printf '%b' '{quoted}' > {path}"
                tool, arguments = "bash", {"command": command, "description": "d"}
            case "remove":
                tool, arguments = "bash", {"command": f"rm -f {path}", "description": "d"}
            case "chmod":
                tool, arguments = "bash", {"command": f"chmod +x {path}", "description": "d"}
            case _:
                tool, arguments = "apply_patch", {"patchText": self._patch(doing)}
        return f"CALL {tool} {json.dumps(arguments)}"

    def _patch(self, doing: ToolEffect) -> str:
        name = doing.name
        change = ["@@", "-one", f"+{doing.text.splitlines()[0] if doing.text else 'gone'}"]
        body = {
            "add": [f"*** Add File: {name}", "+added"],
            "delete": [f"*** Delete File: {name}"],
            "update": [f"*** Update File: {name}", *change],
            "move": [f"*** Update File: {name}", f"*** Move to: {name}.moved", *change],
        }[doing.tool]
        return "\n".join(["*** Begin Patch", *body, "*** End Patch"])

    def _engine(self, script: str, disk: Disk | None = None) -> Any:
        models = {"it": ScriptedModel(script), "gpt-5": ScriptedModel(script)}
        return open_engine(str(self.folder), store=self._store(disk), scripts=models)

    def _prompted(self) -> list[str]:
        return [session for session, text in self.said.items() if text]

    def _store(self, disk: Disk | None = None) -> JsonTree:
        return JsonTree(self.home / "data" / "storage", disk=disk or Disk(durable=False))

    def _sessions(self, disk: Disk | None = None) -> Sessions:
        return Sessions(self._store(disk), resolve(self.folder))

    def _reverts(self, disk: Disk | None = None) -> Reverts:
        sessions = self._sessions(disk)
        snapshots = Snapshots(sessions.location, data=data_folder(sessions.store))
        return Reverts(sessions, snapshots, disk=disk or Disk(durable=False))

    def _dying(self, point: int) -> Reverts:
        """Return reverts on a disk that dies at its ``point``-th operation; for most points, on one that does not."""
        return self._reverts(DyingDisk(point) if 0 < point < 20 else None)

    def _tree(self) -> Tree:
        result: Tree = {}
        for path in sorted(self.folder.rglob("*")):
            if path.is_file() and ".git" not in path.relative_to(self.folder).parts:
                result[path.relative_to(self.folder).as_posix()] = (
                    path.read_bytes(),
                    os.access(path, os.X_OK) and bool(path.stat().st_mode & 0o100),
                )
        return result

    def _same(self, one: tuple[bytes, bool] | None, other: tuple[bytes, bool] | None) -> bool:
        return (one or NONE) == (other or NONE)

    def _is(self, result: tuple[bytes, bool] | None, state: FileState) -> bool:
        return (blob_id(result[0]) if result else "") == state.oid

    def _put(self, name: str, content: bytes) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


class GitJourney(Journey):
    """The sequences in a repository."""

    in_git = True
