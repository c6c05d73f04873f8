"""What pipelines of stages are made of: the cut, the stages of a rank, what they pass on, and the bubble."""
