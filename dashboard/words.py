"""Sentences built from numbers."""

from jaxcore.sample import StepRecord
from jaxcore.tokenizer import visible

STOPPED = {
    "steps": "wrote as many tokens as asked",
    "stop_token": "ended with the model's own stop token",
    "stop_string": "reached a stop string",
    "context": "filled the model's context",
    "stopped": "stopped by hand",
}


def quoted(token: str) -> str:
    """A token as it is shown in a sentence."""
    return f"`{visible(token).replace('`', 'ˋ')}`"


def chosen(step: StepRecord, vocabulary: int) -> str:
    """Why a step has its token."""
    first = step.candidates[0]
    parts = [f"{quoted(step.token)} is rank {step.rank:,} of {vocabulary:,}"]
    if step.rank == 1:
        parts.append(f"the model's own first choice at {step.probability_raw:.1%}")
    else:
        parts.append(
            f"{quoted(first.token)} was likelier at {first.probability_raw:.1%} against {step.probability_raw:.1%}"
        )
    if step.probability_final == 0:
        parts.append("the filters had removed it, and it was picked by hand")
    elif step.kept_final == 1:
        parts.append("no other token survived the filters")
    else:
        parts.append(f"{step.kept_final:,} tokens survived; this one was drawn with {step.probability_final:.1%}")
    return "; ".join(parts) + "."


def prediction(step: StepRecord) -> str:
    """What the settings do to the next-token distribution."""
    first = step.candidates[0]
    change = step.top1_temperature - step.top1_raw
    direction = "sharpens" if change > 0.0005 else "flattens" if change < -0.0005 else "keeps"
    return (
        f"The likeliest next token is {quoted(first.token)}. Temperature {direction} it "
        f"({step.top1_raw:.1%} → {step.top1_temperature:.1%}), and of the {step.kept_final:,} tokens that survive it "
        f"would be drawn with {first.probability_final:.1%}."
    )
