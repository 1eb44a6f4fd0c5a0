"""The command line: ``python -m jaxcore COMMAND``. Heavy imports wait until a command needs them."""

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from jaxcore import export, runtime
from models.errors import OUT_OF_MEMORY, ClearboxError, InputError, is_out_of_memory

if TYPE_CHECKING:
    from jaxcore.session import LoadedModel

INTERRUPTED = 130
GRACE = 5.0
"""Seconds that an interrupted command has to clean up."""


class Parser(argparse.ArgumentParser):
    """A parser whose complaints end like all others: one line that begins with ``error:``."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(2, f"error: {message}. See {self.prog} --help.\n")


def parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    top = Parser("python -m jaxcore", description="Open language models up: run, inspect and compare.")
    commands = top.add_subparsers(metavar="COMMAND", required=True)

    def command(
        name: str, run: Callable[[argparse.Namespace], None], help: str, result: bool = True
    ) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=help, description=help)
        sub.set_defaults(run=run, out=None)
        if result:
            sub.add_argument("--out", type=Path, metavar="FILE", help="write the result to this file")
        sub.add_argument("--quiet", action="store_true", help="no progress on stderr")
        return sub

    def on_model(
        name: str, run: Callable[[argparse.Namespace], None], help: str, result: bool = True
    ) -> argparse.ArgumentParser:
        sub = command(name, run, help, result)
        sub.add_argument(
            "model",
            metavar="MODEL",
            help="a folder (Hugging Face or Orbax), .safetensors, .gguf, hf:org/name[@rev], or catalogue name",
        )
        return sub

    def runs_model(name: str, run: Callable[[argparse.Namespace], None], help: str) -> argparse.ArgumentParser:
        sub = on_model(name, run, help)
        sub.add_argument("--dtype", choices=("float32", "bfloat16"), help="of the weights in memory")
        sub.add_argument("--device", choices=("cpu", "gpu"))
        sub.add_argument("--no-bos", action="store_true", help="leave out the beginning-of-sequence token")
        return sub

    models = command("models", run_models, "list the catalogue, and the checkpoints in a folder")
    models.add_argument("--root", type=Path, metavar="DIR", help="a folder to look for checkpoints in")

    inspect = on_model("inspect", run_inspect, "configuration and tensors, from headers only")
    inspect.add_argument("--mesh", metavar="D,M", help="also what each of D x M devices would hold, such as 2,4")

    convert = on_model("convert", run_convert, "write an Orbax checkpoint with config and tokenizer", result=False)
    convert.add_argument("--out", dest="folder", type=Path, metavar="DIR", required=True, help="a new or empty folder")
    convert.add_argument(
        "--dtype", choices=("float32", "bfloat16"), help="of the stored weights; as they are, if left out"
    )

    logits = runs_model("logits", run_logits, "logits at every position, as NPZ")
    text = logits.add_mutually_exclusive_group(required=True)
    text.add_argument("--text")
    text.add_argument("--ids", help="token ids, separated by commas, used as they are")

    attention = runs_model("attention", run_attention, "attention patterns of a prompt, as NPZ")
    attention.add_argument("--prompt", required=True)
    attention.add_argument("--layer", type=int, action="append", metavar="L", help="from 0; all layers, if left out")

    layers = runs_model("layers", run_layers, "how the residual stream and its prediction grow, layer by layer")
    layers.add_argument("--prompt", required=True)

    sample = runs_model("sample", run_sample, "write text and record how every token was chosen")
    sample.add_argument("--prompt", required=True)
    sample.add_argument("--chat", action="store_true", help="the prompt is a user's turn in the model's chat template")
    sample.add_argument("--system", metavar="TEXT", help="a system prompt before it")
    sample.add_argument("--steps", type=int, default=20)
    sample.add_argument("--temperature", type=float, default=0.7)
    sample.add_argument("--top-k", type=int, default=50, help="0: off")
    sample.add_argument("--top-p", type=float, default=0.9, help="1: off")
    sample.add_argument("--min-p", type=float, default=0.0, help="0: off")
    sample.add_argument("--seed", type=int, default=0)
    sample.add_argument("--greedy", action="store_true", help="always the likeliest token")

    weights = on_model("weights", run_weights, "the health of every tensor, from the files")
    weights.add_argument("--layer", type=int, metavar="L", help="only tensors of this layer, from 0")
    weights.add_argument("--tensor", metavar="NAME", help="only this tensor")
    weights.add_argument("--spectra", action="store_true", help="singular values of matrices too")

    heads = on_model("heads", run_heads, "what the heads of a character transformer do, from their weights")
    heads.add_argument("--n-heads", type=int, metavar="N", help="of a file that does not say how many it has")
    heads.add_argument(
        "--text", type=Path, metavar="FILE", help="what roles are measured on; held-out text, if left out"
    )
    heads.add_argument("--selector", metavar="L0H2", help="instead of the first-layer head with the largest QK")
    heads.add_argument("--group", metavar="L0H0,L0H1", help="instead of the first-layer heads that write alike")
    heads.add_argument("--induction", metavar="L3H1", help="instead of the later head that reads the selector most")

    tokens = command("tokens", run_tokens, "how tokenizers split a text")
    tokens.add_argument("--text", required=True)
    tokens.add_argument(
        "--tokenizer", action="append", required=True, metavar="NAME", help="may be given several times"
    )
    return top


def progress(args: argparse.Namespace) -> Callable[[float, str], None]:
    """Reports on stderr, on one line."""

    def report(share: float, what: str) -> None:
        print(f"\r\033[K{share:4.0%} {what}", end="" if share < 1 else "\n", file=sys.stderr, flush=True)

    return (lambda *_: None) if args.quiet or not sys.stderr.isatty() else report


def emit(args: argparse.Namespace, result: dict[str, Any]) -> None:
    """The result as JSON, to ``--out`` or stdout."""
    text = export.to_json(result) + "\n"
    if args.out:
        export.write(args.out, lambda file: file.write(text.encode()))
    else:
        sys.stdout.write(text)


def load(args: argparse.Namespace) -> "LoadedModel":
    """The model that a command names, in memory."""
    from jaxcore.catalogue import open_reference, ready
    from jaxcore.session import load

    checkpoint = ready(open_reference(args.model, progress=progress(args)), progress(args))
    model = load(checkpoint, dtype=args.dtype, device=args.device, progress=progress(args))
    progress(args)(1, f"{args.model} loaded")
    return model


def run_models(args: argparse.Namespace) -> None:
    from jaxcore.catalogue import list_models

    start = time.perf_counter()
    models = list_models(args.root)
    emit(args, export.result("models", None, time.perf_counter() - start, {"models": models}))


def run_inspect(args: argparse.Namespace) -> None:
    from jaxcore.catalogue import open_reference
    from jaxcore.inspect import described, device_plan, inspect

    start = time.perf_counter()
    sizes = None if args.mesh is None else parsed_mesh(args.mesh)
    checkpoint = open_reference(args.model, progress=progress(args))
    content = inspect(checkpoint)
    if sizes is not None:
        content["mesh"] = device_plan(checkpoint, sizes)
    emit(args, export.result("inspect", described(checkpoint), time.perf_counter() - start, content))


def parsed_mesh(text: str) -> tuple[int, int]:
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 2 or not all(part.isdecimal() and len(part) < 10 and int(part) > 0 for part in parts):
        raise InputError(f"--mesh is {text[:40]!r}; give two whole numbers above 0, such as 2,4: data and model.")
    return int(parts[0]), int(parts[1])


def run_convert(args: argparse.Namespace) -> None:
    from dataclasses import replace

    from jaxcore.catalogue import open_reference, ready
    from jaxcore.checkpoint import orbax
    from jaxcore.inspect import described, totals

    start = time.perf_counter()
    orbax.refuse_target(args.folder)  # before anything slow
    source = open_reference(args.model, progress=progress(args))
    readable = replace(ready(source, progress(args)), notes=source.notes)
    made = orbax.write(readable, args.folder, dtype=args.dtype, progress=progress(args))
    progress(args)(1, f"{args.folder} written")
    content = {"out": made.path, **totals(made)}
    emit(args, export.result("convert", described(source), time.perf_counter() - start, content))


def run_logits(args: argparse.Namespace) -> None:
    import numpy as np

    from jaxcore.sample import all_logits, prompt_ids

    if args.out is None:
        raise InputError("logits writes an NPZ file: name it with --out F.npz.")
    model = load(args)
    if args.ids is None:
        ids = prompt_ids(model, args.text, bos=not args.no_bos)
    else:
        ids = [parsed_id(part) for part in args.ids.split(",")]
    logits = all_logits(model, ids)
    export.write(args.out, lambda file: np.savez(file, ids=np.array(ids, np.int32), logits=logits))


def parsed_id(text: str) -> int:
    if not text.strip().isdigit():
        raise InputError(f"--ids holds {text!r}; give whole numbers separated by commas, such as 2,818,5279.")
    return int(text)


def run_attention(args: argparse.Namespace) -> None:
    import numpy as np

    from jaxcore.attention import check_layers, saved
    from jaxcore.sample import prompt_ids

    if args.out is None:
        raise InputError("attention writes an NPZ file: name it with --out F.npz.")
    model = load(args)
    check_layers(model, args.layer or [])
    arrays = saved(model, prompt_ids(model, args.prompt, bos=not args.no_bos), args.layer)
    export.write(args.out, lambda file: np.savez(file, **arrays))


def run_layers(args: argparse.Namespace) -> None:
    from jaxcore.layers import evolution
    from jaxcore.sample import prompt_ids
    from jaxcore.session import described

    model = load(args)
    start = time.perf_counter()
    content = evolution(model, prompt_ids(model, args.prompt, bos=not args.no_bos))
    emit(args, export.result("layers", described(model), time.perf_counter() - start, content))


def run_sample(args: argparse.Namespace) -> None:
    from jaxcore.sample import generate, prompt_ids, traced
    from jaxcore.sampling import Settings
    from jaxcore.session import described

    settings = Settings(
        temperature=0.0 if args.greedy else args.temperature, top_k=args.top_k, top_p=args.top_p, min_p=args.min_p
    )
    check_chat(args)
    model = load(args)
    start = time.perf_counter()
    chat = rendered_chat(args, model) if args.chat else {}
    ids = chat["ids"] if chat else prompt_ids(model, args.prompt, bos=not args.no_bos)
    report, text = progress(args), None
    for (text,) in generate(model, ids, settings, seeds=[args.seed], steps=args.steps):
        report(len(text.steps) / args.steps, "sampling")
    assert text is not None  # at least one step was asked for
    content = {**traced(model, args.prompt, ids, settings, text), **({"chat": chat} if chat else {})}
    emit(args, export.result("sample", described(model), time.perf_counter() - start, content))


def check_chat(args: argparse.Namespace) -> None:
    if args.system is not None and not args.chat:
        raise InputError("--system is part of a chat: add --chat.")
    if args.chat and args.no_bos:
        raise InputError("--no-bos does not go with --chat: the chat template puts BOS in front.")


def rendered_chat(args: argparse.Namespace, model: "LoadedModel") -> dict[str, Any]:
    """The prompt as one user's turn in the model's chat template: its turns, text and ids."""
    from jaxcore.chat import Turn, encode, render, spelled, template_of

    template = template_of(model.checkpoint, model.tokenizer)
    if template is None:
        raise InputError(f"{args.model} brings no chat template, as base models do not: leave --chat out.")
    system = [Turn("system", args.system)] if args.system is not None else []
    turns = [*system, Turn("user", args.prompt)]
    for token in spelled(model.tokenizer, turns):
        note(args, f"the {turns[token.turn].role}'s text spells {token.token}: it is read as that control token.")
    text = render(template, turns)
    return {"turns": turns, "rendered": text, "ids": encode(model.tokenizer, text)}


def note(args: argparse.Namespace, sentence: str) -> None:
    """Something the user should know, on stderr."""
    if not args.quiet:
        print(f"note: {sentence}", file=sys.stderr)


def run_weights(args: argparse.Namespace) -> None:
    from jaxcore.catalogue import open_reference, ready
    from jaxcore.inspect import described
    from jaxcore.weights import chosen, health

    source = open_reference(args.model, progress=progress(args))
    names = chosen(source, args.layer, args.tensor)
    start = time.perf_counter()
    content = health(ready(source, progress(args)), names, args.spectra, progress(args))
    emit(args, export.result("weights", described(source), time.perf_counter() - start, content))


def run_heads(args: argparse.Namespace) -> None:
    from dataclasses import replace

    from jaxcore.catalogue import open_reference
    from jaxcore.heads.measured import measured, read_text
    from jaxcore.heads.study import Chosen, study
    from jaxcore.inspect import described

    start = time.perf_counter()
    checkpoint = open_reference(args.model, progress=progress(args))
    if args.n_heads is not None:
        checkpoint = replace(checkpoint, config={**checkpoint.config, "n_heads": args.n_heads})
    text = read_text(checkpoint, args.text)
    group = args.group.split(",") if args.group else ()
    content = study(checkpoint, Chosen(args.selector, group, args.induction))
    content["measured_head_roles"] = measured(checkpoint, text)
    emit(args, export.result("heads", described(checkpoint), time.perf_counter() - start, content))


def run_tokens(args: argparse.Namespace) -> None:
    from jaxcore.tokens import compare

    start = time.perf_counter()
    content = {"tokenizers": compare(args.text, args.tokenizer)}
    emit(args, export.result("tokens", None, time.perf_counter() - start, content))


def failed(sentence: str) -> int:
    """Say what was wrong, on one line."""
    print(f"error: {' '.join(sentence.split())}", file=sys.stderr)
    return 2


def guarded(run: Callable[[], None]) -> int:
    """Run a command's work. Returns 0, 2 for a fault in the input, or 130 if interrupted."""
    last_resort = threading.Timer(GRACE, os._exit, [INTERRUPTED])
    last_resort.daemon = True

    def interrupted(*_: Any) -> None:
        """Stop by exception, as Python does; should a library swallow that, stop all the same."""
        if not last_resort.is_alive():
            last_resort.start()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupted)
    try:
        run()
    except ClearboxError as error:
        return failed(str(error))
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return failed(OUT_OF_MEMORY)
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        return INTERRUPTED
    finally:
        last_resort.cancel()
        signal.signal(signal.SIGINT, before)
    return 0


def leave(status: int) -> NoReturn:
    """End the process with a status of `guarded`."""
    if status == INTERRUPTED:
        os._exit(status)  # XLA may be computing on mapped weights still, which an orderly exit would take away from it
    sys.exit(status)


def main(argv: list[str] | None = None) -> int:
    """Run a command and return its exit status."""
    runtime.prepare()
    args = parser().parse_args(argv)
    return guarded(lambda: args.run(args))


if __name__ == "__main__":
    leave(main())
