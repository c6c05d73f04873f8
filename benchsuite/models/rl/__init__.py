"""Code that the models of reinforcement learning share. (A folder of `models` is not a model.)"""
