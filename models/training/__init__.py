"""How the small models in `models.checkpoints` were made: text, recipes, and one training loop for all families."""
