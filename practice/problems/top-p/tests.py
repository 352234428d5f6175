"""Top-p sampling: exact cuts, ties and ends, and random distributions in fractions."""

import random
from fractions import Fraction

from grading import test

REACH = "the token that reaches top_p is kept; the first is always kept"
SHARE = "the kept tokens share all of the probability: enlarge it to sum to 1"
FIRST = "the most likely token comes first, wherever it stands in the list"
RANK = "return the token's id, not its place among the kept tokens"
PART = "each part is [start, end): its start belongs to it, its end to the next token"
SHORT = "rounding may leave a sum a little short; a kept token comes out all the same"

LAST = 1 - 2**-53  # the largest float below 1


def check_token(check, answer, probs, top_p, uniform, expected, look):
    check.equal(
        answer.sample_top_p(list(probs), top_p, uniform),
        expected,
        call=f"sample_top_p({probs}, {top_p}, {uniform})",
        look=look,
    )


@test("two of four tokens hold three quarters", example=True)
def _(answer, check):
    probs = [0.125, 0.5, 0.25, 0.125]
    check_token(check, answer, probs, 0.75, 0.25, 1, RANK)
    check_token(check, answer, probs, 0.75, 0.5, 1, SHARE)
    check_token(check, answer, probs, 0.75, 0.9, 2, SHARE)


@test("the cut falls behind the token that reaches top_p", example=True)
def _(answer, check):
    probs = [0.5, 0.25, 0.125, 0.125]
    for top_p, last_kept in [
        (0.5, 0),
        (0.51, 1),
        (0.74, 1),
        (0.75, 1),
        (0.76, 2),
        (0.875, 2),
        (0.9, 3),
    ]:
        check_token(check, answer, probs, top_p, LAST, last_kept, REACH)


@test("the most likely token decides, not the first of the vocabulary")
def _(answer, check):
    probs = [0.0625, 0.0625, 0.125, 0.75]
    for uniform in (0.0, 0.5, LAST):
        check_token(check, answer, probs, 0.7, uniform, 3, FIRST)
    for uniform, expected in [(0.0, 3), (0.8, 3), (0.86, 2), (LAST, 2)]:
        check_token(check, answer, probs, 0.8, uniform, expected, FIRST)


@test("a part begins where the one before it ends")
def _(answer, check):
    probs = [0.25, 0.5, 0.25]
    for uniform, expected in [
        (0.0, 1),
        (0.4999999999999999, 1),
        (0.5, 0),
        (0.75, 2),
        (LAST, 2),
    ]:
        check_token(check, answer, probs, 1.0, uniform, expected, PART)


@test("of equally likely tokens, the lower id comes first")
def _(answer, check):
    tie = "of equally likely tokens the lower id comes first, and the cut may part them"
    probs = [0.25, 0.25, 0.25, 0.25]
    for top_p, uniform, expected in [(0.5, 0.0, 0), (0.5, LAST, 1), (0.75, LAST, 2)]:
        check_token(check, answer, probs, top_p, uniform, expected, tie)
    probs = [0.125, 0.375, 0.125, 0.375]
    for top_p, uniform, expected in [(0.375, LAST, 1), (0.7, LAST, 3), (0.8, LAST, 0)]:
        check_token(check, answer, probs, top_p, uniform, expected, tie)


@test("one token above top_p stands alone")
def _(answer, check):
    alone = "the first token holds top_p by itself, so nothing else is kept"
    for uniform in (0.0, 0.5, LAST):
        check_token(check, answer, [0.25, 0.75], 0.1, uniform, 1, alone)
        check_token(check, answer, [1.0], 1.0, uniform, 0, alone)


@test("top_p = 1 keeps all that is possible, and nothing that is not")
def _(answer, check):
    probs = [0.0, 0.5, 0.0, 0.375, 0.125]
    never = "with top_p 1 every token may come out, except one of probability 0"
    for uniform, expected in [(0.0, 1), (0.5, 3), (0.874, 3), (0.875, 4), (LAST, 4)]:
        check_token(check, answer, probs, 1.0, uniform, expected, never)


@test("a sum that is a little short still gives a kept token")
def _(answer, check):
    for count in (3, 10, 49, 98, 1000):
        check.equal(
            answer.sample_top_p([1 / count] * count, 1.0, LAST),
            count - 1,
            call=f"sample_top_p([1 / {count}] * {count}, 1.0, 1 - 2**-53)",
            look=SHORT,
        )
    probs = [0.5, 0.25, 0.2]
    check_token(check, answer, probs, 1.0, 0.99, 2, SHORT)


@test("the list that came in stays as it was")
def _(answer, check):
    probs = [0.125, 0.5, 0.25, 0.125]
    answer.sample_top_p(probs, 0.75, 0.5)
    check.equal(
        probs,
        [0.125, 0.5, 0.25, 0.125],
        call="probs = [0.125, 0.5, 0.25, 0.125]; sample_top_p(probs, 0.75, 0.5); probs",
        look="the caller may need probs again: sort a copy",
    )


def drawn(probs, top_p, uniform):
    """The token by exact fractions; None if `uniform` is too near a border to tell."""
    order = sorted(range(len(probs)), key=lambda token: (-probs[token], token))
    kept, before = [], Fraction(0)
    for token in order:
        if before < top_p:
            kept.append(token)
        before += probs[token]
    total = sum(probs[token] for token in kept)
    start = Fraction(0)
    for token in kept:
        end = start + probs[token] / total
        if min(abs(uniform - start), abs(uniform - end)) < Fraction(1, 10**9):
            return None
        if start <= uniform < end:
            return token
        start = end
    return None


@test("random distributions, against exact fractions")
def _(answer, check):
    rng = random.Random(40)
    checked = 0
    while checked < 120:
        weights = [rng.choice([0, 1, 1, 2, 3, 8, 30]) for _ in range(rng.randint(1, 9))]
        weights.append(64 * 9 - sum(weights) if rng.random() < 0.3 else 16)
        scale = 2 ** (sum(weights) - 1).bit_length()
        weights.append(scale - sum(weights))  # so that all sums of floats are exact
        rng.shuffle(weights)
        probs = [Fraction(weight, scale) for weight in weights]
        top_p = Fraction(rng.randint(1, scale), scale)
        uniform = Fraction(rng.random())
        expected = drawn(probs, top_p, uniform)
        if expected is None:
            continue
        checked += 1
        check_token(
            check,
            answer,
            [float(prob) for prob in probs],
            float(top_p),
            float(uniform),
            expected,
            f"{REACH}; {PART}",
        )
