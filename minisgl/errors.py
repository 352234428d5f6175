"""Errors a caller can meet.

Each names what was given and what is allowed. They are raised at the public edge,
before any state changes; mistakes of our own are assertions instead.
"""

from __future__ import annotations


class MiniSGLError(Exception):
    """Base of every error that minisgl raises on purpose."""


class SamplingParamsError(MiniSGLError, ValueError):
    """A sampling parameter is out of range."""


class ContextError(MiniSGLError, RuntimeError):
    """The global context is missing, or set while another one is in use."""
