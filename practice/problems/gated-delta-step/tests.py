"""Steps and chunks against exact fractions, by another form of the same rule."""

from __future__ import annotations

import random
from collections.abc import Callable
from copy import deepcopy
from fractions import Fraction
from typing import Any

from grading import Check, draw_table, test

# tokens a, b, … of a head with keys of 2 and values of 3 numbers: q, k, v, decay, beta
TOKENS = {
    "a": ([1.0, 0.3], [0.6, 0.8], [0.5, -0.2, 1.0], 0.9, 0.7),
    "b": ([0.2, -1.0], [0.8, -0.6], [-0.4, 0.9, 0.1], 0.5, 0.9),
    "c": ([-0.7, 0.4], [1.0, 0.0], [1.0, 1.0, -1.0], 0.3, 0.2),
    "d": ([0.5, 0.5], [0.0, 1.0], [-0.9, 0.3, 0.6], 1.0, 1.0),
    "e": ([1.0, -0.1], [0.7, 0.7], [0.2, 0.0, -0.8], 0.8, 0.0),
}
TOLERANCE = 1e-9


def exact(value: Any) -> Any:
    """Floats as the fractions that they are written as, in lists of any depth."""
    if isinstance(value, list):
        return [exact(x) for x in value]
    return Fraction(repr(value))


def as_floats(value: Any) -> Any:
    if isinstance(value, list):
        return [as_floats(x) for x in value]
    return round(float(value), 10)


class Exact:
    """S = decay * (S - beta * k (kᵀS)) + beta * k vᵀ, in fractions.

    The same rule, written as what a token does to the whole matrix.
    """

    def __init__(self, state) -> None:
        self.matrix = exact(state)

    def step(self, token: tuple) -> list[float]:
        q, k, v, decay, beta = map(exact, token)
        dims = range(len(k))
        columns = list(zip(*self.matrix, strict=True))
        held = [sum(k[d] * column[d] for d in dims) for column in columns]
        self.matrix = [
            [
                decay * (old - beta * k[d] * held[e]) + beta * k[d] * v[e]
                for e, old in enumerate(self.matrix[d])
            ]
            for d in dims
        ]
        columns = zip(*self.matrix, strict=True)
        return as_floats([sum(q[d] * column[d] for d in dims) for column in columns])

    def result_of(self, tokens: list[tuple]) -> tuple[list, list]:
        return [self.step(token) for token in tokens], as_floats(self.matrix)


def snapped(got: Any, wanted: Any) -> Any:
    """`got`, with the numbers of `wanted` in the place of those close to them."""
    if type(got) in (list, tuple) and type(got) is type(wanted):
        pairs = list(zip(got, wanted, strict=False))
        rest = list(got[len(pairs) :])
        return type(got)([snapped(x, y) for x, y in pairs] + rest)
    if type(got) is float and type(wanted) is float and abs(got - wanted) <= TOLERANCE:
        return wanted
    return got


def columns_of(tokens: list[tuple]) -> list[list]:
    """Tokens as the arguments of delta_chunk: all q, all k, …"""
    return [deepcopy(list(column)) for column in zip(*tokens, strict=True)]


def check_result(
    check: Check, got: Any, tokens: list[tuple], start: list, call: str, look: str
) -> None:
    wanted = Exact(start).result_of(tokens)
    check.equal(snapped(got, wanted), wanted, call=call, look=look)


def step_by_step(answer, tokens: list[tuple], start: list) -> tuple[list, Any]:
    outs, state = [], deepcopy(start)
    for token in tokens:
        out, state = answer.delta_step(*deepcopy(token), state)
        outs.append(out)
    return outs, state


def shown(arguments: tuple) -> str:
    return ", ".join(map(str, arguments))


@test("the example", example=True)
def _(answer, check: Check):
    arguments = ([2.0], [1.0], [3.0], 0.5, 0.5, [[2.0]])
    check.equal(
        answer.delta_step(*arguments),
        ([4.0], [[2.0]]),
        call=f"delta_step({shown(arguments)})",
        look="what the state holds is read after it has faded (1, not 2), and only the "
        "difference to v is written",
    )


@test("a key reads what was written under it", example=True)
def _(answer, check: Check):
    state = [[1.0, 2.0, 4.0], [8.0, 16.0, 32.0]]
    arguments = ([1.0, 0.0], [1.0, 0.0], [5.0, 6.0, 7.0], 1.0, 1.0, state)
    check.equal(
        answer.delta_step(*deepcopy(arguments)),
        ([5.0, 6.0, 7.0], [[5.0, 6.0, 7.0], [8.0, 16.0, 32.0]]),
        call=f"delta_step({shown(arguments)})",
        look="with beta 1 the value under the key is replaced, not added to; a key at "
        "a right angle does not notice",
    )
    arguments = ([0.0, 1.0], [0.0, 1.0], [0.0, 0.0, 0.0], 0.5, 0.5, state)
    check.equal(
        answer.delta_step(*deepcopy(arguments)),
        ([2.0, 4.0, 8.0], [[0.5, 1.0, 2.0], [2.0, 4.0, 8.0]]),
        call=f"delta_step({shown(arguments)})",
        look="the other key fades as well; this one is taken half the way to its value",
    )
    arguments = ([1.0, 1.0], [0.5, 0.5], [1.0, 1.0, 1.0], 1.0, 0.0, state)
    check.equal(
        answer.delta_step(*deepcopy(arguments)),
        ([9.0, 18.0, 36.0], state),
        call=f"delta_step({shown(arguments)})",
        look="with beta 0 nothing is written, and with decay 1 nothing fades",
    )


@test("the state of the caller does not change")
def _(answer, check: Check):
    for name in "delta_step", "delta_chunk":
        state = [[1.0, 2.0, 4.0], [8.0, 16.0, 32.0]]
        given = deepcopy(state)
        token = deepcopy(TOKENS["a"])
        arguments = token if name == "delta_step" else [[item] for item in token]
        before = deepcopy(arguments)
        _, new = getattr(answer, name)(*arguments, given)
        check.equal(
            (given, arguments),
            (state, before),
            call=f"{name}(q, k, v, decay, beta, state): the arguments afterwards",
            look="the caller's state must not change: the tree may keep it for others",
        )
        new[0][0] = new[1][0] = 99.0
        check.equal(
            given,
            state,
            call=f"{name}(…), then the new state is written to: the old one",
            look="the caller's state must not change: no row may be part of both",
        )


@test("many steps")
def _(answer, check: Check):
    start = [[0.3, -0.2, 0.9], [0.0, 1.0, -0.5]]
    for names in "a", "b", "ab", "abcde", "eddcbbaac":
        tokens = [TOKENS[name] for name in names]
        check_result(
            check,
            step_by_step(answer, tokens, start),
            tokens,
            start,
            f"{len(names)} steps, of the tokens {', '.join(names)}: outs, last state",
            "fade, read at k, write the correction, read at q, in this order",
        )


@test("a chunk of one token is a step", example=True)
def _(answer, check: Check):
    got = answer.delta_chunk([[2.0]], [[1.0]], [[3.0]], [0.5], [0.5], [[2.0]])
    check.equal(
        got,
        ([[4.0]], [[2.0]]),
        call="delta_chunk([[2.0]], [[1.0]], [[3.0]], [0.5], [0.5], [[2.0]])",
        look="one token: it sees the state after its own decay",
    )


@test("a chunk of two tokens", example=True)
def _(answer, check: Check):
    check.equal(
        answer.delta_chunk(
            [[1.0], [1.0]],
            [[1.0], [1.0]],
            [[4.0], [8.0]],
            [1.0, 1.0],
            [1.0, 1.0],
            [[2.0]],
        ),
        ([[4.0], [8.0]], [[8.0]]),
        call="delta_chunk of two tokens with the same key, values 4 and 8, decay 1, "
        "beta 1, on [[2.0]]",
        look="the tokens before it in the chunk have written too: the second one finds "
        "4, and corrects that",
    )
    check.equal(
        answer.delta_chunk(
            [[1.0], [1.0]],
            [[1.0], [0.0]],
            [[4.0], [0.0]],
            [0.5, 0.5],
            [1.0, 1.0],
            [[8.0]],
        ),
        ([[4.0], [2.0]], [[2.0]]),
        call="delta_chunk of a token that writes 4, and one that only looks, decay "
        "0.5, beta 1, on [[8.0]]",
        look="a correction does not fade by the decay of its own token, only by the "
        "later ones",
    )


@test("a chunk agrees with the steps")
def _(answer, check: Check):
    for start in (
        [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]],
        [[0.3, -0.2, 0.9], [0.0, 1.0, -0.5]],
    ):
        for names in "ab", "ba", "aa", "abc", "dcb", "abcde", "eddcbbaac":
            tokens = [TOKENS[name] for name in names]
            check_result(
                check,
                answer.delta_chunk(*columns_of(tokens), deepcopy(start)),
                tokens,
                start,
                f"delta_chunk of the tokens {', '.join(names)} on {start}: outs, state",
                "each correction depends on the start state and on the corrections "
                "before it, faded up to now",
            )


@test("a chunk takes no steps")
def _(answer, check: Check):
    def stub(*args: object) -> None:
        raise NotImplementedError("delta_chunk does not call delta_step")

    tokens = [TOKENS[name] for name in "abcde"]
    start = [[0.3, -0.2, 0.9], [0.0, 1.0, -0.5]]
    step, answer.delta_step = answer.delta_step, stub
    try:
        got = attempt(lambda: answer.delta_chunk(*columns_of(tokens), start))
    finally:
        answer.delta_step = step
    look = "with the corrections, no state in between is needed"
    check_result(check, got, tokens, start, "delta_chunk, without delta_step", look)


@test("strong fading")
def _(answer, check: Check):
    start = [[0.3, -0.2, 0.9], [0.0, 1.0, -0.5]]
    decays = 0.5, 1e-200, 1e-200, 0.5, 0.9
    tokens = [
        (q, k, v, decay, beta)
        for (q, k, v, _, beta), decay in zip(TOKENS.values(), decays, strict=True)
    ]
    check_result(
        check,
        attempt(lambda: answer.delta_chunk(*columns_of(tokens), start)),
        tokens,
        start,
        f"delta_chunk of 5 tokens with the decays {list(decays)}: outs, state",
        "a product of many decays becomes 0, and nothing can be divided by that: "
        "multiply the decays between two tokens",
    )


def attempt(function: Callable[[], Any]) -> Any:
    try:
        return function()
    except (ArithmeticError, ValueError, NotImplementedError) as error:
        return f"{type(error).__name__}: {error}"


class Head:
    """A head that computes tokens by name, in steps or in chunks."""

    def __init__(self, answer) -> None:
        self.answer = answer
        self.matrix: Any = [[0.0] * 3 for _ in range(2)]
        self.exact = Exact(self.matrix)

    def step(self, name: str):
        wanted = self.exact.step(TOKENS[name])
        out, self.matrix = self.answer.delta_step(*deepcopy(TOKENS[name]), self.matrix)
        return snapped(out, wanted)

    def chunk(self, names: str):
        tokens = [TOKENS[name] for name in names]
        wanted, _ = self.exact.result_of(tokens)
        outs, self.matrix = self.answer.delta_chunk(*columns_of(tokens), self.matrix)
        return snapped(outs, wanted)

    def state(self):
        return snapped(self.matrix, as_floats(self.exact.matrix))


class ExactHead:
    def __init__(self) -> None:
        self.exact = Exact([[0.0] * 3 for _ in range(2)])

    def step(self, name: str):
        return self.exact.step(TOKENS[name])

    def chunk(self, names: str):
        return self.exact.result_of([TOKENS[name] for name in names])[0]

    def state(self):
        return as_floats(self.exact.matrix)


def draw(head) -> str:
    rows = [[f"{x:.4f}" for x in row] for row in head.state()]
    tokens = [[name, *map(str, token)] for name, token in TOKENS.items()]
    return "\n\n".join(
        [
            draw_table(["S", "", ""], rows),
            draw_table(["token", "q", "k", "v", "decay", "beta"], tokens),
        ]
    )


@test("steps and chunks follow each other")
def _(answer, check: Check):
    for seed in range(4):
        rng = random.Random(seed)
        operations = [
            ("step", rng.choice("abcde"))
            if rng.random() < 0.4
            else ("chunk", "".join(rng.choices("abcde", k=rng.randrange(1, 6))))
            for _ in range(15)
        ]
        check.operations(
            operations,
            expected=ExactHead,
            actual=lambda: Head(answer),
            look="the state is all that goes on from one call to the next, so it makes "
            "no difference where a prompt is cut",
            draw=draw,
        )
