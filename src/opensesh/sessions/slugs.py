"""Names of new sessions: two words such as ``amber-lantern``, also for the names of plan files, and default titles."""

from __future__ import annotations

import os
from datetime import UTC, datetime

_FIRST = (
    "amber ample brave brisk candid chalky civil clear coastal copper crisp dapper dusky eager early fabled fleet "
    "floral frank gentle gilded grand hardy hazel humble ivory jolly keen lively loyal lucid mellow modest nimble "
    "noble patient plucky prime proud quick rapid rustic sandy sober spry steady sunny tidal tidy upland vivid warm"
).split()
_SECOND = (
    "acorn anchor aspen badger basil beacon birch bramble brook canyon cedar clover comet cove dune ember fable falcon "
    "fern finch fjord forge garnet glade harbor heron hollow inlet island juniper kestrel lagoon lantern larch ledger "
    "maple marsh orchard osprey otter pebble pine plover prairie quarry quill raven reef saddle thicket valley willow"
).split()


def new_slug() -> str:
    """A name at random. Not unique: identifiers are."""
    first, second = os.urandom(2)
    return f"{_FIRST[first % len(_FIRST)]}-{_SECOND[second % len(_SECOND)]}"


def default_title(now: int, *, child: bool = False) -> str:
    """Return the title of a session that has not been named: the time of its creation."""
    moment = datetime.fromtimestamp(now / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return f"{'Child' if child else 'New'} session - {moment}"
