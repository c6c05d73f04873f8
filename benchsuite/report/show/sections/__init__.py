"""The sections of a report: each defines its words and columns, and the renderers show them."""
