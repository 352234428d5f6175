"""minisgl: a small SGLang, built chapter by chapter."""
