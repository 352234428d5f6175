"""Grouped heads: models that exist, both ends, and the two directions together."""

import random

from grading import test

GROUP = "divide by the size of a group, num_qo_heads // num_kv_heads"
NEIGHBOURS = "neighbouring query heads share a KV head: 0, 1, … are the first group"


@test("SmolLM2: 9 query heads, 3 KV heads", example=True)
def _(answer, check):
    check.equal(
        answer.kv_head_of(4, 9, 3),
        1,
        call="kv_head_of(4, 9, 3)",
        look=NEIGHBOURS,
    )
    check.equal(
        answer.query_heads_of(1, 9, 3),
        [3, 4, 5],
        call="query_heads_of(1, 9, 3)",
        look=NEIGHBOURS,
    )


@test("a token of SmolLM2 in float32", example=True)
def _(answer, check):
    check.equal(
        answer.kv_bytes_per_token(30, 3, 64, 4),
        46080,
        call="kv_bytes_per_token(30, 3, 64, 4)",
        look="a key and a value of 3 heads of 64 numbers, and every layer keeps its "
        "own of both",
    )


@test("the KV heads of all query heads, in order")
def _(answer, check):
    for num_qo_heads, num_kv_heads, expected in [
        (9, 3, [0, 0, 0, 1, 1, 1, 2, 2, 2]),
        (8, 4, [0, 0, 1, 1, 2, 2, 3, 3]),
    ]:
        check.equal(
            [
                answer.kv_head_of(head, num_qo_heads, num_kv_heads)
                for head in range(num_qo_heads)
            ],
            expected,
            call=f"kv_head_of(0 … {num_qo_heads - 1}, {num_qo_heads}, {num_kv_heads})",
            look=GROUP,
        )


@test("groups that are larger or smaller than the number of KV heads")
def _(answer, check):
    # Qwen2.5-0.5B, Llama 3 8B, and one whose groups are small
    for query_head, num_qo_heads, num_kv_heads, expected in [
        (6, 14, 2, 0),
        (7, 14, 2, 1),
        (31, 32, 8, 7),
        (4, 32, 8, 1),
        (5, 12, 6, 2),
    ]:
        check.equal(
            answer.kv_head_of(query_head, num_qo_heads, num_kv_heads),
            expected,
            call=f"kv_head_of({query_head}, {num_qo_heads}, {num_kv_heads})",
            look=GROUP,
        )
    for kv_head, num_qo_heads, num_kv_heads, expected in [
        (1, 14, 2, [7, 8, 9, 10, 11, 12, 13]),
        (5, 12, 6, [10, 11]),
    ]:
        check.equal(
            answer.query_heads_of(kv_head, num_qo_heads, num_kv_heads),
            expected,
            call=f"query_heads_of({kv_head}, {num_qo_heads}, {num_kv_heads})",
            look=GROUP,
        )


@test("one KV head for each query head, and one for all")
def _(answer, check):
    for args, expected, look in [
        ((5, 8, 8), 5, "each query head has a KV head of its own"),
        ((5, 8, 1), 0, "all query heads read KV head 0"),
    ]:
        check.equal(
            answer.kv_head_of(*args), expected, call=f"kv_head_of{args}", look=look
        )
    for args, expected, look in [
        ((5, 8, 8), [5], "each query head has a KV head of its own"),
        ((0, 4, 1), [0, 1, 2, 3], "all query heads read KV head 0"),
    ]:
        check.equal(
            answer.query_heads_of(*args),
            expected,
            call=f"query_heads_of{args}",
            look=look,
        )


@test("both directions agree")
def _(answer, check):
    rng = random.Random(9)
    for _ in range(10):
        num_kv_heads, group = rng.randint(1, 9), rng.randint(1, 9)
        num_qo_heads = num_kv_heads * group
        groups = [
            answer.query_heads_of(kv_head, num_qo_heads, num_kv_heads)
            for kv_head in range(num_kv_heads)
        ]
        check.equal(
            groups,
            [[kv * group + i for i in range(group)] for kv in range(num_kv_heads)],
            call=f"query_heads_of(0 … {num_kv_heads - 1}, {num_qo_heads}, "
            f"{num_kv_heads})",
            look="every query head is in exactly one group of "
            f"{num_qo_heads} / {num_kv_heads} = {group} neighbours",
        )
        check.equal(
            [
                answer.kv_head_of(head, num_qo_heads, num_kv_heads)
                for members in groups
                for head in members
            ],
            [kv_head for kv_head in range(num_kv_heads) for _ in range(group)],
            call=f"kv_head_of(every head of every group, {num_qo_heads}, "
            f"{num_kv_heads})",
            look="kv_head_of leads back from every member of a group to its KV head",
        )


@test("bytes follow every size")
def _(answer, check):
    for args, expected, look in [
        ((1, 1, 1, 1), 2, "a key and a value, also of the smallest model"),
        ((30, 3, 64, 2), 23040, "bfloat16 has 2 bytes, half of float32"),
        ((30, 9, 64, 4), 138240, "three times the KV heads take three times as much"),
        ((24, 2, 64, 2), 12288, "every layer keeps its own keys and values"),
        ((32, 8, 128, 2), 131072, "Llama 3 8B: 128 KiB for each token"),
    ]:
        check.equal(
            answer.kv_bytes_per_token(*args),
            expected,
            call=f"kv_bytes_per_token{args}",
            look=look,
        )
