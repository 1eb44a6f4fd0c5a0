"""The few kinds of error that a user can cause, each a sentence: what, where, what to do."""


class ClearboxError(Exception):
    """Base of every error that is shown to the user instead of a traceback."""


class ConfigError(ClearboxError):
    """A configuration is missing, inconsistent, or of an architecture we do not run."""


class CheckpointError(ClearboxError):
    """A file is missing, damaged, unsafe, or does not hold what its configuration promises."""


class InputError(ClearboxError):
    """A prompt, a setting or an argument cannot be used."""


class AnalysisError(ClearboxError):
    """An analysis cannot be computed for this model or this input."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception, of Python or of XLA, says that memory ran out."""
    return isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)


OUT_OF_MEMORY = (
    "Memory ran out. Shorten the prompt, write fewer texts at once, unload other models, load the weights as bfloat16, "
    "or take a smaller model."
)
