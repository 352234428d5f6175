"""`LLM`: prompts in, answers out, however many at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers.decoders import DecodeStream
from tqdm import tqdm
from transformers import AutoTokenizer

from minisgl.core import SamplingParams
from minisgl.engine.config import EngineConfig
from minisgl.engine.engine import Engine
from minisgl.errors import MiniSGLError, PromptError, SamplingParamsError
from minisgl.scheduler.cache_types import create_cache_manager
from minisgl.scheduler.scheduler import Reply, Scheduler

Prompt = str | Sequence[int]


@dataclass(frozen=True)
class StreamChunk:
    """One token of one answer, as soon as it is there.

    `text` may be empty: a character can take several tokens. `error` is set, and
    nothing else, when the prompt cannot be served.
    """

    index: int  # which of the prompts
    token_id: int | None
    text: str | None
    finish_reason: str | None  # "stop", "length" or "error" with the last chunk
    error: MiniSGLError | None = None


class LLM:
    """An engine and a scheduler for the model of a Hugging Face directory.

    Use it in a `with`, or call `shutdown()` when done. Raises a MiniSGLError for
    settings, a device or a model that cannot be used.
    """

    def __init__(
        self,
        model_path: str | Path,
        *,
        dtype: torch.dtype | None = None,
        device: str = "auto",
        page_size: int = 1,
        max_running_req: int = 64,
        max_seq_len_override: int | None = None,
        num_page_override: int | None = None,
        num_swa_page_override: int | None = None,
        num_state_override: int | None = None,
        memory_ratio: float = 0.5,
        max_prefill_tokens: int = 8192,
        cache_type: str = "naive",
    ) -> None:
        config = EngineConfig(
            model_path=model_path,
            dtype=dtype,
            device=device,
            page_size=page_size,
            max_running_req=max_running_req,
            max_seq_len_override=max_seq_len_override,
            num_page_override=num_page_override,
            num_swa_page_override=num_swa_page_override,
            num_state_override=num_state_override,
            memory_ratio=memory_ratio,
        )
        engine = Engine(config)
        pages = create_cache_manager(cache_type, engine)
        self._scheduler: Scheduler | None = Scheduler(engine, pages, max_prefill_tokens)
        self.tokenizer = load_tokenizer(model_path)
        self._replies: dict[int, deque[Reply]] = {}  # uid -> not yet handed out

    @property
    def scheduler(self) -> Scheduler:
        """Raises MiniSGLError after `shutdown`."""
        if self._scheduler is None:
            raise MiniSGLError("this LLM was shut down; make a new one")
        return self._scheduler

    @property
    def engine(self) -> Engine:
        """Raises MiniSGLError after `shutdown`."""
        return self.scheduler.engine

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        progress: bool = False,
    ) -> list[dict[str, Any]]:
        """Answer one or many prompts, each a text or a list of token ids.

        `sampling_params` is one for all prompts or one for each. The results are in
        the order of the prompts; each has `text`, `token_ids` (an ending EOS
        included), `finish_reason` ("stop", "length" or "error"), `prompt_tokens`, how
        many of those were found in the cache (`cached_tokens`) and how many computed
        (`computed_tokens`), and `error`. A prompt that cannot be served gets a
        PromptError there; the others are answered all the same.
        """
        prompts = as_prompt_list(prompts)
        results = [_empty_result() for _ in prompts]
        with tqdm(total=len(prompts), disable=not progress, unit="answer") as bar:
            for index, event in self._events(prompts, sampling_params):
                result = results[index]
                if isinstance(event, PromptError):
                    result |= {"finish_reason": "error", "error": event}
                else:
                    result["token_ids"].append(event.token)
                    result["finish_reason"] = event.finish_reason
                    result["prompt_tokens"] = event.prompt_len
                    result["cached_tokens"] = event.reused_len
                    result["computed_tokens"] = event.prompt_len - event.reused_len
                if result["finish_reason"]:
                    result["text"] = self._decode(result["token_ids"])
                    bar.update()
        return results

    def stream(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> Iterator[StreamChunk]:
        """The same, token by token, for all prompts side by side.

        The texts of a prompt's chunks, joined, are the text that `generate` returns.
        Leaving the loop early aborts what still runs.
        """
        prompts = as_prompt_list(prompts)
        texts = [IncrementalText(self.tokenizer) for _ in prompts]
        for index, event in self._events(prompts, sampling_params):
            if isinstance(event, PromptError):
                yield StreamChunk(index, None, "", "error", event)
            else:
                reason = event.finish_reason
                text = texts[index].push(event.token, is_last=reason is not None)
                yield StreamChunk(index, event.token, text, reason)

    def shutdown(self) -> None:
        """Abort what runs and let go of the model and the pool. May be called twice.

        A stream that is still open ends with a MiniSGLError.
        """
        scheduler, self._scheduler = self._scheduler, None
        if scheduler is not None:
            for uid in self._replies:
                scheduler.abort(uid)
            scheduler.pages.check_integrity()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def _events(
        self,
        prompts: list[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None,
    ) -> Iterator[tuple[int, Reply | PromptError]]:
        """(index of the prompt, what happened), until every prompt has its answer.

        Several of these may run side by side: a step serves all requests, and each
        takes the replies to its own.
        """
        mine: dict[int, int] = {}  # uid -> index
        try:
            params = as_params_list(sampling_params, len(prompts))
            for index, prompt in enumerate(prompts):
                try:
                    uid = self.scheduler.add(self._encode(prompt), params[index])
                except PromptError as error:
                    yield index, error
                else:
                    mine[uid] = index
                    self._replies[uid] = deque()
            while mine:
                if not any(self._replies[uid] for uid in mine):
                    self._step()
                for uid, index in list(mine.items()):
                    replies, self._replies[uid] = self._replies[uid], deque()
                    for reply in replies:
                        if reply.finish_reason is not None:
                            del mine[uid], self._replies[uid]
                        yield index, reply
        finally:
            for uid in mine:
                del self._replies[uid]
                if self._scheduler is not None:
                    self._scheduler.abort(uid)

    def _step(self) -> None:
        replies = self.scheduler.step()
        assert replies, "requests wait, but nothing can run"
        for reply in replies:
            self._replies[reply.uid].append(reply)

    def _encode(self, prompt: Prompt) -> Sequence[int]:
        if isinstance(prompt, (list, tuple)):
            return prompt
        if not isinstance(prompt, str):
            raise PromptError(
                f"a prompt is a {type(prompt).__name__}; it must be a text or a list "
                "of token ids"
            )
        if self.tokenizer is None:
            raise PromptError("the model has no tokenizer; give a list of token ids")
        try:
            prompt.encode()
        except UnicodeEncodeError as error:  # half of a surrogate pair
            raise PromptError(f"the prompt is not valid text: {error}") from None
        return self.tokenizer(prompt).input_ids

    def _decode(self, token_ids: list[int]) -> str | None:
        if self.tokenizer is None:
            return None
        return self.tokenizer.decode(token_ids, skip_special_tokens=True)


class IncrementalText:
    """The text of a growing answer, in pieces that never break a character."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self._stream = DecodeStream(skip_special_tokens=True)
        self._token_ids: list[int] = []
        self._given = 0  # characters

    def push(self, token_id: int, is_last: bool) -> str | None:
        """The text that is certain now; with the last token, all that is left.

        None for a model without a tokenizer.
        """
        if self.tokenizer is None:
            return None
        self._token_ids.append(token_id)
        if is_last:
            whole = self.tokenizer.decode(self._token_ids, skip_special_tokens=True)
            return whole[self._given :]
        piece = self._stream.step(self.tokenizer.backend_tokenizer, token_id) or ""
        self._given += len(piece)
        return piece


def load_tokenizer(model_path: str | Path) -> Any | None:
    """The tokenizer of the model directory, or None if it has none."""
    if not (Path(model_path) / "tokenizer_config.json").is_file():
        return None
    return AutoTokenizer.from_pretrained(model_path, local_files_only=True)


def as_prompt_list(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """One prompt or several, as a list. Raises PromptError for anything else.

    A list is one prompt if there is no text and no list in it.
    """
    if isinstance(prompts, str):
        return [prompts]
    if not isinstance(prompts, (list, tuple)):
        raise PromptError(
            f"prompts is a {type(prompts).__name__}; give a text, a list of token ids, "
            "or a list of those"
        )
    several = any(isinstance(item, (str, list, tuple)) for item in prompts)
    return list(prompts) if several or not prompts else [prompts]


def as_params_list(
    params: SamplingParams | Sequence[SamplingParams] | None, num_prompts: int
) -> list[SamplingParams]:
    """A SamplingParams for each prompt. Raises SamplingParamsError if that fails."""
    if params is None or isinstance(params, SamplingParams):
        return [params or SamplingParams()] * num_prompts
    if not isinstance(params, (list, tuple)) or not all(
        isinstance(item, SamplingParams) for item in params
    ):
        raise SamplingParamsError(
            f"sampling_params is {params!r}; give a SamplingParams, or a list of them"
        )
    if len(params) != num_prompts:
        raise SamplingParamsError(
            f"{len(params)} sampling parameters for {num_prompts} prompts; give one "
            "for all or one for each"
        )
    return list(params)


def _empty_result() -> dict[str, Any]:
    return {
        "text": "",
        "token_ids": [],
        "finish_reason": None,
        "prompt_tokens": 0,
        "cached_tokens": 0,
        "computed_tokens": 0,
        "error": None,
    }
