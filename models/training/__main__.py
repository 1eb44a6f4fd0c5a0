"""Make a model that ships: ``python -m models.training NAME``; stop it at any time and start it again."""

import argparse
import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
from tokenizers import Tokenizer

from models.errors import ClearboxError, InputError
from models.training import card, data, vocabulary
from models.training.families import config_and_table
from models.training.loop import Arrays, held_out_loss, initial, train
from models.training.recipes import RECIPES, Recipe

HELD_OUT = 60_000
"""Characters of held-out text that ship with a model."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m models.training", description=__doc__)
    parser.add_argument("name", choices=RECIPES, help="the model to train")
    parser.add_argument("--corpus", type=Path, default=Path("corpus"), help="where `make corpus` has put the text")
    parser.add_argument("--work", type=Path, default=Path("training"), help="where unfinished training is kept")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "checkpoints")
    args = parser.parse_args()
    try:
        make(RECIPES[args.name], args.corpus, args.work, args.out)
    except ClearboxError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def make(recipe: Recipe, corpus: Path, work: Path, out: Path) -> None:
    """Read the text, train, and write the model's folder."""
    train_text, held_out = data.read_text(recipe, corpus)
    held_out = held_out[:HELD_OUT]
    parent = None if recipe.start_from is None else out / recipe.start_from
    if parent is not None and not parent.is_dir():
        raise InputError(f"{recipe.name} starts from {parent.name}, which is not there: train it first.")
    tokenizer = _tokenizer(recipe, train_text, work, parent)
    cfg, table = config_and_table(recipe.config)
    arrays = initial(cfg, table, recipe.seed) if parent is None else card.read_arrays(parent, cfg, table)
    streams = data.streams(recipe, train_text, tokenizer)
    arrays = train(recipe, cfg, arrays, streams, work / recipe.name)
    arrays = jax.tree.map(lambda x: x.astype(recipe.dtype), arrays)
    loss = held_out_loss(_widened(arrays), data.encode(recipe, held_out, tokenizer), cfg=cfg)
    sources = json.loads((corpus / "sources.json").read_text("utf-8"))
    card.write(out / recipe.name, recipe, cfg, table, arrays, tokenizer, held_out, loss, sources)
    print(f"{recipe.name}: {loss:.4f} nats a token on held-out text; written to {out / recipe.name}", file=sys.stderr)


def _widened(arrays: Arrays) -> Arrays:
    return jax.tree.map(lambda x: x.astype(jnp.float32), arrays)


def _tokenizer(recipe: Recipe, text: str, work: Path, parent: Path | None) -> Tokenizer | None:
    """The recipe's vocabulary: its parent's, or one trained on the text (kept with the training state)."""
    if recipe.family == "char":
        return None
    if parent is not None:
        return Tokenizer.from_file(str(parent / "tokenizer.json"))
    path = work / f"{recipe.name}.tokenizer.json"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        vocabulary.train(text, recipe.config["vocab_size"]).save(str(path))
    return Tokenizer.from_file(str(path))


if __name__ == "__main__":
    sys.exit(main())
