"""What a pool does that takes a page back twice: two requests share it unknowingly."""

import torch

from minisgl.errors import PoolError
from minisgl.kvcache.mha_pool import MHAKVPool
from minisgl.kvcache.page_allocator import PageAllocator


class CarelessAllocator(PageAllocator):
    """The same stack of free pages, and no look at what comes back."""

    def free(self, pages):
        self._free.extend(reversed(list(pages)))


def serve(allocator):
    pool = MHAKVPool(
        num_layers=1,
        num_kv_heads=1,
        head_dim=1,
        num_pages=4,
        page_size=1,
        dtype=torch.float32,
        device=torch.device("cpu"),
    )
    old = allocator.allocate(1)
    allocator.free(old)
    allocator.free(old)  # the mistake: a second clean-up of the same request
    a, b = allocator.allocate(1), allocator.allocate(1)
    print(f"a takes page {a[0]}, b takes page {b[0]}")
    for name, page, value in (("a", a, 1.0), ("b", b, 2.0)):
        kv = torch.full((1, 1, 1), value)
        pool.store_kv(kv, kv, torch.tensor(page), layer_id=0)
        print(f"{name} writes {value}")
    print(f"a reads {pool.k_cache(0)[a].item()}")


print("without the check:")
serve(CarelessAllocator(4))
print("with it:")
try:
    serve(PageAllocator(4))
except PoolError as error:
    print(f"PoolError: {error}")
