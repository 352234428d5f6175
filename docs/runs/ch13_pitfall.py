"""A state that is found under another length than its own: two ways to get there."""

import random
import tempfile
from array import array

import torch
import transformers

from minisgl.core import SamplingParams
from minisgl.kvcache.unified import ComponentType, MambaComponent
from minisgl.llm import LLM

STATE = ComponentType.MAMBA

model_dir = tempfile.mkdtemp()
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
torch.manual_seed(0)
sizes = dict(vocab_size=99, hidden_size=32, intermediate_size=64, head_dim=16)
heads = dict(num_attention_heads=4, num_key_value_heads=2, num_hidden_layers=4)
config = transformers.Qwen3_5TextConfig(**sizes, **heads, eos_token_id=None)
hf = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
for parameter in hf.parameters():
    torch.nn.init.normal_(parameter, std=0.5)
hf.save_pretrained(model_dir)


class BothHalves(MambaComponent):
    def redistribute_on_node_split(self, upper, lower):
        """KV is divided, so the state is copied: the first mistake."""
        if self.node_has_component_data(lower):
            slot = self.pool.allocate()
            self.pool.copy(lower.value(STATE)[0], slot)
            self._set_value(upper, array("i", [slot]))


class RoundsDown(MambaComponent):
    def prepare_for_caching_req(self, req, params, is_finished):
        """Only whole pages are cached, and the state with them: the second mistake."""
        params.mamba_value = array("i", [req.mamba_pool_idx]) if is_finished else None

    def _can_store(self, node, params):
        return not self.node_has_component_data(node)


def two_requests(component, page_size):
    rng = random.Random(1)
    first = [rng.randrange(99) for _ in range(9)]
    second = first[:8] + [rng.randrange(99) for _ in range(3)]
    settings = dict(device="cpu", dtype=torch.float32, cache_type="unified")
    pages = dict(num_page_override=64, num_state_override=8, max_seq_len_override=64)
    with LLM(model_dir, **settings, **pages, page_size=page_size) as llm:
        (slots,) = llm.scheduler.pages.resources
        slots.component.__class__ = component
        llm.generate(first, SamplingParams(max_tokens=1))
        (result,) = llm.generate(second, SamplingParams(max_tokens=6))
    print(f"  {result['cached_tokens']} tokens reused, answer {result['token_ids']}")
    return second


print("1. a split copies the state to the upper half")
two_requests(BothHalves, page_size=1)
print("\n2. the state after 9 tokens is stored where the last page ends, after 8")
two_requests(RoundsDown, page_size=4)
print("\nas it is, with pages of 4")
second = two_requests(MambaComponent, page_size=4)
ids = torch.tensor([second])
given = dict(attention_mask=torch.ones_like(ids), do_sample=False)
theirs = hf.generate(ids, **given, max_new_tokens=6)[0, len(second) :].tolist()
print(f"\ntransformers\n                    answer {theirs}")
