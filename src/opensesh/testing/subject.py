"""The store under test, and assertions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

from .. import ids
from ..records import as_list, as_object, order

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..records import Document
    from ..storage.protocol import Damage, Key, Store

    Harm = Callable[[Store, Key, bytes], None]

E = TypeVar("E", bound=BaseException)
T = TypeVar("T")


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
