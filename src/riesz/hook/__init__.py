"""The optimizer hook: what `riesz.attach` does before each step."""
