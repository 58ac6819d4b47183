from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from opensesh import ids
from opensesh.errors import InvalidIDError

WRAPS = [25 * ids.ERA_MS, 26 * ids.ERA_MS, 27 * ids.ERA_MS]
Y2100 = int(datetime(2100, 1, 1, tzinfo=UTC).timestamp() * 1000)
FAR = 397 * 86_400_000


def minter(*times: int) -> ids.IdGenerator:
    remaining = list(times)
    return ids.IdGenerator(clock=lambda: remaining.pop(0) if len(remaining) > 1 else remaining[0])


def test_the_wraps_are_where_the_calendar_says() -> None:
    moments = [datetime.fromtimestamp(wrap / 1000, UTC).isoformat(timespec="milliseconds") for wrap in WRAPS]
    assert moments == [
        "2024-06-10T02:35:18.400+00:00",
        "2026-08-14T11:19:55.136+00:00",
        "2028-10-17T20:04:31.872+00:00",
    ]


def test_known_identifiers_are_minted_to_the_letter() -> None:
    assert minter(1768073802911).descending("ses")[:16] == "ses_45696cb60ffe"
    assert minter(1768073802913).ascending("msg")[:16] == "msg_ba96934a1001"
    last, first = minter(WRAPS[1] - 1), minter(WRAPS[1])
    assert last.ascending("msg")[:16] == "msg_fffffffff001"
    assert first.descending("ses")[:16] == "ses_fffffffffffe"


def test_an_identifier_has_26_characters_after_its_prefix() -> None:
    for prefix in ("ses", "msg", "prt", "per", "que", "usr", "pty", "tool"):
        body = ids.ascending(prefix).removeprefix(f"{prefix}_")
        assert len(body) == 26
        assert body[:12] == body[:12].lower()
        assert body.isalnum()


def test_a_given_identifier_is_checked_for_its_prefix_and_kept() -> None:
    assert ids.ascending("msg", "msg_mine") == "msg_mine"
    with pytest.raises(InvalidIDError, match="not a ses_") as caught:
        ids.descending("ses", "msg_mine")
    assert caught.value.data == {"id": "msg_mine", "prefix": "ses"}


@given(
    start=st.sampled_from([*WRAPS, Y2100]),
    steps=st.lists(st.integers(min_value=-5_000, max_value=5_000), min_size=1, max_size=60),
)
def test_order_is_the_order_of_minting_independent_of_the_clock(start: int, steps: list[int]) -> None:
    times = [start]
    for step in steps:
        times.append(times[-1] + step)
    mint = minter(*times)
    made = [mint.ascending("prt") for _ in times]
    keys = [ids.order(item, start) for item in made]
    assert keys == sorted(keys)
    assert len(set(keys)) == len(keys)


@given(wrap=st.sampled_from([*WRAPS, Y2100]), offset=st.integers(-(10**9), 10**9), skew=st.integers(-FAR, FAR))
@example(wrap=WRAPS[1], offset=0, skew=-FAR)
@example(wrap=WRAPS[1], offset=0, skew=FAR)
def test_the_instant_is_true_within_397_days_of_the_guess(wrap: int, offset: int, skew: int) -> None:
    moment = wrap + offset
    assert ids.timestamp_of(minter(moment).ascending("msg"), near=moment + skew) == moment
    assert ids.timestamp_of(minter(moment).descending("ses"), near=moment + skew) == moment


def test_sessions_descend_by_name_and_ascend_by_order() -> None:
    mint = minter(1768073802911, 1768073802912)
    older, newer = mint.descending("ses"), mint.descending("ses")
    assert newer < older
    assert ids.order(older, 1768073802911) < ids.order(newer, 1768073802911)


def test_a_session_is_placed_at_the_moment_it_shares_with_a_message() -> None:
    session, message = minter(WRAPS[1]).descending("ses"), minter(WRAPS[1]).ascending("msg")
    assert ids.order(session, WRAPS[1])[0] == ids.order(message, WRAPS[1])[0]


def test_four_thousand_in_one_millisecond_all_tell_that_millisecond() -> None:
    mint = minter(WRAPS[1])
    assert {ids.timestamp_of(mint.ascending("prt"), near=WRAPS[1]) for _ in range(4_000)} == {WRAPS[1]}


def test_the_clock_counts_milliseconds_since_1970() -> None:
    before = time.time()
    reported = ids.now_ms() / 1000
    assert before - 0.001 <= reported <= time.time()
    assert ids.timestamp_of(ids.ascending("msg")) == pytest.approx(reported * 1000, abs=60_000)


def test_ten_thousand_in_one_millisecond_stay_in_order() -> None:
    mint = minter(WRAPS[1] - 1)
    made = [mint.ascending("msg") for _ in range(10_000)]
    keys = [ids.order(item, WRAPS[1]) for item in made]
    assert all(one < two for one, two in pairwise(keys))


class Moment(int):
    """Lets the other threads in while it is compared."""

    def __mul__(self, other: int) -> Moment:
        return Moment(int(self) * other)

    def __add__(self, other: int) -> Moment:
        return Moment(int(self) + other)

    def __gt__(self, other: int) -> bool:
        time.sleep(0)
        return int(self) > other

    def __lt__(self, other: int) -> bool:
        time.sleep(0)
        return int(self) < other


def test_threads_never_share_a_moment() -> None:
    mint = minter(Moment(WRAPS[1]))
    made: list[str] = []

    def work() -> None:
        made.extend([mint.ascending("prt") for _ in range(200)])

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({item[:16] for item in made}) == 1_600


@pytest.mark.parametrize(
    "wrong",
    [
        "", "msg", "msg_", "msg_12345", "msg_zzzzzzzzzzzz", "msg_1e08 00000012", "msg_１２３４５６７８９０１２",
        "0123456789abcdef", "msg_+12345678901", "msg_12345_678901",
    ],
)  # fmt: skip
def test_what_holds_no_time_is_refused_by_instant_and_placed_by_order(wrong: str) -> None:
    with pytest.raises(InvalidIDError) as caught:
        ids.timestamp_of(wrong)
    assert caught.value.data == {"id": wrong}
    assert ids.order(wrong, 5) == (5 * 4096, wrong)


def test_names_on_both_sides_of_a_wrap_are_noticed() -> None:
    before, after = minter(WRAPS[1] - 1000).ascending("msg"), minter(WRAPS[1] + 1000).ascending("msg")
    assert after < before
    assert ids.spans_wraparound(sorted([before, after]))
    assert not ids.spans_wraparound([after])
    assert not ids.spans_wraparound([minter(WRAPS[1] - 2000).ascending("msg"), before])
    assert not ids.spans_wraparound([])
    assert ids.spans_wraparound(["msg_own_name"])
