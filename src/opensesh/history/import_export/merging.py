"""Two copies of one session: which holds more, and what to do when both went on without the other."""

from __future__ import annotations

from enum import Enum
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeVar

from ...records import as_list, as_object, as_whole
from ...sessions import fork_title
from ...storage.protocol import StoredMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ...records import Document
    from .import_sources import SourceSession

T = TypeVar("T")
_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_STATES = {"pending": 0, "running": 1, "completed": 2, "error": 2}
_PLACES = ("path", "sessionID", "messageID")
_MONOTONIC_FIELDS = ("summary", "metadata", "title", "completed", "end", "compacted", "finish", "error", "attachments")
"""Fields that a record gains as time goes on."""


class Relation(Enum):
    """How what comes in stands to what is here."""

    SAME = "same"
    AHEAD = "ahead"
    """It holds all that is here, and more."""
    BEHIND = "behind"
    """It holds nothing that is not here."""
    DIVERGED = "apart"
    """Each holds something the other does not."""


def compare(ours: Sequence[StoredMessage], theirs: Sequence[StoredMessage]) -> Relation:
    """How two copies of a session stand to each other, message by message and part by part."""
    here = {str(message.info.get("id")): message for message in ours}
    there = {str(message.info.get("id")): message for message in theirs}
    return _together(_one_by_one(here, there, _message))


def normalise_2x_copies(ours: Sequence[StoredMessage], theirs: Sequence[StoredMessage]) -> list[StoredMessage]:
    """``theirs``, with our copy of each message that one side has as OpenCode 1.x kept it and the other as 2.x does.
    They say the same, in parts that bear other names, and of a compaction the summary does, too."""
    here = {str(message.info.get("id")): message for message in ours}
    there = {str(message.info.get("id")): message for message in theirs}
    told = {name for name in here.keys() & there.keys() if _is_of_2(here[name]) != _is_of_2(there[name])}
    summaries = {above: message for message in ours if (above := _compaction(message)) in told}
    words: list[StoredMessage] = []
    for name, message in there.items():
        if name in told:
            words.append(here[name])
        elif (above := _compaction(message)) in told:
            words += [summaries.pop(above)] if above in summaries else []
        else:
            words.append(message)
    return words


def _is_of_2(message: StoredMessage) -> bool:
    return "v2" in message.info


def _compaction(message: StoredMessage) -> str:
    """The message that asked for this summary; empty if it is none."""
    return str(message.info.get("parentID")) if message.info.get("summary") is True else ""


def as_fork(incoming: SourceSession, ours: Sequence[StoredMessage], theirs: Sequence[StoredMessage]) -> SourceSession:
    """The copy as a session of its own, named after the message where it parts from the one that is here: brought in
    again, perhaps after it has grown, it has the same name."""
    messages = list(theirs)
    name = _derived(incoming.id, _divergence_point(ours, messages).encode())
    names = {str(message.info.get("id")): _derived(str(message.info.get("id")), name.encode()) for message in messages}
    copies = [_copied(message, name, names) for message in messages]
    time = as_object(incoming.info.get("time")) or {}
    made = max([as_whole(time.get("created")), *(as_whole(_created(message)) + 1 for message in messages)])
    info = incoming.info | {
        "id": name,
        "title": fork_title(incoming.title),
        # Later than all it holds, as the creation of a fork is: by this its messages are known to be copies.
        "time": time | {"created": made, "updated": max(made, as_whole(time.get("updated")))},
    }
    info.pop("share", None)
    return incoming._replace(id=name, info=info, messages=lambda: copies, beside=())


def _divergence_point(ours: Sequence[StoredMessage], theirs: Sequence[StoredMessage]) -> str:
    here = {str(message.info.get("id")): message for message in ours}
    for message in theirs:
        name = str(message.info.get("id"))
        if name not in here or _message(here[name], message) is Relation.DIVERGED:
            return name
    return "end"


def _together(found: set[Relation]) -> Relation:
    found = found - {Relation.SAME}
    if not found:
        return Relation.SAME
    return found.pop() if len(found) == 1 else Relation.DIVERGED


def _message(ours: StoredMessage, theirs: StoredMessage) -> Relation:
    here = {str(part.get("id")): part for part in ours.parts}
    there = {str(part.get("id")): part for part in theirs.parts}
    return _together({_record(ours.info, theirs.info), *_one_by_one(here, there, _record)})


def _one_by_one(here: Mapping[str, T], there: Mapping[str, T], compared: Callable[[T, T], Relation]) -> set[Relation]:
    """How those that both sides have stand to each other, and what it means that one has more."""
    found = {compared(here[name], there[name]) for name in here.keys() & there.keys()}
    if there.keys() - here.keys():
        found.add(Relation.AHEAD)
    if here.keys() - there.keys():
        found.add(Relation.BEHIND)
    return found


def _record(ours: Document, theirs: Document) -> Relation:
    """One record against its other copy. Where it was made, and how a turn was summed up, is no difference in what was
    said."""
    found: set[Relation] = set()
    for name in ours.keys() | theirs.keys():
        here, there = ours.get(name), theirs.get(name)
        if here == there or name in _PLACES or (name == "summary" and None not in (here, there)):
            continue
        found.add(_field(name, here, there))
    return _together(found)


def _field(name: str, ours: Any, theirs: Any) -> Relation:
    if ours is None or theirs is None:
        return Relation.AHEAD if ours is None else Relation.BEHIND
    if isinstance(ours, str) and isinstance(theirs, str):
        return _text(name, ours, theirs)
    here, there = as_object(ours), as_object(theirs)
    if here is not None and there is not None:
        return _state(here, there) if "status" in here and "status" in there else _record(here, there)
    if name in ("cost", "total", "input", "output", "reasoning", "read", "write") and not (ours and theirs):
        return Relation.AHEAD if not ours else Relation.BEHIND
    lists = as_list(ours), as_list(theirs)
    if name in _MONOTONIC_FIELDS and None not in lists:
        return Relation.AHEAD if len(lists[1] or ()) > len(lists[0] or ()) else Relation.BEHIND
    return Relation.DIVERGED


def _text(name: str, ours: str, theirs: str) -> Relation:
    if name in ("text", "output", "raw"):
        if theirs.rstrip() == ours.rstrip():
            return Relation.SAME  # trailing blanks are cut when a text is complete
        if theirs.startswith(ours):
            return Relation.AHEAD
        if ours.startswith(theirs):
            return Relation.BEHIND
    # A title that was given later changes nothing in what was said; the one that is here stays.
    return Relation.BEHIND if name in _MONOTONIC_FIELDS else Relation.DIVERGED


def _state(ours: Document, theirs: Document) -> Relation:
    """A tool call that came further holds more, whatever else it says."""
    here, there = (_STATES.get(str(state["status"]), 0) for state in (ours, theirs))
    if here != there:
        return Relation.AHEAD if there > here else Relation.BEHIND
    return _record(ours, theirs) if ours["status"] == theirs["status"] else Relation.DIVERGED


def _copied(message: StoredMessage, session: str, names: dict[str, str]) -> StoredMessage:
    name = names[str(message.info.get("id"))]
    info = message.info | {"id": name, "sessionID": session}
    if info.get("parentID") in names:
        info["parentID"] = names[info["parentID"]]
    own = {"sessionID": session, "messageID": name}
    return StoredMessage(
        info, [part | {"id": _derived(str(part.get("id")), name.encode())} | own for part in message.parts]
    )


def _derived(name: str, salt: bytes) -> str:
    """A new identifier that keeps its prefix and its moment, and so its place in the order."""
    digest = blake2b(name.encode() + b"\0" + salt, digest_size=14).digest()
    return name[:-14] + "".join(_ALPHABET[byte % 62] for byte in digest) if len(name) > 26 else name + digest.hex()


def _created(message: StoredMessage) -> Any:
    return (as_object(message.info.get("time")) or {}).get("created")
