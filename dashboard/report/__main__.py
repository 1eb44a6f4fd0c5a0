"""``python -m dashboard.report MODEL --out F.html``. Heavy imports wait until the arguments are read."""

import argparse
from pathlib import Path

from jaxcore import export, runtime
from jaxcore.__main__ import Parser, guarded, leave, load, progress


def parsed(argv: list[str] | None = None) -> argparse.Namespace:
    parser = Parser("python -m dashboard.report", description="Write a report on a model as one HTML file.")
    parser.add_argument("model", metavar="MODEL", help="as for python -m jaxcore")
    parser.add_argument("--prompt", help="what the model reads; an example that suits it, if left out")
    parser.add_argument("--out", type=Path, metavar="FILE", required=True)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), help="of the weights in memory")
    parser.add_argument("--device", choices=("cpu", "gpu"))
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")
    return parser.parse_args(argv)


def write(args: argparse.Namespace) -> None:
    from dashboard.examples import examples
    from dashboard.report.build import build

    model = load(args)
    prompt = next(iter(examples(model).values())) if args.prompt is None else args.prompt
    html = build(model, prompt, progress(args))
    export.write(args.out, lambda file: file.write(html.encode()))


def main(argv: list[str] | None = None) -> int:
    """Write a report and return the exit status."""
    runtime.prepare()
    args = parsed(argv)
    return guarded(lambda: write(args))


if __name__ == "__main__":
    leave(main())
