"""Decoder-only transformers, read from Hugging Face directories."""
