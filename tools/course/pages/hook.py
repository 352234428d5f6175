"""MkDocs: what the site has besides pages."""
