"""The lengths of a request, in small cases and in whole random lives."""

import random
from array import array

from grading import NotApplicable, test
from minisgl.core import SamplingParams

LENGTHS = ("cached_len", "device_len", "max_device_len")


def new_req(answer, prompt_len, output_len, cached_len=0):
    return answer.Req(
        input_ids=array("i", range(100, 100 + prompt_len)),
        table_idx=0,
        cached_len=cached_len,
        output_len=output_len,
        uid=7,
        sampling_params=SamplingParams(),
    )


def lengths(req, names=LENGTHS):
    return {name: getattr(req, name, "not set") for name in names}


@test("admission: the whole prompt is to be computed", example=True)
def _(answer, check):
    req = new_req(answer, prompt_len=5, output_len=3)
    call = "Req(5 tokens, cached_len=0, output_len=3)"
    check.equal(
        lengths(req, (*LENGTHS, "prompt_len", "reused_len")),
        {
            "cached_len": 0,
            "device_len": 5,
            "max_device_len": 8,
            "prompt_len": 5,
            "reused_len": 0,
        },
        call=call,
        look="device_len is the whole prompt, max_device_len adds the answer",
    )
    check.equal(
        req.extend_len,
        5,
        call=f"{call}.extend_len",
        look="extend_len is the length of [cached_len, device_len)",
    )


@test("admission with a cached prefix: only the rest is computed", example=True)
def _(answer, check):
    req = new_req(answer, prompt_len=5, output_len=3, cached_len=3)
    call = "Req(5 tokens, cached_len=3, output_len=3)"
    check.equal(
        lengths(req, (*LENGTHS, "reused_len")),
        {"cached_len": 3, "device_len": 5, "max_device_len": 8, "reused_len": 3},
        call=call,
        look="a cached prefix changes cached_len and reused_len, not the other two",
    )
    check.equal(
        req.extend_len,
        2,
        call=f"{call}.extend_len",
        look="extend_len is the length of [cached_len, device_len)",
    )


@test("decode: each step moves both lengths by one", example=True)
def _(answer, check):
    req = new_req(answer, prompt_len=2, output_len=3)
    call = "Req(2 tokens, cached_len=0, output_len=3)"
    for cached_len in (2, 3, 4):
        req.complete_one()
        call += ", complete_one()"
        check.equal(
            lengths(req),
            {
                "cached_len": cached_len,
                "device_len": cached_len + 1,
                "max_device_len": 5,
            },
            call=call,
            look="a token that was just sampled has no KV yet: the next forward "
            "computes it",
        )
        check.equal(
            req.extend_len,
            1,
            call=f"{call}, extend_len",
            look="in decode every forward computes exactly one token",
        )


@test("a long prompt is computed in slices")
def _(answer, check):
    req = new_req(answer, prompt_len=5, output_len=3)
    call = "Req(5 tokens, cached_len=0, output_len=3), limit_chunk(2)"
    req.limit_chunk(2)
    check.equal(
        lengths(req),
        {"cached_len": 0, "device_len": 2, "max_device_len": 8},
        call=call,
        look="limit_chunk moves device_len back: the forward stops there",
    )
    req.complete_chunk()
    call += ", complete_chunk()"
    check.equal(
        lengths(req),
        {"cached_len": 2, "device_len": 5, "max_device_len": 8},
        call=call,
        look="after a slice, the rest of the prompt comes next: device_len is "
        "prompt_len again",
    )
    req.limit_chunk(2)
    call += ", limit_chunk(2)"
    check.equal(
        lengths(req),
        {"cached_len": 2, "device_len": 4, "max_device_len": 8},
        call=call,
        look="a slice starts behind the tokens that are cached already",
    )
    req.complete_chunk()
    req.limit_chunk(2)
    call += ", complete_chunk(), limit_chunk(2)"
    check.equal(
        lengths(req),
        {"cached_len": 4, "device_len": 5, "max_device_len": 8},
        call=call,
        look="a slice never reaches past the prompt: what is behind it is not known",
    )


@test("a slice starts behind the cached prefix")
def _(answer, check):
    for cached_len, max_tokens, device_len in [(1, 3, 4), (4, 1, 5), (3, 1, 4)]:
        req = new_req(answer, prompt_len=5, output_len=3, cached_len=cached_len)
        req.limit_chunk(max_tokens)
        check.equal(
            req.device_len,
            device_len,
            call=f"Req(5 tokens, cached_len={cached_len}, output_len=3), "
            f"limit_chunk({max_tokens}), device_len",
            look="a slice starts behind the tokens that are cached already",
        )


@test("a limit that the prompt fits in changes nothing")
def _(answer, check):
    for max_tokens in (3, 4, 1000):
        req = new_req(answer, prompt_len=5, output_len=3, cached_len=2)
        req.limit_chunk(max_tokens)
        check.equal(
            lengths(req),
            {"cached_len": 2, "device_len": 5, "max_device_len": 8},
            call=f"Req(5 tokens, cached_len=2), limit_chunk({max_tokens})",
            look="a slice never reaches past the prompt: what is behind it is not "
            "known",
        )


@test("a request may want no answer at all")
def _(answer, check):
    req = new_req(answer, prompt_len=5, output_len=0)
    check.equal(
        lengths(req),
        {"cached_len": 0, "device_len": 5, "max_device_len": 5},
        call="Req(5 tokens, cached_len=0, output_len=0)",
        look="device_len is at most max_device_len: equal is allowed",
    )


@test("a request with nothing to compute is refused")
def _(answer, check):
    for cached_len in (-1, 5, 6):
        check.raises(
            AssertionError,
            lambda cached_len=cached_len: new_req(answer, 5, 3, cached_len),
            call=f"Req(5 tokens, cached_len={cached_len}, output_len=3)",
            mentions=[f"{cached_len}/5/8"],
            look="assert 0 <= cached_len < device_len <= max_device_len, and give "
            "the request (self) as the message",
        )
    check.raises(
        AssertionError,
        lambda: new_req(answer, 0, 3),
        call="Req(no tokens, cached_len=0, output_len=3)",
        look="without a prompt there is nothing to compute: cached_len < device_len",
    )
    check.raises(
        AssertionError,
        lambda: new_req(answer, 5, -1),
        call="Req(5 tokens, cached_len=0, output_len=-1)",
        look="device_len is at most max_device_len",
    )
    check.raises(
        AssertionError,
        lambda: answer.Req(array("q", [1]), 0, 0, 1, 7, SamplingParams()),
        call='Req(array("q", [1]), …)',
        mentions=["q"],
        look='tokens are 32-bit integers: assert that the typecode is "i"',
    )


@test("a call that does not apply is refused and moves nothing")
def _(answer, check):
    start = "Req(5 tokens, cached_len=0, output_len=3)"
    req = new_req(answer, prompt_len=5, output_len=3)
    check.raises(
        AssertionError,
        req.complete_chunk,
        call=f"{start}, complete_chunk()",
        look="the forward computes the whole prompt, so complete_one applies",
    )
    check.raises(
        AssertionError,
        lambda: req.limit_chunk(0),
        call=f"{start}, limit_chunk(0)",
        look="a forward computes at least one token",
    )
    req.limit_chunk(2)
    check.raises(
        AssertionError,
        req.complete_one,
        call=f"{start}, limit_chunk(2), complete_one()",
        look="a slice of a prompt samples nothing, so complete_chunk applies",
    )
    check.equal(
        lengths(req),
        {"cached_len": 0, "device_len": 2, "max_device_len": 8},
        call=f"{start}, limit_chunk(2) and a refused complete_one()",
        look="assert before anything moves",
    )
    done = new_req(answer, prompt_len=5, output_len=3)
    done.complete_one()
    check.raises(
        AssertionError,
        lambda: done.limit_chunk(1),
        call=f"{start}, complete_one(), limit_chunk(1)",
        look="limit_chunk slices a prompt, and this one is computed",
    )


class Model:
    """The lengths as three plain numbers."""

    def __init__(self):
        self.prompt = None

    def admit(self, prompt_len, cached_len, output_len):
        self.prompt = prompt_len
        self.cached, self.end = cached_len, prompt_len
        self.limit = prompt_len + output_len
        return self.end - self.cached

    def limit_chunk(self, max_tokens):
        if self.prompt is None or self.cached >= self.prompt:
            raise NotApplicable
        self.end = min(self.prompt, self.cached + max_tokens)
        return self.end - self.cached

    def forward(self):
        if self.prompt is None or self.end >= self.limit:
            raise NotApplicable
        in_prompt = self.end < self.prompt
        self.cached, self.end = self.end, self.prompt if in_prompt else self.end + 1
        return self.end - self.cached

    def state(self):
        if self.prompt is None:
            return {}
        values = (self.cached, self.end, self.limit)
        return dict(zip(LENGTHS, values, strict=True))


class Real:
    """The same moves, by the answer's methods. Each returns what comes next."""

    def __init__(self, answer):
        self.answer = answer
        self.req = None

    def admit(self, prompt_len, cached_len, output_len):
        self.req = new_req(self.answer, prompt_len, output_len, cached_len)
        return self.req.extend_len

    def limit_chunk(self, max_tokens):
        self.req.limit_chunk(max_tokens)
        return self.req.extend_len

    def forward(self):
        if self.req.device_len < self.req.prompt_len:
            self.req.complete_chunk()
        else:
            self.req.complete_one()
        return self.req.extend_len

    def state(self):
        return lengths(self.req) if self.req else {}


@test("whole lives of requests, in slices of any size")
def _(answer, check):
    rng = random.Random(5)
    for _ in range(12):
        prompt_len, output_len = rng.randint(1, 12), rng.randint(1, 4)
        cached_len = rng.choice([0, rng.randrange(prompt_len)])
        operations = [("admit", prompt_len, cached_len, output_len)]
        at = cached_len
        while at < prompt_len:
            step = rng.randint(1, 5)
            operations += [("limit_chunk", step), ("forward",)]
            at += step
        operations += [("forward",)] * (output_len - 1)
        check.operations(
            operations,
            expected=Model,
            actual=lambda: Real(answer),
            look="forward is complete_chunk after a slice, complete_one otherwise; "
            "compare the three lengths after each move",
        )
