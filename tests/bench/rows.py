"""Lines of the table."""

from typing import NamedTuple


class Row(NamedTuple):
    """One line of the table."""

    what: str
    ours: str
    theirs: str = ""
    ratio: str = ""
    target: str = ""


def against(what: str, times: dict[str, float], target: str, unit: str = "s", count: int = 1) -> list[Row]:
    """A row for each of `transformers`' ways; the first time is ours. With tokens per second, more is better."""
    ours, *_ = times.values()

    def shown(seconds: float) -> str:
        return f"{count / seconds:.1f} {unit}" if count > 1 else f"{seconds:.2f} {unit}"

    return [
        Row(f"{what}, {name}", shown(ours), shown(theirs), f"{theirs / ours:.2f}x", target)
        for name, theirs in list(times.items())[1:]
    ]
