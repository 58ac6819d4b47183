"""Which sessions a word means: one session by its name, or those of a project by what people call it."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ..errors import AmbiguousError, NotFoundError
from ..storage.keys import GLOBAL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ..records import Project, Session

T = TypeVar("T")
_ALIKE = 70
_CLOSE = 8
_LONG_ENOUGH = 5
_LONG = 7
_URL = r"(?m)^\s*url\s*=\s*(\S+)"


class ProjectFilter(NamedTuple):
    """The sessions of a project, however they are filed."""

    projects: frozenset[str]
    """Identifiers of projects."""
    folders: frozenset[str]
    """What was worked in: sessions of other projects that did so too belong here, as those from before its first
    commit."""
    called: str = ""
    """What it was asked for as, in lower case."""
    by_title: bool = False
    """Whether no project is called so, and sessions are meant whose title is."""

    def matches(self, project: str, directory: str, title: str) -> bool:
        """Whether a session of that project, in that directory, with that title, is one of them."""
        if project in self.projects or directory in self.folders:
            return True
        if self.by_title:
            return self.called in title.casefold()
        return any(directory.startswith((folder + "/", folder + "\\")) for folder in self.folders)

    def loosely_matches(self, session: Session) -> bool:
        """Whether a session that does not belong may do so all the same: it worked in a folder of that name, which may
        have been moved or be another clone, or its title speaks of it."""
        names = {base_name(folder) for folder in self.folders}
        return base_name(session.directory) in names or bool(self.called and self.called in session.title.casefold())


class ProjectGroup(NamedTuple):
    """A project, or a folder that has none."""

    project: Project
    title: str
    """What people call it."""
    folder: str

    @property
    def labels(self) -> list[str]:
        """Everything it may be called."""
        own = [self.folder, base_name(self.folder)] if is_global(self.project) and self.folder != "/" else []
        return [*labels(self.project), *own]


def resolve_project(name: str, projects: Sequence[Project], folders: Iterable[str]) -> ProjectFilter | None:
    """The sessions of what people call ``name``: by identifier, name, folder, worktree or remote; exactly if something
    is called so, else by part of the name, else by resemblance. ``folders`` are those that sessions worked in.
    """
    wanted = name.rstrip("/\\").casefold() or name
    known: list[tuple[list[str], Project | str]] = [(labels(project), project) for project in projects]
    known += [([folder, base_name(folder)], folder) for folder in {*folders} if folder]
    found = _best(known, wanted, lambda each: each[0])
    if not found:
        return None
    chosen = [each for _, each in found if not isinstance(each, str)]
    worked_in = {each for _, each in found if isinstance(each, str)}
    worked_in |= {folder for project in chosen for folder in worktrees(project)}
    twins = {project.id for project in projects if project.id != GLOBAL and worked_in & {*worktrees(project)}}
    return ProjectFilter(frozenset(twins | {project.id for project in chosen}), frozenset(worked_in), wanted)


def current_project(directory: str) -> ProjectFilter:
    """The sessions of the project that a directory belongs to."""
    from ..project import other_ids, resolve

    place = resolve(directory)
    if place.id == GLOBAL:
        return ProjectFilter(frozenset(), frozenset((place.directory,)))
    return ProjectFilter(frozenset((place.id, *other_ids(place))), frozenset((place.worktree, place.sandbox)))


def resolve_path_argument(name: str) -> str:
    """The folder that ``name`` leads to, if it is written as a way from here or from home: ``.``, ``../shop``,
    ``~/shop``. Empty for all that may be a name, and for a way to nowhere."""
    if not re.match(r"(\.\.?|~)($|[/\\])", name):
        return ""
    folder = os.path.abspath(os.path.expanduser(name))
    return folder if os.path.isdir(folder) else ""


def project_groups(projects: Iterable[Project], folders: Iterable[str]) -> list[ProjectGroup]:
    """What there is to choose from: every project, and each of the ``folders``, those of sessions of ``global``, in
    place of that; it stays itself where there are none."""
    apart = sorted({folder for folder in folders if folder})
    found: list[ProjectGroup] = []
    for project in projects:
        if is_global(project) and apart:
            found += [ProjectGroup(project, _last_step(folder) or project.id, folder) for folder in apart]
        else:
            found.append(ProjectGroup(project, project_title(project), "/" if is_global(project) else project.worktree))
    return found


def find_project_groups(known: Iterable[ProjectGroup], name: str) -> list[ProjectGroup]:
    """Those that ``name`` means, best first."""
    wanted = (resolve_path_argument(name) or name.rstrip("/\\")).casefold() or name
    return _best(list(known), wanted, lambda each: each.labels)


def project_title(project: Project) -> str:
    """What people call it."""
    folder = "" if is_global(project) else project.worktree
    return project.name or _last_step(folder) or project.id


def is_global(project: Project) -> bool:
    """Whether it is no project but the lack of one: its sessions go by the folder that each worked in."""
    return project.id == GLOBAL


def find_session(sessions: Iterable[Session], word: str, place: str) -> Session:
    """The session that ``word`` names: a full id, the beginning or end of one, a slug, or ``last``.

    Reads all of them, and keeps only those that fit.
    """
    if word == "last":
        newest = max((each for each in sessions if each.parent_id is None), key=lambda each: each.updated, default=None)
        if newest is None:
            raise NotFoundError(f"there are no sessions in {place}")
        return newest
    kinds: tuple[list[Session], ...] = ([], [], [])
    for each in sessions:
        for fits, named in zip(kinds, (each.id == word, each.slug == word, _is_short(each.id, word)), strict=True):
            if named:
                fits.append(each)
    for fits in kinds:
        names = {each.id for each in fits}
        if len(names) > 1:
            raise AmbiguousError(word, sorted(names))
        if fits:
            return max(fits, key=lambda each: each.updated)  # a record may lie there twice
    raise NotFoundError(f"no session is called {word!r} in {place}. 'opensesh list' shows them.", name=word)


def descendants(session: str, below: Mapping[str, Iterable[str]]) -> list[str]:
    """The sessions below one, and below those; ``below`` has the children of each."""
    found: dict[str, None] = {}
    waiting = [session]
    while waiting:
        for child in below.get(waiting.pop(), ()):
            if child != session and child not in found:  # a damaged tree may run in a circle
                found[child] = None
                waiting.append(child)
    return list(found)


def labels(project: Project) -> list[str]:
    """Everything a project may be called."""
    if is_global(project):
        return [project.id, *filter(None, [project.name])]
    folders = [folder for folder in (project.worktree, *project.sandboxes) if folder.strip("/\\")]
    remotes = _remotes(project.worktree) if project.worktree in folders else ()
    named = [project.id, project.name or "", *folders, *map(base_name, folders), *remotes]
    return list(dict.fromkeys(filter(None, named)))


def worktrees(project: Project) -> list[str]:
    """The checkouts of a project; none for what is outside of version control, or has no commit yet: the record that
    all of that shares names whichever folder was opened last."""
    if is_global(project):
        return []
    return [folder.rstrip("/\\") for folder in (project.worktree, *project.sandboxes) if folder.strip("/\\")]


def base_name(folder: str) -> str:
    """The last step of a path of any machine, in lower case."""
    return _last_step(folder).casefold()


def _last_step(folder: str) -> str:
    return re.split(r"[/\\]", folder.rstrip("/\\"))[-1]


def _remotes(worktree: str) -> Iterator[str]:
    """``owner/name`` and ``name`` of a checkout's remotes, told by its configuration; git itself is not run."""
    try:
        with open(os.path.join(worktree, ".git", "config"), encoding="utf-8", errors="replace") as file:
            text = file.read(1 << 16)
    except (OSError, ValueError):
        return
    for url in re.findall(_URL, text):
        path = re.split(r"[:/]", url.removesuffix("/").removesuffix(".git"))
        yield path[-1]
        if len(path) > 1:
            yield f"{path[-2]}/{path[-1]}"


def _best(things: list[T], wanted: str, called: Callable[[T], list[str]]) -> list[T]:
    folded = [([label.casefold() for label in called(thing)], thing) for thing in things]
    exact = [thing for names, thing in folded if wanted in names]
    within = exact or [thing for names, thing in folded if any(wanted in name for name in names)]
    return within or _resembling(folded, wanted) or _fuzzy_prefix_matches(folded, wanted)


def _resembling(things: list[tuple[list[str], T]], wanted: str) -> list[T]:
    from rapidfuzz.fuzz import ratio

    scored = [(max((ratio(wanted, name) for name in names), default=0.0), thing) for names, thing in things]
    best = max((score for score, _ in scored), default=0.0)
    least = max(_ALIKE, best - _CLOSE)
    return [thing for score, thing in sorted(scored, key=lambda pair: -pair[0]) if score >= least]


def _fuzzy_prefix_matches(things: list[tuple[list[str], T]], wanted: str) -> list[T]:
    """Those with a name, or a word in one, that begins with ``wanted`` but for a letter too many, too few, or swapped
    with the next; in a long word also for another letter, which makes a different word of a short one. Where a word
    begins, people are sure; and what paths begin with says nothing."""
    if len(wanted) < _LONG_ENOUGH:
        return []
    from rapidfuzz.distance.OSA import distance

    def fits(word: str) -> bool:
        if word[:1] != wanted[:1]:
            return False
        beginnings = (word[: len(wanted) + more] for more in (-1, 0, 1))
        return any(distance(wanted, each) <= 1 and _is_slip(wanted, each) for each in beginnings)

    return [thing for names, thing in things if any(fits(word) for name in names for word in _words(name))]


def _is_slip(typed: str, meant: str) -> bool:
    same = len(typed) == len(meant)
    return len(typed) >= _LONG or not same or sorted(typed) == sorted(meant)


def _words(name: str) -> list[str]:
    is_place = re.search(r"[/\\]", name) or re.fullmatch(r"[0-9a-f]{40}", name)
    return [] if is_place else [word for word in re.split(r"[\W_]+", name) if word]


def _is_short(identifier: str, word: str) -> bool:
    body = identifier.removeprefix("ses_")
    return len(word) >= 3 and (identifier.startswith(word) or body.startswith(word) or body.endswith(word))
