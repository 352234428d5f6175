"""One request from its prompt to its last token."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from minisgl.core import Batch, Req, SamplingParams
from minisgl.engine.engine import Engine
from minisgl.kvcache.page_allocator import (
    PageAllocator,
    num_pages_for,
    slots_of_pages,
)


def generate_one(
    engine: Engine, prompt: Sequence[int], params: SamplingParams
) -> list[int]:
    """The tokens that follow `prompt`, an ending EOS included.

    The request has the whole engine to itself; it must not be used by others meanwhile.
    Raises PromptError for a prompt that the engine cannot answer, and PoolError when
    the request outgrows the pool.
    """
    engine.check_prompt(prompt)
    page_size = engine.config.page_size
    output_len = min(params.max_tokens, engine.max_seq_len - len(prompt))
    req = Req(array("i", prompt), 0, 0, output_len, uid=0, sampling_params=params)
    allocator = PageAllocator(engine.num_pages)
    num_pages = 0
    engine.pools.reset()
    engine.tables.write_tokens(req.table_idx, 0, prompt)
    phase = "prefill"
    while req.can_decode:
        missing = num_pages_for(req.device_len, page_size) - num_pages
        slots = slots_of_pages(allocator.allocate(missing), page_size)
        engine.tables.write_slots(req.table_idx, num_pages * page_size, slots)
        num_pages += missing
        engine.pools.extend(req, slots)
        output = engine.forward_batch(Batch([req], phase))
        engine.pools.trim(req)
        phase = "decode"
        req.append_host(int(output.next_tokens))
        if req.input_ids[-1] in engine.eos_token_ids and not params.ignore_eos:
            break
    return list(req.input_ids[req.prompt_len :])
