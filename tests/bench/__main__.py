"""The table: decoding, reading a prompt, moving a slider, opening, memory."""

import json
import sys
import tempfile
from functools import partial
from pathlib import Path

from jaxcore import runtime

runtime.prepare()  # before anything imports JAX

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402

from jaxcore import sampling  # noqa: E402
from jaxcore.catalogue import open_reference  # noqa: E402
from jaxcore.checkpoint import orbax  # noqa: E402
from jaxcore.sample import generate, prefill  # noqa: E402
from jaxcore.sampling import Settings  # noqa: E402
from jaxcore.session import LoadedModel, load  # noqa: E402
from models import decode  # noqa: E402
from models.gemma3.config import from_hf  # noqa: E402
from models.gemma3.tensors import tensor_table  # noqa: E402
from tests.bench import inside, machine  # noqa: E402
from tests.bench.rows import Row, against  # noqa: E402
from tests.reference import gemma3  # noqa: E402

MODEL = "gemma3-270m"
TOKENS, LENGTH = 32, 512
POINTS = 30
"""Temperatures on the curve."""
SETTINGS = {
    "all at their defaults": Settings(),
    "top-k off": Settings(top_k=0),
    "all filters off": Settings(temperature=1.0, top_k=0, top_p=1.0),
    "top-k off, temperature 5": Settings(temperature=5.0, top_k=0, top_p=0.9),
    "min-p alone": Settings(temperature=1.0, top_k=0, top_p=1.0, min_p=0.05),
    "greedy": Settings(temperature=0.0),
}
BIG = {
    "model_type": "gemma3_text",
    "vocab_size": 262_144,
    "hidden_size": 4096,
    "intermediate_size": 16_384,
    "num_hidden_layers": 32,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "sliding_window": 1024,
}


def decoding(model: LoadedModel) -> list[Row]:
    """Text with the full trace, against text alone."""
    ids = model.tokenizer.encode("The capital of Switzerland is", bos=True)
    prompt = torch.tensor([ids])

    def theirs(reference):
        def run():
            with torch.no_grad():
                out = reference.generate(
                    prompt,
                    attention_mask=torch.ones_like(prompt),
                    do_sample=False,
                    min_new_tokens=TOKENS,
                    max_new_tokens=TOKENS,
                )
            assert out.shape[1] == len(ids) + TOKENS

        return run

    def ours():
        *_, (text,) = generate(model, ids, Settings(), steps=TOKENS)
        assert len(text.steps) == TOKENS

    runs = {"ours": ours}
    for dtype in (torch.float32, torch.bfloat16):
        for attention in ("eager", "sdpa"):
            reference = gemma3.from_folder(model.checkpoint.path, dtype=dtype, attn_implementation=attention)
            runs[f"{str(dtype).removeprefix('torch.')} {attention}"] = theirs(reference)
    times = machine.alternated(runs, 3)
    rows = against(f"decode {TOKENS} tokens with full trace", times, "1x", "tokens/s", TOKENS)
    return [row._replace(target="1.5x" if row.what.endswith("float32 eager") else "1x") for row in rows]


def reading(model: LoadedModel) -> list[Row]:
    """A prompt of `LENGTH` tokens: with all attention patterns, and with all logits."""
    reference = gemma3.from_folder(model.checkpoint.path)
    ids = np.random.default_rng(0).integers(1000, 200_000, LENGTH, dtype=np.int32)
    prompt, tokens, positions = torch.tensor(ids[None].astype(np.int64)), jnp.asarray(ids), jnp.arange(LENGTH)

    def ours(run, *taps):
        cache = decode.new_cache(model.config, 0)
        out = run(model.params, cache, tokens, positions, cfg=model.config, taps=frozenset(taps))
        return jax.block_until_ready(out)

    def theirs(**options):
        with torch.no_grad():
            return reference(prompt, use_cache=False, **options)

    patterns = {
        "ours": lambda: ours(decode.step, "pattern"),
        "float32 eager": lambda: theirs(output_attentions=True, logits_to_keep=1),
    }
    logits = {"ours": lambda: ours(decode.forward), "float32 eager": theirs}
    return [
        *against(f"read {LENGTH} tokens, all patterns", machine.alternated(patterns, 5), "1.5x"),
        *against(f"read {LENGTH} tokens, all logits", machine.alternated(logits, 3), "1.2x"),
    ]


def sliders(model: LoadedModel) -> list[Row]:
    """Filtering logits that are there: what a slider move costs behind the page."""
    logits, _ = prefill(model, model.tokenizer.encode("The capital of Switzerland is", bos=True), room=1)
    temperatures = jnp.linspace(0.1, 3.0, POINTS)

    def move(settings):
        return lambda: jax.device_get(sampling.preview(logits, sampling.filters(settings)))

    def curve(settings):
        f = sampling.filters(settings)
        return lambda: jax.device_get(sampling.along_temperature(logits, f, temperatures))

    moves = machine.alternated({name: move(settings) for name, settings in SETTINGS.items()}, 15)
    curves = machine.alternated({name: curve(SETTINGS[name]) for name in ("all at their defaults", "top-k off")}, 3)
    return [
        *(Row(f"slider move, {name}", f"{1000 * s:.0f} ms", target="50 ms") for name, s in moves.items()),
        *(Row(f"curve of {POINTS} temperatures, {name}", f"{1000 * s:.0f} ms") for name, s in curves.items()),
    ]


def opening(model: LoadedModel) -> list[Row]:
    """Opening, memory, and headers of a large checkpoint."""
    sample = ("sample", MODEL, "--prompt", "The capital of Switzerland is", "--quiet")
    with tempfile.TemporaryDirectory() as folder:
        size = write_sparse(Path(folder))
        inspected = machine.alternated({"inspect": lambda: machine.command("inspect", folder)}, 3)["inspect"]
    opened = machine.alternated({"open": lambda: load(open_reference(MODEL, converted=True))}, 3)["open"]
    orbax_rows = [row for dtype in ("float32", "bfloat16") for row in beside_safetensors(dtype)]
    whole = machine.alternated({"sample": lambda: machine.command(*sample)}, 1)["sample"]
    peak = machine.peak_memory(*sample)
    return [
        Row(f"open {model.reference}", f"{opened:.2f} s"),
        *orbax_rows,
        Row(f"`sample {MODEL}`, 20 steps, whole command", f"{whole:.1f} s"),
        Row(f"`sample {MODEL}`, peak memory", f"{peak / 1e9:.2f} GB", target="2.5 GB"),
        Row(f"`inspect` of {size / 1e9:.0f} GB, whole command", f"{inspected:.2f} s", target="1 s"),
    ]


def beside_safetensors(dtype: str) -> list[Row]:
    """Loading the same float32 weights from Orbax and from safetensors: mapped, or all read and narrowed."""
    source = open_reference(MODEL, converted=True)
    with tempfile.TemporaryDirectory() as folder:
        made = orbax.write(source, Path(folder) / "orbax", progress=lambda *_: None)
        paths = {"ours": made, "safetensors": source}
        times = machine.alternated({name: partial(load, found, dtype=dtype) for name, found in paths.items()}, 5)
    return against(f"load from Orbax as {dtype}", times, "0.5x")


def write_sparse(folder: Path) -> int:
    """A checkpoint whose header is whole and whose weights take no disk; gives its size in bytes."""
    config, table, offset = from_hf(BIG), {}, 0
    for spec in tensor_table(config).values():
        for layer in range(config.n_layers) if "{layer}" in spec.name else [0]:
            end = offset + 2 * int(np.prod(spec.shape))
            entry = {"dtype": "BF16", "shape": list(spec.shape), "data_offsets": [offset, end]}
            table["model." + spec.name.format(layer=layer)], offset = entry, end
    header = json.dumps(table).encode()
    (folder / "config.json").write_text(json.dumps(BIG))
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + offset)
    return offset


def main() -> None:
    """Measure and print, in Markdown."""
    model = load(open_reference(MODEL, converted=True), dtype="float32", device="cpu")
    rows = []
    for part in (sliders, decoding, reading, inside.captured, inside.weights, opening):
        print(f"measuring {part.__name__} ...", file=sys.stderr, flush=True)
        rows += part(model)
    print(f"{machine.described()}; medians, runs taking turns\n")
    print("| | Clearbox | transformers | ratio | target |\n|---|---|---|---|---|")
    for row in rows:
        print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main()
