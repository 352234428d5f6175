"""Common prefixes of packed keys: exact cases, a plain model, and a count of steps."""

import random
import sys
from array import array

from grading import test

WHOLE_PAGES = (
    "only whole pages count: round the common length down to a multiple of page_bytes"
)


def pack(tokens):
    return array("i", tokens).tobytes()


def plain(key, start, other, page_bytes):
    """Page by page, as slowly as it is said."""
    end = 0
    while True:
        stop = end + page_bytes
        page = other[end:stop]
        if len(page) < page_bytes or page != key[start + end : start + stop]:
            return end
        end = stop


def check_shared(check, answer, tokens, other, expected_pages, look, **options):
    page_size, start_tokens = options.get("page_size", 1), options.get("start", 0)
    check.equal(
        answer.common_prefix_bytes(
            pack(tokens), 4 * start_tokens, pack(other), 4 * page_size
        ),
        4 * page_size * expected_pages,
        call=f"common_prefix_bytes(pack({tokens}), {4 * start_tokens}, pack({other}), "
        f"{4 * page_size})",
        look=look,
    )


class TooManySteps(BaseException):
    """More small steps of the interpreter than a halving can need."""


def within_steps(limit, function, *arguments):
    """What the function returns; TooManySteps, the class, if it takes longer."""
    steps = 0

    def trace(frame, event, argument):
        nonlocal steps
        frame.f_trace_opcodes = True
        steps += event == "opcode"
        if steps > limit:
            raise TooManySteps
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        return function(*arguments)
    except TooManySteps:
        return TooManySteps
    finally:
        sys.settrace(before)


@test("up to the first difference", example=True)
def _(answer, check):
    check_shared(check, answer, [1, 2, 3, 4], [1, 2, 9, 4], 2, "2 tokens, 4 bytes each")


@test("whole pages only", example=True)
def _(answer, check):
    check_shared(check, answer, [1, 2, 3, 4], [1, 2, 3, 9], 1, WHOLE_PAGES, page_size=2)


@test("a difference inside the first page, and no page at all")
def _(answer, check):
    look = "nothing is shared: the answer is 0 bytes"
    check_shared(check, answer, [1, 2], [1, 3], 0, look, page_size=2)
    check_shared(check, answer, [1, 2], [9, 2], 0, look)
    check_shared(check, answer, [], [1], 0, look)
    check_shared(check, answer, [1], [], 0, look)
    check_shared(check, answer, [1, 2, 3], [1, 2, 3], 0, look, page_size=4)


@test("one is longer than the other")
def _(answer, check):
    look = (
        "the shorter of `other` and `key[start:]` ends the comparison. " + WHOLE_PAGES
    )
    check_shared(check, answer, [1, 2, 3, 4], [1, 2], 2, look)
    check_shared(check, answer, [1, 2], [1, 2, 3, 4], 2, look)
    check_shared(check, answer, [1, 2, 3, 4], [1, 2, 3, 4], 4, look)
    check_shared(check, answer, [1, 2, 3, 4, 5], [1, 2, 3], 1, look, page_size=2)
    check_shared(check, answer, [1, 2, 3], [1, 2, 3, 4, 5, 6], 1, look, page_size=2)


@test("the comparison begins at `start`")
def _(answer, check):
    look = "page 0 of `other` is compared with the page of `key` at `start`"
    check_shared(check, answer, [7, 8, 1, 2, 3], [1, 2, 9], 2, look, start=2)
    check_shared(check, answer, [1, 2, 3, 4, 1, 2], [1, 2, 3, 4], 2, look, start=4)
    check_shared(check, answer, [1, 2, 3], [1], 0, look, start=3)
    check_shared(
        check, answer, [1, 2, 3, 4, 3, 4], [3, 4, 3, 4], 2, look, start=2, page_size=2
    )


@test("an equal page behind a difference does not count")
def _(answer, check):
    look = "a prefix ends at its first difference, whatever is equal behind it"
    for different in range(8):
        other = list(range(8))
        other[different] = 99
        check_shared(check, answer, list(range(8)), other, different, look)


@test("tokens that differ in one of their four bytes")
def _(answer, check):
    look = "a token is four bytes; 1 and 257 share some of them and are two tokens"
    for token in (257, 65537, 2**24 + 1):
        check_shared(check, answer, [5, 1], [5, token], 1, look)
        check_shared(check, answer, [5, token], [5, 1], 1, look)
        check_shared(check, answer, [5, 1, 6], [5, token, 6], 0, look, page_size=2)


@test("random keys, against a comparison page by page")
def _(answer, check):
    rng = random.Random(8)
    for page_size in (1, 2, 3, 16):
        for _ in range(100):
            tokens = rng.choices((1, 2), k=rng.randrange(6 * page_size))
            start = rng.randrange(len(tokens) // page_size + 1) * page_size
            other = tokens[start:] + rng.choices((1, 2), k=rng.randrange(5))
            if other and rng.random() < 0.7:
                other[rng.randrange(len(other))] ^= 3
            arguments = (pack(tokens), 4 * start, pack(other), 4 * page_size)
            check.equal(
                answer.common_prefix_bytes(*arguments),
                plain(*arguments),
                call=f"common_prefix_bytes(pack({tokens}), {4 * start}, "
                f"pack({other}), {4 * page_size})",
                look=WHOLE_PAGES,
            )


@test("a long key costs a few comparisons, not one per token")
def _(answer, check):
    num_tokens = 32768
    key = pack([5] * 7 + list(range(num_tokens)))
    for position in (num_tokens - 1, num_tokens // 3, 0, None):
        tokens = list(range(num_tokens))
        if position is not None:
            tokens[position] += 1
        shared = within_steps(
            20000, answer.common_prefix_bytes, key, 28, pack(tokens), 4
        )
        where = "nowhere" if position is None else f"at token {position}"
        call = f"{num_tokens} tokens that differ {where}"
        check.true(
            shared is not TooManySteps,
            call=call,
            expected="an answer within 20000 small steps of the interpreter",
            actual="none so far",
            look="one comparison of two long stretches of bytes takes one step in "
            "Python, a loop over the tokens some for each: how many such comparisons "
            "find the first difference?",
        )
        expected = num_tokens if position is None else position
        check.equal(shared, 4 * expected, call=call, look="the first difference counts")
