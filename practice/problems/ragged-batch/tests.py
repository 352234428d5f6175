"""Ragged batches: prompts, prefix hits, slices and decoding requests, and mixtures."""

import random
from array import array

from grading import test
from minisgl.core import Req, SamplingParams

FIELDS = ("rows", "positions", "cu_seqlens_q", "cu_seqlens_k", "logit_indices")
LOOK = {
    "rows": "one entry for each token of the batch, not for each request",
    "positions": "positions go on behind the cached tokens: the first is cached_len",
    "cu_seqlens_q": "it begins with 0, and request i ends where request i + 1 begins",
    "cu_seqlens_k": "a query looks at the keys of all tokens of its request",
    "logit_indices": "the last token stands one before the next request begins",
}
NO_TOKEN = "a slice that ends inside the prompt gives no token, and needs no logits"


def new_req(row, cached_len, device_len, prompt_len):
    """A request whose next forward computes the tokens [cached_len, device_len)."""
    in_prompt = min(cached_len, prompt_len - 1)
    tokens = array("i", range(prompt_len))
    req = Req(tokens, row, in_prompt, 100, uid=row, sampling_params=SamplingParams())
    req.cached_len, req.device_len = cached_len, device_len
    return req


def told(reqs):
    """The requests as they are named in a message."""
    return ", ".join(
        f"row {req.table_idx}: [{req.cached_len}, {req.device_len}) of a prompt of "
        f"{req.prompt_len}"
        for req in reqs
    )


def check_layout(check, answer, reqs, expected, look=None):
    """Each field of the answer's batch, in the order of the statement."""
    batch = answer.lay_out(list(reqs))
    call = f"lay_out([{told(reqs)}])"
    check.true(
        isinstance(batch, answer.RaggedBatch),
        call=call,
        expected="a RaggedBatch",
        actual=f"an object of type {type(batch).__name__}",
        look="the class is in the starter",
    )
    for name in FIELDS:
        check.equal(
            getattr(batch, name),
            expected[name],
            call=f"{call}.{name}",
            look=(look or {}).get(name, LOOK[name]),
        )


@test("a slice of a prompt", example=True)
def _(answer, check):
    expected = {
        "rows": [0, 0],
        "positions": [2, 3],
        "cu_seqlens_q": [0, 2],
        "cu_seqlens_k": [0, 4],
        "logit_indices": [],
    }
    look = {"logit_indices": NO_TOKEN}
    check_layout(check, answer, [new_req(0, 2, 4, 9)], expected, look)


@test("a whole prompt, a slice and a decoding request", example=True)
def _(answer, check):
    reqs = [new_req(4, 0, 3, 3), new_req(0, 2, 4, 9), new_req(7, 6, 7, 5)]
    expected = {
        "rows": [4, 4, 4, 0, 0, 7],
        "positions": [0, 1, 2, 2, 3, 6],
        "cu_seqlens_q": [0, 3, 5, 6],
        "cu_seqlens_k": [0, 3, 7, 14],
        "logit_indices": [2, 5],
    }
    check_layout(check, answer, reqs, expected)


@test("a batch of decoding requests has one token each")
def _(answer, check):
    reqs = [new_req(2, 5, 6, 3), new_req(0, 9, 10, 9), new_req(1, 1, 2, 1)]
    expected = {
        "rows": [2, 0, 1],
        "positions": [5, 9, 1],
        "cu_seqlens_q": [0, 1, 2, 3],
        "cu_seqlens_k": [0, 6, 16, 18],
        "logit_indices": [0, 1, 2],
    }
    check_layout(check, answer, reqs, expected)


@test("a prompt of which all but the last token is cached")
def _(answer, check):
    expected = {
        "rows": [3],
        "positions": [7],
        "cu_seqlens_q": [0, 1],
        "cu_seqlens_k": [0, 8],
        "logit_indices": [0],
    }
    check_layout(check, answer, [new_req(3, 7, 8, 8)], expected)


@test("the last slice of a prompt samples, the others do not")
def _(answer, check):
    reqs = [new_req(0, 0, 3, 8), new_req(1, 6, 8, 8), new_req(2, 3, 6, 8)]
    expected = {
        "rows": [0, 0, 0, 1, 1, 2, 2, 2],
        "positions": [0, 1, 2, 6, 7, 3, 4, 5],
        "cu_seqlens_q": [0, 3, 5, 8],
        "cu_seqlens_k": [0, 3, 11, 17],
        "logit_indices": [4],
    }
    check_layout(check, answer, reqs, expected, {"logit_indices": NO_TOKEN})


@test("the requests stay as they were")
def _(answer, check):
    reqs = [new_req(4, 0, 3, 3), new_req(0, 2, 4, 9)]
    before = told(reqs)
    answer.lay_out(reqs)
    check.equal(
        told(reqs),
        before,
        call=f"reqs = [{before}]; lay_out(reqs); reqs",
        look="the lengths of a request move when the forward is done, not before",
    )


def random_req(rng, row):
    prompt_len = rng.randint(1, 12)
    kind = rng.choice(["prompt", "hit", "slice", "decode"])
    cached_len = 0 if kind == "prompt" else rng.randrange(prompt_len)
    if kind == "decode":
        cached_len = prompt_len + rng.randint(0, 9)
        return new_req(row, cached_len, cached_len + 1, prompt_len)
    end = rng.randint(cached_len + 1, prompt_len) if kind == "slice" else prompt_len
    return new_req(row, cached_len, end, prompt_len)


@test("random mixtures of all kinds of requests")
def _(answer, check):
    rng = random.Random(4)
    for _ in range(12):
        rows = rng.sample(range(20), rng.randint(1, 5))
        reqs = [random_req(rng, row) for row in rows]
        tokens = [
            (req, position)
            for req in reqs
            for position in range(req.cached_len, req.device_len)
        ]
        starts = [
            next(at for at, (owner, _) in enumerate(tokens) if owner is req)
            for req in reqs
        ]
        keys = [req.device_len for req in reqs]
        expected = {
            "rows": [req.table_idx for req, _ in tokens],
            "positions": [position for _, position in tokens],
            "cu_seqlens_q": [*starts, len(tokens)],
            "cu_seqlens_k": [sum(keys[:count]) for count in range(len(keys) + 1)],
            "logit_indices": [
                at
                for at, (req, position) in enumerate(tokens)
                if position == req.device_len - 1 and position >= req.prompt_len - 1
            ],
        }
        check_layout(check, answer, reqs, expected)
