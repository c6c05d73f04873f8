"""What the models of reinforcement learning share; a folder of `models` is no model."""
