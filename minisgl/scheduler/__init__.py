"""Who runs next, in which row, on which pages."""
