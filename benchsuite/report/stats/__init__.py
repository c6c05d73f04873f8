"""From rows to figures: summaries, scores, comparisons, verdicts."""
