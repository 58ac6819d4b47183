"""Which session, and which project, a word on the command line means."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..errors import Ambiguous, NotFound, RecordError
from ..records import Project, Session, view
from ..storage.store import Damage, Store

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def read_sessions(store: Store, damage: list[Damage]) -> Iterator[Session]:
    """Every session that can be read; the others go to ``damage``."""
    for key, info in store.scan(("session",), report=damage.append):
        try:
            yield view(info, Session)
        except RecordError as error:
            damage.append(Damage(store.locate(key), f"{error.place}: {error.reason}"))


def find_session(store: Store, word: str) -> Session:
    """The session that ``word`` names: a full id, the beginning or end of one, a slug, or ``last``."""
    sessions = list(read_sessions(store, []))
    if word == "last":
        roots = [each for each in sessions if each.parent_id is None]
        if not roots:
            raise NotFound(f"there are no sessions in {store.place}")
        return max(roots, key=lambda each: each.updated)
    for fits in (
        [each for each in sessions if each.id == word],
        [each for each in sessions if each.slug == word],
        [each for each in sessions if _short(each.id, word)],
    ):
        if len(fits) == 1:
            return fits[0]
        if fits:
            raise Ambiguous(word, [each.id for each in fits])
    raise NotFound(f"no session is called {word!r} in {store.place}. 'opensesh list' shows them.", name=word)


def find_projects(projects: Iterable[Project], word: str) -> list[Project]:
    """The projects that ``word`` names, best first: by id, name, worktree or folder; failing that, by resemblance."""
    everything = list(projects)
    wanted = word.rstrip("/").casefold()
    exact = [each for each in everything if wanted in (name.casefold() for name in _names(each))]
    if exact:
        return exact
    within = [each for each in everything if any(wanted in name.casefold() for name in _names(each))]
    return within or _resembling(everything, wanted)


def project_title(project: Project) -> str:
    """What people call it."""
    return project.name or os.path.basename(project.worktree.rstrip("/\\")) or project.id


def _names(project: Project) -> list[str]:
    folders = [project.worktree, *project.sandboxes]
    bases = [os.path.basename(folder.rstrip("/\\")) for folder in folders]
    return [name for name in (project.id, project.name, *folders, *bases) if name]


def _resembling(projects: list[Project], wanted: str) -> list[Project]:
    from difflib import SequenceMatcher

    def likeness(project: Project) -> float:
        return max(SequenceMatcher(None, wanted, name.casefold()).ratio() for name in _names(project))

    ranked = sorted(((likeness(each), each) for each in projects), key=lambda pair: -pair[0])
    return [each for score, each in ranked if score >= 0.6]


def _short(identifier: str, word: str) -> bool:
    body = identifier.removeprefix("ses_")
    return len(word) >= 3 and (identifier.startswith(word) or body.startswith(word) or body.endswith(word))
