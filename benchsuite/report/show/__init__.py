"""Figures as text, page, Markdown, CSV and JSON."""
