"""Who owns which page of two rows, while two requests bring the same prompt.

The cache is the one of the tests, a dictionary of pages: the naive one owns nothing.
"""

import sys
from array import array

import torch

from minisgl.core import SamplingParams
from minisgl.kvcache.req_table import ReqTable
from minisgl.scheduler.cache import CacheManager
from minisgl.scheduler.pages import PendingReq

sys.path.append("tests")
from dict_cache import DictPrefixCache

CPU, PAGE, NUM_PAGES = torch.device("cpu"), 2, 8
tables = ReqTable(num_rows=3, max_len=16, device=CPU)
pages = CacheManager(NUM_PAGES, PAGE, tables, DictPrefixCache(CPU, PAGE))
PROMPT = [1, 2, 3, 4, 5]


def admit(uid):
    pending = PendingReq(uid, array("i", PROMPT), 3, SamplingParams())
    return pages.admit(pending, uid, max_tokens=100)


def forward(*reqs):
    """What the engine and the scheduler do to pages and lengths."""
    pages.allocate(list(reqs))
    for req in reqs:
        req.complete_one()
        req.append_host(6)


def row(req):
    """The pages of a row: [in the cache and locked], and what is the request's own."""
    held = req.cache_handle.cached_len // PAGE
    slots = tables.read_slots(req.table_idx, 0, req.cached_len)
    marks = [
        f"[{slot // PAGE}]" if place < held else f" {slot // PAGE} "
        for place, slot in enumerate(slots[::PAGE])
    ]
    return " ".join(marks)


def show(what):
    rows = [row(pages.live[uid]) if uid in pages.live else "" for uid in range(3)]
    free = " ".join(map(str, sorted(pages.allocator.free_pages)))
    sizes = pages.prefix_cache.size_info
    columns = "  ".join(f"{text:<11}" for text in rows)
    print(f"{what:<22} {columns}  {free:<11}  {sizes[0]} + {sizes[1]}")
    pages.check_integrity()


print(f"{'':<22} {'row of a':<13}{'row of b':<13}{'row of c':<13}", end="")
print(f"{'free':<13}evictable + protected")
a, b = admit(0), admit(1)
forward(a, b)
show("a and b are computed")
pages.cache_unfinished(a)
show("a shares its prompt")
pages.cache_unfinished(b)
show("b shares the same")
c = admit(2)
show("c comes: a match")
forward(c)
pages.cache_unfinished(c)
show("c is computed")
pages.release(a)
show("a ends")
forward(b, c)
pages.release(b)
pages.release(c)
show("b and c end")
