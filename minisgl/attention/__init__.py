"""Attention backends: what happens between the projections of a layer."""
