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


class ModelError(MiniSGLError):
    """A model directory cannot be used: missing, incomplete, or of an unknown kind."""


class PoolError(MiniSGLError):
    """Pages were asked for that are not free, or given back that are not in use."""


class DeviceError(MiniSGLError, RuntimeError):
    """A device is unknown or absent, or has too little memory."""


class EngineConfigError(MiniSGLError, ValueError):
    """An engine was asked for with settings that make no sense."""


class PromptError(MiniSGLError, ValueError):
    """A prompt cannot be served: empty, too long, or not token ids of the model."""


class IntegrityError(MiniSGLError, AssertionError):
    """The books on pages, locks or sizes are wrong: a bug, and where it shows."""
