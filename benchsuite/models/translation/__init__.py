"""Decode the test set of a translation with a trained model, and score it with BLEU."""
