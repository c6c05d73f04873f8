"""Run folders and summaries as typed rows."""
