"""Rotation by position: small cases by hand, and the laws that make it useful."""

import math
import random

from grading import test

TOLERANCE = 1e-9
SPEED = "pair i turns by theta ** (-2 * i / head_dim) with each step of position"
PARTNER = "the partner of element i is element i + head_dim / 2"
TURN = "(a, b) turns into (a cos - b sin, b cos + a sin)"


def check_numbers(check, actual, expected, call, look):
    """All numbers of a list, one by one, after its type and length."""
    check.true(
        type(actual) is list and len(actual) == len(expected),
        call=call,
        expected=f"a list of {len(expected)} floats",
        actual=actual,
        look="the result is a new list",
    )
    for i, number in enumerate(expected):
        check.close(
            actual[i], number, tolerance=TOLERANCE, call=f"{call}[{i}]", look=look
        )


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


@test("the speeds of a head of 4", example=True)
def _(answer, check):
    speeds = answer.inv_freq(4, 10000.0)
    check_numbers(check, speeds, [1.0, 0.01], "inv_freq(4, 10000.0)", SPEED)


@test("a pair turns counterclockwise", example=True)
def _(answer, check):
    expected = [math.cos(1), math.sin(1)]
    turned = answer.rotate([1.0, 0.0], 1, [1.0])
    check_numbers(check, turned, expected, "rotate([1.0, 0.0], 1, [1.0])", TURN)


@test("partners stand half a head apart", example=True)
def _(answer, check):
    turned = answer.rotate([1.0, 0.0, 0.0, 0.0], 1, [1.0, 0.01])
    check_numbers(
        check,
        turned,
        [math.cos(1), 0.0, math.sin(1), 0.0],
        "rotate([1.0, 0.0, 0.0, 0.0], 1, [1.0, 0.01])",
        PARTNER,
    )


@test("the head that came in stays as it was")
def _(answer, check):
    head = [1.0, 2.0, 3.0, 4.0]
    turned = answer.rotate(head, 3, [1.0, 0.01])
    check.equal(
        head,
        [1.0, 2.0, 3.0, 4.0],
        call="head = [1.0, 2.0, 3.0, 4.0]; rotate(head, 3, [1.0, 0.01]); head",
        look="the head that came in must stay as it was: write to a new list",
    )
    check.true(
        turned is not head,
        call="rotate(head, 3, [1.0, 0.01])",
        expected="a new list",
        actual="the list that came in",
        look="the head that came in must stay as it was: write to a new list",
    )


@test("the speeds of a head of SmolLM2")
def _(answer, check):
    speeds = answer.inv_freq(64, 100000.0)
    expected = [100000.0 ** (-i / 32) for i in range(32)]
    check_numbers(check, speeds, expected, "inv_freq(64, 100000.0)", SPEED)


@test("position 0 turns nothing")
def _(answer, check):
    head = [0.5, -1.0, 2.0, 0.25, -3.0, 1.5]
    turned = answer.rotate(head, 0, [1.0, 0.1, 0.01])
    check_numbers(
        check,
        turned,
        head,
        f"rotate({head}, 0, [1.0, 0.1, 0.01])",
        "the angle is position * speed, so it is 0 here",
    )


@test("each pair has its own speed")
def _(answer, check):
    # quarter and half turns, so that the numbers move without changing
    speeds = [math.pi / 2, math.pi, 0.0]
    turned = answer.rotate([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 1, speeds)
    check_numbers(
        check,
        turned,
        [-4.0, -2.0, 3.0, 1.0, -5.0, 6.0],
        "rotate([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 1, [pi/2, pi, 0.0])",
        f"{TURN}; {PARTNER}",
    )


@test("position p is p steps of position 1")
def _(answer, check):
    speeds = [1.0, 0.1]
    head = step_by_step = [1.0, -2.0, 0.5, 3.0]
    for position in range(1, 8):
        step_by_step = answer.rotate(step_by_step, 1, speeds)
        check_numbers(
            check,
            answer.rotate(head, position, speeds),
            list(step_by_step),
            f"rotate({head}, {position}, {speeds})",
            f"{position} turns by one position must come out at the same place",
        )


@test("the score of a query and a key depends on their distance only")
def _(answer, check):
    rng = random.Random(2)
    for head_dim in (2, 4, 8, 64):
        speeds = [100000.0 ** (-2 * i / head_dim) for i in range(head_dim // 2)]
        query = [rng.gauss(0, 1) for _ in range(head_dim)]
        key = [rng.gauss(0, 1) for _ in range(head_dim)]
        near = dot(answer.rotate(query, 7, speeds), answer.rotate(key, 3, speeds))
        far = dot(answer.rotate(query, 8004, speeds), answer.rotate(key, 8000, speeds))
        check.close(
            far,
            near,
            tolerance=TOLERANCE,
            call=f"the score of a random query and key of {head_dim} numbers, at "
            "positions 8004 and 8000, and at 7 and 3",
            look=f"both are 4 apart, so the scores are equal: {TURN}",
        )
        check.close(
            dot(answer.rotate(query, 8004, speeds), answer.rotate(query, 8004, speeds)),
            dot(query, query),
            tolerance=TOLERANCE,
            call=f"the squared length of a random head of {head_dim} numbers, turned "
            "by position 8004",
            look=f"a turn changes no length: {TURN}",
        )


@test("random heads at random positions")
def _(answer, check):
    rng = random.Random(11)
    for head_dim in (2, 6, 16):
        speeds = [10000.0 ** (-2 * i / head_dim) for i in range(head_dim // 2)]
        half, position = head_dim // 2, rng.randrange(1, 5000)
        head = [rng.gauss(0, 1) for _ in range(head_dim)]
        expected = []
        for i in range(head_dim):
            cos = math.cos(position * speeds[i % half])
            sin = math.sin(position * speeds[i % half])
            partner = head[(i + half) % head_dim]
            expected.append(head[i] * cos + (sin if i >= half else -sin) * partner)
        check_numbers(
            check,
            answer.rotate(list(head), position, list(speeds)),
            expected,
            f"rotate({[round(x, 3) for x in head]}, {position}, "
            f"{[round(x, 6) for x in speeds]})",
            f"{PARTNER}, and {TURN}",
        )
