"""Faults put into loaded models: each is a function from a model to a faulty copy."""

from dataclasses import replace


def with_config(**changes):
    return lambda model: replace(model, config=replace(model.config, **changes))


def with_blocks(**changes):
    def change(model):
        blocks = model.params.blocks
        blocks = blocks._replace(**{field: f(getattr(blocks, field)) for field, f in changes.items()})
        return replace(model, params=model.params._replace(blocks=blocks))

    return change


def with_final_norm(f):
    return lambda model: replace(model, params=model.params._replace(final_norm=f(model.params.final_norm)))
