"""The life of a request's pages: admitted, filled, grown, given back, and checked."""

from __future__ import annotations

from array import array

import torch

from minisgl.core import Req, SamplingParams
from minisgl.kvcache.naive_cache import NaivePrefixCache
from minisgl.kvcache.req_table import ReqTable
from minisgl.scheduler.cache import CacheManager
from minisgl.scheduler.pages import PendingReq

CPU, PAGE, NUM_PAGES = torch.device("cpu"), 4, 8
tables = ReqTable(num_rows=2, max_len=32, device=CPU)
pages = CacheManager(NUM_PAGES, PAGE, tables, NaivePrefixCache(CPU))


def draw(what: str) -> None:
    """The pool: a letter for a slot in use, _ for room in a request's last page."""
    pool = [["."] * PAGE for _ in range(NUM_PAGES)]
    for req in pages.live.values():
        for slot in tables.read_slots(req.table_idx, 0, req.cached_len):
            pool[slot // PAGE] = [mark.replace(".", "_") for mark in pool[slot // PAGE]]
            pool[slot // PAGE][slot % PAGE] = "ab"[req.uid]
    drawn = "|".join("".join(page) for page in pool)
    left = f"{pages.num_available} - {pages.num_reserved}"
    print(f"{what:<36} |{drawn}|  {left}")


def admit(uid: int, prompt_len: int, output_len: int) -> Req | None:
    prompt = array("i", range(prompt_len))
    return pages.admit(PendingReq(uid, prompt, output_len, SamplingParams()), uid, 100)


def step(*reqs: Req) -> None:
    """What the engine and the scheduler do to the lengths of a request."""
    pages.allocate(list(reqs))
    for req in reqs:
        req.complete_one()
        req.append_host(0)


print(f"{'':<36}  {NUM_PAGES} pages of {PAGE} slots{'':<17}  free - promised")
a = admit(0, prompt_len=6, output_len=8)
draw("a is admitted: 14 tokens in the end")
step(a)
draw("its 6 prompt tokens are computed")
print(f"b may need 5 pages: admitted as {admit(1, 6, 14)}, since 4 are left")
b = admit(1, prompt_len=6, output_len=7)
step(b)
draw("b comes with 6 tokens, and 7 to go")
for done in (7, 8, 9):
    step(a, b)
    draw(f"both decode: {done} tokens each")
pages.release(a)
draw("a ends: the naive cache keeps nothing")
pages.check_integrity()
print("every page is in exactly one place")
