"""Chapter 2: layers, weight loading, and logits that equal those of Hugging Face."""

from __future__ import annotations

import json
import shutil
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tiny_models import (
    LLAMA3_ROPE,
    SIZES,
    TINY,
    build_tiny,
    hf_logits,
    load_hf,
    random_prompt,
)
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from minisgl.attention.dense import DenseAttention, dense_attention
from minisgl.core import Batch, Context, Req, SamplingParams
from minisgl.errors import ModelError
from minisgl.layers.linear import Linear
from minisgl.layers.norm import RMSNorm
from minisgl.layers.rotary import RotaryEmbedding, rotate, stretch_llama3
from minisgl.models.config import ModelConfig, RopeConfig, rope_from_hf
from minisgl.models.registry import MODELS, load_model
from minisgl.models.weight import WeightReader

CPU = torch.device("cpu")
Tiny = Callable[[str], Path]


def load(model_dir: Path, device: str = "cpu") -> Any:
    return load_model(model_dir, torch.float32, torch.device(device))


@torch.inference_mode()
def logits_of(model: Any, *prompts: list[int], **given: Any) -> torch.Tensor:
    """Logits of all tokens of the prompts, which lie behind one another."""
    device = model.embedding.device
    reqs = [
        Req(array("i", p), row, 0, 1, uid=row, sampling_params=SamplingParams())
        for row, p in enumerate(prompts)
    ]
    batch = Batch(reqs, "prefill")
    batch.input_ids = torch.tensor([t for p in prompts for t in p], device=device)
    batch.positions = torch.cat([torch.arange(len(p)) for p in prompts]).to(device)
    batch.logit_indices = given.get("logit_indices")
    ctx = Context()
    ctx.attn_backend = DenseAttention()
    with ctx.forward_batch(batch):
        return model.forward(batch)


def max_difference(a: torch.Tensor, b: torch.Tensor) -> float:
    assert a.shape == b.shape
    return (a - b).abs().max().item()


# --- logits ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", TINY)
def test_logits_equal_those_of_hugging_face(name: str, tiny: Tiny, device: str):
    prompt = random_prompt(100, seed=1)
    ours = logits_of(load(tiny(name), device), prompt)
    theirs = hf_logits(load_hf(tiny(name), device), prompt)
    assert theirs.std() > 1, "the comparison needs logits that differ"
    assert max_difference(ours, theirs) < 1e-4


def drop_rope_scaling(model: Any) -> None:
    plain = RopeConfig(model.config.rope.theta)
    model.rotary = RotaryEmbedding(
        model.config.head_dim, model.config.max_position, plain, torch.float32, CPU
    )


def drop_bias(*path: str) -> Callable[[Any], None]:
    def drop(model: Any) -> None:
        for layer in model.layers:
            part: Any = layer
            for name in path:
                part = getattr(part, name)
            assert part.bias is not None
            part.bias = None

    return drop


def drop_qk_norm(model: Any) -> None:
    for layer in model.layers:
        assert layer.attention.q_norm is not None
        layer.attention.q_norm = layer.attention.k_norm = None


def flatten_norm(model: Any) -> None:
    model.norm.weight = torch.ones_like(model.norm.weight)


SPECIALITIES: dict[str, tuple[str, Callable[[Any], None]]] = {
    "the final norm of llama": ("llama", flatten_norm),
    "the stretched rotation": ("llama3-rope", drop_rope_scaling),
    "the bias of llama's query, key, value": (
        "llama-bias",
        drop_bias("attention", "qkv_proj"),
    ),
    "the bias of llama's output": ("llama-bias", drop_bias("attention", "o_proj")),
    "the bias of gate and up": ("llama-bias", drop_bias("mlp", "gate_up_proj")),
    "the bias of down": ("llama-bias", drop_bias("mlp", "down_proj")),
    "the bias of qwen2": ("qwen2", drop_bias("attention", "qkv_proj")),
    "the query and key norms of qwen3": ("qwen3", drop_qk_norm),
}


@pytest.mark.parametrize("what", SPECIALITIES)
def test_a_tiny_model_notices_when_its_speciality_is_dropped(what: str, tiny: Tiny):
    name, drop = SPECIALITIES[what]
    prompt = random_prompt(100, seed=1)
    model = load(tiny(name))
    right = logits_of(model, prompt)
    drop(model)
    assert max_difference(logits_of(model, prompt), right) > 0.1


def test_only_llama_ties_its_embeddings_among_the_tiny_models(tiny: Tiny):
    for name in TINY:
        model = load(tiny(name))
        tied = model.lm_head.weight is model.embedding
        assert tied == (name == "llama"), name


def test_qwen3_has_heads_that_are_not_the_hidden_size_divided(tiny: Tiny):
    config = ModelConfig.from_dir(tiny("qwen3"))
    assert config.head_dim * config.num_qo_heads != config.hidden_size


def test_several_requests_in_a_batch_do_not_see_each_other(tiny: Tiny):
    model = load(tiny("qwen3"))
    prompts = [random_prompt(n, seed=n) for n in (7, 1, 30)]
    together = logits_of(model, *prompts).split([7, 1, 30])
    for prompt, ours in zip(prompts, together, strict=True):
        assert max_difference(ours, logits_of(model, prompt)) < 1e-4


def test_logits_are_computed_only_where_they_are_asked_for(tiny: Tiny):
    model = load(tiny("llama"))
    prompt = random_prompt(20, seed=2)
    some = logits_of(model, prompt, logit_indices=torch.tensor([19, 3]))
    assert max_difference(some, logits_of(model, prompt)[[19, 3]]) < 1e-5


@pytest.mark.model
def test_logits_of_smollm2_equal_those_of_hugging_face(smollm2: Path, smollm2_hf: Any):
    tokenizer = transformers.AutoTokenizer.from_pretrained(smollm2)
    prompt = tokenizer(
        "The capital of France is Paris. def fib(n): return n if n < 2 else fib(n - 1)"
    ).input_ids
    difference = max_difference(
        logits_of(load(smollm2), prompt), hf_logits(smollm2_hf, prompt)
    )
    assert difference < 1e-4


# --- config ---------------------------------------------------------------------------


def test_the_config_has_the_sizes_of_the_directory(tiny: Tiny):
    config = ModelConfig.from_dir(tiny("qwen3"))
    assert config.architecture == "Qwen3ForCausalLM"
    assert config.vocab_size == SIZES["vocab_size"]
    assert config.hidden_size == SIZES["hidden_size"]
    assert config.intermediate_size == SIZES["intermediate_size"]
    assert config.num_layers == SIZES["num_hidden_layers"]
    assert (config.num_qo_heads, config.num_kv_heads) == (4, 2)
    assert config.head_dim == 16
    assert config.max_position == SIZES["max_position_embeddings"]
    assert not config.tie_word_embeddings
    assert config.rope == RopeConfig(theta=10000.0)


def test_a_config_without_head_dim_divides_the_hidden_size():
    hf = transformers.Qwen2Config(**SIZES, architectures=["Qwen2ForCausalLM"])
    assert not hasattr(hf, "head_dim")
    assert ModelConfig.from_hf(hf).head_dim == 32 // 4


def edited_config(source: Path, root: Path, **changes: Any) -> Path:
    """A copy of a model directory with entries of its config.json replaced."""
    path = shutil.copytree(source, root / "edited")
    file = path / "config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps({**config, **changes}))
    return path


def refused(model_dir: Path | str) -> str:
    """The message of the ModelError that loading the directory ends with."""
    with pytest.raises(ModelError) as caught:
        load_model(model_dir, torch.float32, CPU)
    return str(caught.value)


def test_an_unknown_directory_is_named_with_what_to_do(tmp_path: Path):
    message = refused(tmp_path / "nowhere")
    assert str(tmp_path / "nowhere") in message
    assert "tools/models.py get smollm2" in message


def test_a_file_is_not_a_model_directory(tmp_path: Path):
    (tmp_path / "model.gguf").touch()
    assert "no config.json" in refused(str(tmp_path / "model.gguf"))


def test_an_unknown_architecture_is_named_with_those_supported(tmp_path: Path):
    # GPT-2 calls its sizes by other names, which must not matter
    hf = transformers.GPT2Config(n_embd=8, architectures=["GPT2LMHeadModel"])
    hf.save_pretrained(tmp_path)
    message = refused(tmp_path)
    assert "'GPT2LMHeadModel'" in message
    assert all(name in message for name in MODELS)


def test_a_model_type_that_transformers_does_not_know_is_a_model_error(tmp_path: Path):
    (tmp_path / "config.json").write_text('{"model_type": "frobnicate"}')
    assert "frobnicate" in refused(tmp_path)


@pytest.mark.parametrize(
    "text",
    ["{", "[1]", '{"model_type": "llama", "hidden_size": "big"}'],
    ids=["cut off", "no object", "wrong type"],
)
def test_a_damaged_config_is_named(text: str, tmp_path: Path):
    (tmp_path / "config.json").write_text(text)
    assert str(tmp_path / "config.json") in refused(tmp_path)


def test_a_config_that_names_no_architecture_is_refused(tiny: Tiny, tmp_path: Path):
    path = edited_config(tiny("llama"), tmp_path, architectures=None)
    assert "'architectures'" in refused(path)


def test_an_unsupported_kind_of_rotation_is_named(tiny: Tiny, tmp_path: Path):
    rope = dict(rope_type="yarn", rope_theta=10000.0, factor=2.0)
    path = edited_config(tiny("llama"), tmp_path, rope_parameters=rope)
    message = refused(path)
    assert "'yarn'" in message and "'llama3'" in message


def test_a_sliding_window_that_we_would_ignore_is_refused(tmp_path: Path):
    path = build_tiny(
        "qwen2",
        tmp_path,
        use_sliding_window=True,
        sliding_window=8,
        max_window_layers=0,
    )
    assert "use_sliding_window" in refused(path)


def test_an_activation_that_we_would_ignore_is_refused(tiny: Tiny, tmp_path: Path):
    path = edited_config(tiny("llama"), tmp_path, hidden_act="gelu")
    assert "'gelu'" in refused(path) and "'silu'" in refused(path)


# --- weights --------------------------------------------------------------------------


@contextmanager
def edited_weights(
    source: Path, root: Path
) -> Iterator[tuple[Path, dict[str, torch.Tensor]]]:
    """A copy of a model directory whose weights the body of the `with` may change."""
    path = shutil.copytree(source, root / "edited")
    weights = load_file(path / "model.safetensors")
    yield path, weights
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})


UP_PROJ = "model.layers.1.mlp.up_proj.weight"


def test_a_missing_weight_is_named(tiny: Tiny, tmp_path: Path):
    with edited_weights(tiny("llama"), tmp_path) as (path, weights):
        del weights[UP_PROJ]
    assert f"weight {UP_PROJ} is missing" in refused(path)


def test_a_missing_head_is_named_when_it_is_not_tied(tiny: Tiny, tmp_path: Path):
    with edited_weights(tiny("qwen2"), tmp_path) as (path, weights):
        del weights["lm_head.weight"]
    assert "weight lm_head.weight is missing" in refused(path)


def test_a_surplus_weight_is_named(tiny: Tiny, tmp_path: Path):
    surplus = "model.layers.0.self_attn.q_proj.bias"
    with edited_weights(tiny("llama"), tmp_path) as (path, weights):
        weights[surplus] = torch.zeros(32)
    message = refused(path)
    assert surplus in message and "1 weights have no use" in message


def test_a_weight_of_the_wrong_shape_is_named_with_both_shapes(
    tiny: Tiny, tmp_path: Path
):
    with edited_weights(tiny("llama"), tmp_path) as (path, weights):
        weights[UP_PROJ] = weights[UP_PROJ].T.contiguous()
    message = refused(path)
    assert UP_PROJ in message and "(32, 64)" in message and "(64, 32)" in message


def test_a_weight_that_would_broadcast_is_still_of_the_wrong_shape(
    tiny: Tiny, tmp_path: Path
):
    with edited_weights(tiny("llama"), tmp_path) as (path, weights):
        weights["model.norm.weight"] = torch.ones(1)
    assert "model.norm.weight has shape (1,)" in refused(path)


def test_a_weight_in_two_files_is_named_with_both(tiny: Tiny, tmp_path: Path):
    path = shutil.copytree(tiny("llama"), tmp_path / "twice")
    one = {UP_PROJ: load_file(path / "model.safetensors")[UP_PROJ]}
    save_file(one, path / "more.safetensors")
    message = refused(path)
    assert UP_PROJ in message
    assert "model.safetensors" in message and "more.safetensors" in message


def test_a_file_that_was_cut_off_is_named(tiny: Tiny, tmp_path: Path):
    path = shutil.copytree(tiny("llama"), tmp_path / "cut")
    file = path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    message = refused(path)
    assert str(file) in message and "damaged" in message


def test_a_directory_without_weights_is_named(tiny: Tiny, tmp_path: Path):
    path = shutil.copytree(tiny("llama"), tmp_path / "empty")
    (path / "model.safetensors").unlink()
    assert str(path) in refused(path) and "*.safetensors" in refused(path)


def sharded(name: str, root: Path) -> Path:
    """The tiny model saved in several files with an index."""
    model = load_hf(build_tiny(name, root / "whole"))
    path = root / "sharded"
    model.save_pretrained(path, max_shard_size="20KB")
    assert len(list(path.glob("*.safetensors"))) > 2
    return path


def test_a_checkpoint_in_several_files_gives_the_same_logits(tmp_path: Path):
    path = sharded("qwen3", tmp_path)
    prompt = random_prompt(20, seed=3)
    whole = logits_of(load(tmp_path / "whole" / "qwen3"), prompt)
    assert torch.equal(logits_of(load(path), prompt), whole)


def test_only_the_files_that_the_index_names_are_read(tmp_path: Path):
    path = sharded("llama", tmp_path)
    save_file({"stray": torch.zeros(1)}, path / "stray.safetensors")
    load(path)


def test_a_missing_file_of_several_is_named(tmp_path: Path):
    path = sharded("llama", tmp_path)
    gone = sorted(path.glob("*.safetensors"))[1]
    gone.unlink()
    assert f"lacks {gone.name}" in refused(path)


@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_damaged_index_is_named(text: str, tmp_path: Path):
    path = sharded("llama", tmp_path)
    index = path / "model.safetensors.index.json"
    index.write_text(text)
    assert f"{index} is damaged" in refused(path)


def test_a_tied_checkpoint_may_hold_the_same_matrix_as_its_head(
    tiny: Tiny, tmp_path: Path
):
    with edited_weights(tiny("llama"), tmp_path) as (path, weights):
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"].clone()
    prompt = random_prompt(20, seed=3)
    right = logits_of(load(tiny("llama")), prompt)
    assert max_difference(logits_of(load(path), prompt), right) < 1e-5


def test_a_head_that_differs_from_the_embedding_is_used_as_hugging_face_does(
    tiny: Tiny, tmp_path: Path
):
    with edited_weights(tiny("llama"), tmp_path) as (path, weights):
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"].flip(0)
    prompt = random_prompt(20, seed=3)
    theirs = hf_logits(load_hf(path), prompt)
    assert max_difference(logits_of(load(path), prompt), theirs) < 1e-4


def reader_of(root: Path, dtype: torch.dtype = torch.float32) -> WeightReader:
    """Weights "a" = [[0, 1], [2, 3]] and "b" = [[4, 5]], in bfloat16."""
    numbers = torch.arange(6, dtype=torch.bfloat16).view(3, 2)
    save_file(
        {"a": numbers[:2].clone(), "b": numbers[2:].clone()},
        root / "model.safetensors",
    )
    return WeightReader(root, dtype, CPU)


def test_weights_that_are_read_together_are_stacked_in_the_dtype_asked_for(
    tmp_path: Path,
):
    with reader_of(tmp_path) as weights:
        stacked = weights.take_rows([("b", 1), ("a", 2)], 2)
    assert stacked.dtype == torch.float32
    assert stacked.tolist() == [[4, 5], [0, 1], [2, 3]]


def test_a_weight_is_handed_out_once(tmp_path: Path):
    with reader_of(tmp_path) as weights:
        weights.take("a", 2, 2)
        assert not weights.has("a") and weights.has("b")
        with pytest.raises(ModelError, match="weight a is missing, or was taken"):
            weights.take("a", 2, 2)
        weights.take("b", 1, 2)


def test_an_error_while_loading_is_not_hidden_by_the_weights_left_over(tmp_path: Path):
    with pytest.raises(ZeroDivisionError), reader_of(tmp_path):
        raise ZeroDivisionError


# --- layers ---------------------------------------------------------------------------


def test_rms_norm_divides_by_the_root_of_the_mean_square(device: str):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(5, 3, 8, generator=generator)
    weight = torch.randn(8, generator=generator)
    eps = 0.01
    expected = x / (x.square().mean(dim=-1, keepdim=True) + eps).sqrt() * weight
    ours = RMSNorm(weight.to(device), eps).forward(x.to(device)).cpu()
    assert max_difference(ours, expected) < 1e-6


def test_rms_norm_of_zero_is_zero():
    assert RMSNorm(torch.ones(4), 1e-5).forward(torch.zeros(2, 4)).eq(0).all()


def test_linear_multiplies_by_the_transposed_matrix_and_adds_the_bias():
    weight, bias = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), torch.ones(3)
    x = torch.tensor([[1.0, 10.0]])
    assert Linear(weight).forward(x).tolist() == [[21, 43, 65]]
    assert Linear(weight, bias).forward(x).tolist() == [[22, 44, 66]]


def turned(heads: torch.Tensor, positions: list[int], theta: float) -> torch.Tensor:
    """Pair i of a head of size D, as a complex number, times e^(i p theta^(-2i/D))."""
    size = heads.shape[-1]
    pairs = torch.complex(heads[..., : size // 2], heads[..., size // 2 :])
    speed = torch.tensor([theta ** (-2 * i / size) for i in range(size // 2)]).double()
    angle = torch.tensor(positions).double()[:, None] * speed
    pairs = pairs * torch.polar(torch.ones_like(angle), angle)[:, None]
    return torch.cat([pairs.real, pairs.imag], dim=-1)


def rotary(max_position: int = 600, device: str = "cpu") -> RotaryEmbedding:
    rope = RopeConfig(theta=100.0)
    return RotaryEmbedding(8, max_position, rope, torch.float32, torch.device(device))


def test_rotation_turns_pair_i_by_the_position_times_its_speed(device: str):
    positions = [0, 1, 2, 77, 599]
    generator = torch.Generator().manual_seed(0)
    heads = torch.randn(5, 3, 8, generator=generator, dtype=torch.float64)
    rotation = rotary(device=device).at(torch.tensor(positions, device=device))
    ours = rotate(heads.float().to(device), rotation).cpu()
    assert max_difference(ours.double(), turned(heads, positions, 100.0)) < 1e-4


def test_position_zero_is_not_turned():
    heads = torch.randn(1, 2, 8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(rotate(heads, rotary().at(torch.tensor([0]))), heads)


def test_a_rotated_product_depends_only_on_the_distance():
    q, k = torch.randn(2, 1, 1, 8, generator=torch.Generator().manual_seed(0))

    def product(q_position: int, k_position: int) -> float:
        at = rotary().at
        return (
            rotate(q, at(torch.tensor([q_position])))
            .mul(rotate(k, at(torch.tensor([k_position]))))
            .sum()
            .item()
        )

    assert product(7, 3) == pytest.approx(product(504, 500), abs=1e-4)
    assert product(7, 3) != pytest.approx(product(7, 4), abs=1e-2)


def test_the_llama3_stretch_is_that_of_transformers():
    config = transformers.LlamaConfig(**SIZES, head_dim=64, rope_parameters=LLAMA3_ROPE)
    expected, factor = ROPE_INIT_FUNCTIONS["llama3"](config, CPU)
    assert factor == 1.0
    plain = 1.0 / 10000.0 ** (torch.arange(0, 64, 2) / 64)
    ours = stretch_llama3(plain, LLAMA3_ROPE)
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=0)
    kept, slowed = ours == plain, ours == plain / 8.0
    assert kept.any() and slowed.any() and not (kept | slowed).all()


def test_the_kind_of_rotation_is_read_from_the_config():
    assert rope_from_hf({"rope_type": "default", "rope_theta": 5.0}) == RopeConfig(5.0)
    assert rope_from_hf(LLAMA3_ROPE) == RopeConfig(10000.0, LLAMA3_ROPE)


def test_dense_attention_weighs_what_came_before():
    """Two tokens, one head of size 1, by hand: weights softmax([2*1, 2*3])."""
    q = torch.tensor([5.0, 2.0]).view(2, 1, 1)
    k = torch.tensor([1.0, 3.0]).view(2, 1, 1)
    v = torch.tensor([10.0, 20.0]).view(2, 1, 1)
    out = dense_attention(q, k, v).flatten()
    second = torch.tensor([2.0, 6.0]).softmax(0) @ torch.tensor([10.0, 20.0])
    assert out.tolist() == pytest.approx([10.0, second.item()])


def test_dense_attention_scales_by_the_root_of_the_head_size():
    q = torch.full((1, 1, 4), 1.0)
    k = torch.stack([torch.zeros(1, 4), torch.ones(1, 4)])
    v = k.clone()
    weight = torch.tensor([0.0, 4 / 2]).softmax(0)[1].item()
    assert dense_attention(q, k, v)[0, 0].tolist() == pytest.approx([weight] * 4)


def test_query_heads_share_the_key_head_of_their_group():
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(3, 6, 4, generator=generator)
    k, v = torch.randn(2, 3, 2, 4, generator=generator)
    together = dense_attention(q, k, v)
    for head in range(6):
        group = slice(head // 3, head // 3 + 1)
        alone = dense_attention(q[:, head : head + 1], k[:, group], v[:, group])
        assert max_difference(together[:, head : head + 1], alone) < 1e-6


def test_dense_attention_of_the_last_tokens_is_the_end_of_that_of_all():
    generator = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 9, 2, 4, generator=generator)
    assert max_difference(
        dense_attention(q[6:], k, v), dense_attention(q, k, v)[6:]
    ) < (1e-6)
