"""Text in, text out."""

from __future__ import annotations

from minisgl.llm.llm import LLM

__all__ = ["LLM"]
