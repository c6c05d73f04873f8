"""A fleet as a document, as CSV, as JSON and as commands that drain nodes."""
