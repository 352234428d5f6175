"""Which manager goes with which `cache_type`."""

from __future__ import annotations

from minisgl.engine.engine import Engine
from minisgl.engine.pools import Pools
from minisgl.errors import EngineConfigError
from minisgl.kvcache import PREFIX_CACHES, create_prefix_cache
from minisgl.scheduler.cache import CacheManager
from minisgl.scheduler.resource import Resource
from minisgl.scheduler.unified_cache import UnifiedCacheManager


def create_cache_manager(
    cache_type: str, engine: Engine
) -> CacheManager | UnifiedCacheManager:
    """The manager of an engine's pages.

    Raises EngineConfigError for an unknown cache type, or one that cannot serve a model
    with layers other than full attention.
    """
    num_pages, page_size, tables = (
        engine.num_pages,
        engine.config.page_size,
        engine.tables,
    )
    if cache_type == "unified":
        resources = create_resources(engine.pools)
        return UnifiedCacheManager(num_pages, page_size, tables, resources)
    if cache_type not in PREFIX_CACHES:
        known = ", ".join(map(repr, [*PREFIX_CACHES, "unified"]))
        raise EngineConfigError(f"cache_type is {cache_type!r}; it must be {known}")
    others = sorted(set(engine.model_config.layer_types) - {"full_attention"})
    if others:
        raise EngineConfigError(
            f"cache_type is {cache_type!r}; a model with layers of the kind "
            f"{others[0]!r} needs 'unified'"
        )
    prefix_cache = create_prefix_cache(cache_type, engine.device, page_size)
    return CacheManager(num_pages, page_size, tables, prefix_cache)


def create_resources(pools: Pools) -> list[Resource]:
    """What the requests of a model need besides Full pages."""
    resources: list[Resource] = []
    if pools.swa is not None:
        from minisgl.scheduler.window_pages import WindowPages

        page_size, tables = pools.config.page_size, pools.tables
        window = pools.model.hf.sliding_window
        resources.append(WindowPages(pools.swa, window, page_size, tables))
    if pools.states is not None:
        from minisgl.scheduler.state_slots import StateSlots

        resources.append(StateSlots(pools.states))
    return resources
