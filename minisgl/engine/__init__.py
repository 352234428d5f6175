"""The engine: a model, its pool and its tables, and one forward at a time."""
