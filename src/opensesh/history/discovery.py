"""Finding sessions and projects by name: exactly, by part of the name, or by resemblance."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ..errors import AmbiguousError, NotFoundError
from ..storage.disk import read_file
from ..storage.keys import GLOBAL
from ..text import close_matches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ..records import Project, Session

T = TypeVar("T")
_MIN_SIMILARITY = 70
_SIMILARITY_RANGE = 8
"""Matches are returned if their similarity is at most this much lower than that of the best one."""
_MIN_PART_LENGTH = 3
_MIN_FUZZY_LENGTH = 5
_MIN_SUBSTITUTION_LENGTH = 7
_REMOTE_URL = r"(?m)^\s*url\s*=\s*(\S+)"


class ProjectFilter(NamedTuple):
    """The sessions of a project, whichever project id they are stored under."""

    projects: frozenset[str]
    """Project ids."""
    folders: frozenset[str]
    """Its folders. Sessions of other projects in these folders belong to it too, such as those of before its first
    commit."""
    name: str = ""
    """The name that was searched for, in lower case."""
    by_title: bool = False
    """Whether no project has that name, and sessions match by their titles."""

    def matches(self, project: str, directory: str, title: str) -> bool:
        """Whether a session with this project id, directory and title belongs to the project."""
        if project in self.projects or directory in self.folders:
            return True
        if self.by_title:
            return self.name in title.casefold()
        return any(directory.startswith((folder + "/", folder + "\\")) for folder in self.folders)

    def loosely_matches(self, session: Session) -> bool:
        """Whether a session that does not match may belong to the project: its folder has the same name, and may have
        been moved or be another clone, or its title contains the name."""
        names = {base_name(folder) for folder in self.folders}
        return base_name(session.directory) in names or bool(self.name and self.name in session.title.casefold())


class ProjectGroup(NamedTuple):
    """A project, or a folder outside of any project."""

    project: Project
    title: str
    """The name to show."""
    folder: str

    @property
    def labels(self) -> list[str]:
        """All names that it can be found by."""
        own = [self.folder, base_name(self.folder)] if is_global(self.project) and self.folder != "/" else []
        return [*labels(self.project), *own]


def resolve_project(name: str, projects: Sequence[Project], sessions: Iterable[tuple[str, str]]) -> ProjectFilter:
    """Return a filter for the sessions of the project that ``name`` means, or raise :class:`NotFoundError`.

    A relative path (``.``, ``../shop``) or one from home means the project of that folder. Otherwise ``name`` is an id,
    name, folder, worktree or remote: an exact match wins over a part of the name, and that over resemblance. If no
    project matches, sessions whose titles contain it do. ``sessions`` are the directory and title of each session.
    """
    if here := resolve_path_argument(name):
        return current_project(here)
    directories_and_titles = list(sessions)
    folders = {directory.rstrip("/\\") for directory, _ in directories_and_titles}
    folded = name.rstrip("/\\").casefold() or name
    candidates: list[tuple[list[str], Project | str]] = [(labels(project), project) for project in projects]
    candidates += [([folder, base_name(folder)], folder) for folder in folders if folder]
    matches = [candidate for _, candidate in _best_matches(candidates, folded, lambda candidate: candidate[0])]
    if not matches:
        if any(name.casefold() in title.casefold() for _, title in directories_and_titles):
            return ProjectFilter(frozenset(), frozenset(), name.casefold(), by_title=True)
        raise NotFoundError(f"no project resembles {name!r}. 'opensesh projects' shows them.", name=name)
    matching = [match for match in matches if not isinstance(match, str)]
    matching_folders = {match for match in matches if isinstance(match, str)}
    matching_folders |= {folder for project in matching for folder in worktrees(project)}
    ids = {project.id for project in projects if project.id != GLOBAL and matching_folders & {*worktrees(project)}}
    return ProjectFilter(frozenset(ids | {project.id for project in matching}), frozenset(matching_folders), folded)


def current_project(directory: str) -> ProjectFilter:
    """Return a filter for the project of a directory."""
    from ..project import other_ids, resolve

    location = resolve(os.path.realpath(directory))
    if location.id == GLOBAL:
        return ProjectFilter(frozenset(), frozenset((location.directory, os.path.abspath(directory))))
    ids = frozenset((location.id, *other_ids(location)))
    return ProjectFilter(ids, frozenset((location.worktree, location.sandbox)))


def resolve_path_argument(name: str) -> str:
    """Return the folder that a relative path or one from home leads to: ``.``, ``../shop``, ``~/shop``.

    Returns an empty text for what may be a name, and for a folder that does not exist.
    """
    if not re.match(r"(\.\.?|~)($|[/\\])", name):
        return ""
    folder = os.path.abspath(os.path.expanduser(name))
    return folder if os.path.isdir(folder) else ""


def project_groups(projects: Iterable[Project], folders: Iterable[str]) -> list[ProjectGroup]:
    """Return all projects. The project ``global`` is replaced by the ``folders`` of its sessions, if there are any."""
    global_folders = sorted({folder for folder in folders if folder})
    groups: list[ProjectGroup] = []
    for project in projects:
        if is_global(project) and global_folders:
            groups += [ProjectGroup(project, folder_name(folder) or project.id, folder) for folder in global_folders]
        else:
            folder = "/" if is_global(project) else project.worktree
            groups.append(ProjectGroup(project, project_title(project), folder))
    return groups


def find_project_groups(known: Iterable[ProjectGroup], name: str) -> list[ProjectGroup]:
    """Return the groups that ``name`` matches, best first."""
    folded = (resolve_path_argument(name) or name.rstrip("/\\")).casefold() or name
    return _best_matches(list(known), folded, lambda group: group.labels)


def project_title(project: Project) -> str:
    """Return the name of a project to show."""
    folder = "" if is_global(project) else project.worktree
    return project.name or folder_name(folder) or project.id


def is_global(project: Project) -> bool:
    """Whether this is the project of the sessions outside of any repository."""
    return project.id == GLOBAL


def find_session(sessions: Iterable[Session], word: str, location: str, here: str = "") -> Session:
    """Return the session with this id, slug, or beginning or end of an id, or the ``last`` one.

    ``last`` is the newest session; with a directory ``here``, the newest of its checkout, or else of its project.
    """
    if word == "last":
        return _last_session(sessions, location, here)
    by_kind: tuple[list[Session], ...] = ([], [], [])
    slugs: set[str] = set()
    for session in sessions:
        slugs.add(session.slug or "")
        body = session.id.removeprefix("ses_")
        is_part = session.id.startswith(word) or body.startswith(word) or body.endswith(word)
        kinds = (session.id == word, session.slug == word, is_part and len(word) >= _MIN_PART_LENGTH)
        for matches, is_match in zip(by_kind, kinds, strict=True):
            if is_match:
                matches.append(session)
    for matches in by_kind:
        matches.sort(key=lambda session: -session.updated)
        titles = {session.id: session.title for session in matches}
        if len(titles) > 1:
            raise AmbiguousError(word, titles)
        if matches:
            return matches[0]  # a record may be stored twice
    close = close_matches(word, slugs)
    hint = f"; did you mean {close[0]!r}?" if close else "."
    raise NotFoundError(f"no session is called {word!r} in {location}{hint} 'opensesh list' shows them.", name=word)


def _last_session(sessions: Iterable[Session], location: str, here: str) -> Session:
    roots = sorted((session for session in sessions if session.parent_id is None), key=lambda session: session.updated)
    if not roots:
        raise NotFoundError(f"there are no sessions in {location}")
    project = current_project(here) if here else None
    newest = roots[-1]
    if project is not None:
        own = [root for root in roots if project.matches(root.project_id, root.directory, root.title)]
        if not own:
            raise NotFoundError(
                f"'last' is the newest session of this project, and {here} has none. "
                f"The newest elsewhere is {newest.id} ({newest.title}) in {newest.directory}; name it by its id.",
                id=newest.id,
            )
        newest = (in_checkout(own, here) or own)[-1]
    return newest


def in_checkout(sessions: Iterable[Session], here: str) -> list[Session]:
    """Return the sessions that worked in the checkout which the directory ``here`` is in. Clones and linked worktrees
    of a repository are one project, but a session changes the files of its own."""
    from ..storage.project_ids import git_marker

    marker = git_marker(here)
    if marker is None:
        return []
    top = os.path.join(os.path.dirname(marker), "")
    inside = (session for session in sessions if os.path.join(session.directory or "", "").startswith(top))
    return [session for session in inside if git_marker(session.directory) in (marker, None)]


def labels(project: Project) -> list[str]:
    """Return all names that a project can be found by."""
    if is_global(project):
        return [project.id, *filter(None, [project.name])]
    folders = [folder for folder in (project.worktree, *project.sandboxes) if folder.strip("/\\")]
    remotes = _remotes(project.worktree) if project.worktree in folders else ()
    named = [project.id, project.name or "", *folders, *map(base_name, folders), *remotes]
    return list(dict.fromkeys(filter(None, named)))


def worktrees(project: Project) -> list[str]:
    """Return the checkouts of a project.

    The project ``global`` has none: all folders outside of version control share its record, which names the one that
    was opened last.
    """
    if is_global(project):
        return []
    return [folder.rstrip("/\\") for folder in (project.worktree, *project.sandboxes) if folder.strip("/\\")]


def session_project_name(project: Project | None, project_id: str, directory: str) -> str:
    """Return the name of a session's project to show; for a session outside of any, that of its folder."""
    if project is None or is_global(project) or project.worktree == "/":
        return folder_name(directory) or project_id
    return project_title(project)


def folder_name(folder: str) -> str:
    """Return the last component of a path of any operating system."""
    return re.split(r"[/\\]", folder.rstrip("/\\"))[-1]


def base_name(folder: str) -> str:
    """Return the last component of a path in lower case, to compare it with others."""
    return folder_name(folder).casefold()


def _remotes(worktree: str) -> Iterator[str]:
    """Yield ``owner/name`` and ``name`` of a checkout's remotes from its configuration, without running git."""
    try:
        text = read_file(os.path.join(worktree, ".git", "config"), limit=1 << 20).decode(errors="replace")
    except (OSError, ValueError):
        return
    for url in re.findall(_REMOTE_URL, text):
        path = re.split(r"[:/]", url.removesuffix("/").removesuffix(".git"))
        yield path[-1]
        if len(path) > 1:
            yield f"{path[-2]}/{path[-1]}"


def _best_matches(things: list[T], name: str, names_of: Callable[[T], list[str]]) -> list[T]:
    """Return the things of that name; else those whose names contain it, resemble it, or begin with it misspelt."""
    folded = [([label.casefold() for label in names_of(thing)], thing) for thing in things]
    exact = [thing for names, thing in folded if name in names]
    within = exact or [thing for names, thing in folded if any(name in label for label in names)]
    if within:
        return within
    from rapidfuzz.fuzz import ratio

    scored = [(max((ratio(name, label) for label in names), default=0.0), thing) for names, thing in folded]
    least = max(_MIN_SIMILARITY, max((score for score, _ in scored), default=0.0) - _SIMILARITY_RANGE)
    similar = [thing for score, thing in sorted(scored, key=lambda pair: -pair[0]) if score >= least]
    return similar or _fuzzy_prefix_matches(folded, name)


def _fuzzy_prefix_matches(things: list[tuple[list[str], T]], name: str) -> list[T]:
    """Return the things with a word that begins with ``name``, except for one typing error.

    An error is one letter too many, too few, or swapped with the next; in a long word also a wrong letter, which makes
    another word of a short one. The first letter must be right. Components of paths do not count.
    """
    if len(name) < _MIN_FUZZY_LENGTH:
        return []
    from rapidfuzz.distance.OSA import distance

    def is_typing_error(prefix: str) -> bool:
        is_substitution = len(name) == len(prefix) and sorted(name) != sorted(prefix)
        return distance(name, prefix) <= 1 and (len(name) >= _MIN_SUBSTITUTION_LENGTH or not is_substitution)

    def matches(label: str) -> bool:
        if re.search(r"[/\\]", label) or re.fullmatch(r"[0-9a-f]{40}", label):
            return False
        words = [word for word in re.split(r"[\W_]+", label) if word[:1] == name[:1]]
        return any(is_typing_error(word[: len(name) + more]) for word in words for more in (-1, 0, 1))

    return [thing for names, thing in things if any(map(matches, names))]
