"""Sample data of the conformance suite (records of OpenCode, values that are hard to store, invalid names), the store
under test, and assertions."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

from .. import ids
from ..records import as_list, as_object, order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ..records import Document
    from ..storage.protocol import Damage, Key, Store

    Harm = Callable[[Store, Key, bytes], None]


WRAP = 26 * ids.ERA_MS
"""2026-08-14T11:19:55.136Z: ids that are created later sort before those that were created earlier."""

BAD_NAMES = (
    "",
    ".",
    "..",
    "../up",
    "a/b",
    "/etc",
    "a\\b",
    "C:",
    "a:b",
    "a.json",
    ".hidden",
    "a\0b",
    "a\nb",
    "a b",
    " a",
    "a*",
    "~",
    "$HOME",
    "%2e%2e",
    "é",
    "\uff41",
    "\u202eses",
    "\ud800",
    "con",
    "NUL",
    "Com1",
    "lpt9",
    "x" * 5000,
)
"""Components of keys that every store rejects: paths, names of devices, and other special names."""


VALUES: Sequence[Any] = [
    {},
    [],
    {"z": 1, "a": 2, "m": {"y": 1, "b": 2}},
    {"unknown": {"deep": [{"er": [[], {}, [None]]}]}, "": "an empty name", "a.b/c": 1, "ключ": "значение"},
    [{"content": "x", "status": "pending", "priority": "high"}, 2, "three", None, True],
    {"true": True, "one": 1, "false": False, "zero": 0, "null": None, "text": "1"},
    {"integers": [0, -1, 2**31, -(2**31), 2**53 - 1, -(2**53), 2**63 - 1]},
    {"floats": [0.1, -0.5, 1e-7, 5e-324, 1.7976931348623157e308, 123456789.125, 0.30000000000000004]},
    {"large": [1e21, 1e22, 123456789012345680000.0, -1e300], "negative zero": -0.0, "whole": 3.0},
    {"text": ["", " ", "\\", '"', "/", "\u2028\u2029", "e\u0301", "é", "中文", "🙂", "\x7f", "\ufeff", "\ufffd"]},
    {"controls": "".join(map(chr, range(32)))},
    {"half a character": ["\ud800", "x\udc00y", "\udfff\ud800"], "\ud83d": "as a name"},
    {"lines": "one\ntwo\r\nthree\rfour\ttab"},
    {"long": "0123456789abcdef" * 20_000},
    {"many": {f"field{number}": number for number in range(500, 0, -1)}},
]
"""Values that must be read as they were written, including order and lone surrogates."""
E = TypeVar("E", bound=BaseException)
T = TypeVar("T")


class _Clock:
    def __init__(self, now: int) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


_numbers = count()
"""Each scribe has a number, which keeps its ids apart from those of others with the same clock."""


class Scribe:
    """Creates records as OpenCode does, with a clock and an id generator of its own."""

    def __init__(self, now: int, step: int = 1000) -> None:
        self._clock = _Clock(now)
        self._step = step
        number = next(_numbers)
        self._ids = ids.IdGenerator(self._clock, entropy=lambda length: f"{number:0{length}}".encode())

    def session(self, project: str, title: str) -> tuple[Key, dict[str, Any]]:
        """Return the next session."""
        now = self._tick()
        name = self._ids.descending("ses")
        tokens = {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}
        record = {"id": name, "slug": "a-slug", "projectID": project, "directory": "/somewhere", "cost": 0}
        model = {"id": "a-model", "providerID": "a-provider", "variant": "default"}
        record |= {"tokens": tokens, "title": title, "agent": "build", "model": model, "version": "1.1.65"}
        record |= {"time": {"created": now, "updated": now}}
        return ("session", project, name), record

    def message(self, session: str, name: str | None = None) -> tuple[Key, dict[str, Any]]:
        """Return the next message of a session, with this id if it is given."""
        now = self._tick()
        name = name or self._ids.ascending("msg")
        record: dict[str, Any] = {"id": name, "sessionID": session, "role": "user", "time": {"created": now}}
        model = {"providerID": "a-provider", "modelID": "a-model"}
        return ("message", session, name), record | {"agent": "build", "model": model}

    def part(self, session: str, message: str, text: str) -> tuple[Key, dict[str, Any]]:
        """Return the next part of a message."""
        name = self._ids.ascending("prt")
        record = {"id": name, "sessionID": session, "messageID": message, "type": "text", "text": text}
        return ("part", message, name), record

    def _tick(self) -> int:
        self._clock.now += self._step
        return self._clock.now


def _seed() -> Iterator[tuple[Key, Any]]:
    """Two projects with a session on each side of the wraparound and one across it, and their other records."""
    for project, start in (("0a1b2c3d4e5f60718293a4b5c6d7e8f901234567", WRAP - 5_500), ("global", WRAP + 86_400_000)):
        yield ("project", project), {
            "id": project, "worktree": "/", "time": {"created": start, "updated": start}, "sandboxes": [],
        }  # fmt: skip
        scribe = Scribe(start)
        for title in ("the first", "the second"):
            key, session = scribe.session(project, title)
            yield key, session
            for number in range(6):
                key, message = scribe.message(session["id"])
                yield key, message
                for text in ("one", "two", "three")[: number % 4]:
                    yield scribe.part(session["id"], message["id"], text)
            yield ("todo", session["id"]), [{"content": title, "status": "pending", "priority": "high"}]
            yield ("session_diff", session["id"]), []
        yield ("session_share", session["id"]), {"id": "s", "secret": "x", "url": "https://example.invalid/s/s"}


SEED: Mapping[Key, Any] = dict(_seed())
"""The records of a store that is read."""


class Subject(NamedTuple):
    """A store, its records, and a function that damages a record if there is one."""

    store: Store
    records: Mapping[Key, Any]
    harm: Harm | None = None

    @property
    def sessions(self) -> list[str]:
        """The ids of the sessions that have messages."""
        return list(dict.fromkeys(key[1] for key in self.records if key[0] == "message"))

    def messages(self, session: str) -> list[tuple[Document, list[Document]]]:
        """Return the expected messages of a session: by time, then by id near that time, and likewise their parts."""
        infos = [value for key, value in self.records.items() if key[:2] == ("message", session)]
        infos.sort(key=order.position)
        messages: list[tuple[Document, list[Document]]] = []
        for info in infos:
            near = order.created(info)
            parts = [(key[2], value) for key, value in self.records.items() if key[:2] == ("part", info["id"])]
            parts.sort(key=lambda part: ids.order(part[0], near))
            messages.append((info, [value for _, value in parts]))
        return messages

    def damage(self, key: Key, data: bytes) -> None:
        """Replace the bytes of a record."""
        if self.harm is None:
            raise AssertionError("this contract needs a way to damage the store")
        self.harm(self.store, key, data)


def expect(condition: object, complaint: str) -> None:
    """Fail with ``complaint`` unless the condition is true."""
    if not condition:
        raise AssertionError(complaint)


def expect_same(actual: Any, expected: Any, what: str) -> None:
    """Fail unless the values are equal, including the order of fields and types; ``3.0`` may have become ``3``."""
    difference = _difference(actual, expected, "$")
    expect(not difference, f"{what} is not as it was stored: {difference}")


def expect_raises(kind: type[E], act: Callable[[], object], what: str) -> E:
    """Return the exception of this type that ``act`` raises; fail if it raises another one or none."""
    try:
        result = act()
    except kind as error:
        return error
    except Exception as error:
        raise AssertionError(f"{what} raised {type(error).__name__} ({error}), not {kind.__name__}") from error
    raise AssertionError(f"{what} gave {_short(result)}, and should have raised {kind.__name__}")


def no_edit(_: Any) -> None:
    """Change nothing."""


def no_damage(damage: Damage) -> NoReturn:
    """Fail: no record of this store is damaged."""
    raise AssertionError(f"a healthy record was reported as damaged: {damage.path}: {damage.reason}")


def _difference(actual: Any, expected: Any, path: str) -> str:
    if (objects := _both(actual, expected, as_object)) is not None:
        if list(objects[0]) != list(objects[1]):
            return f"{path} has the fields {_short(list(objects[0]))}, not {_short(list(objects[1]))}"
        inner = [_difference(objects[0][name], objects[1][name], f"{path}.{name}") for name in objects[1]]
        return next(filter(None, inner), "")
    if (lists := _both(actual, expected, as_list)) is not None and len(lists[0]) == len(lists[1]):
        inner = [_difference(*pair, f"{path}[{n}]") for n, pair in enumerate(zip(*lists, strict=True))]
        return next(filter(None, inner), "")
    if isinstance(actual, bool) or isinstance(expected, bool):
        is_equal = actual is expected
    else:
        is_equal = (float(actual) if isinstance(expected, float) and isinstance(actual, int) else actual) == expected
    return "" if is_equal else f"{path} is {_short(actual)}, not {_short(expected)}"


def _both(actual: Any, expected: Any, kind: Callable[[Any], T | None]) -> tuple[T, T] | None:
    one, other = kind(actual), kind(expected)
    return None if one is None or other is None else (one, other)


def _short(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= 200 else text[:200] + "..."
