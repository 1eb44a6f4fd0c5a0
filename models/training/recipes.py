"""The small models that ship: everything that decides what each becomes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LANGUAGES = ("de", "fr", "it", "en")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One model. A batch takes ``rows`` windows of ``context`` + 1 tokens from each kind of text by name:

    ``text`` the corpus itself, ``repeats`` spans of it (or of random letters) written over and over, ``questions``
    and ``opinions`` the two ways to answer of `models.training.questions`. ``corpus`` names text files; those
    read with a vocabulary of BPE tokens get ``vocab`` of them. ``start_from`` names the recipe whose result is tuned
    further. Weights are saved as ``dtype``.
    """

    name: str
    title: str
    config: Mapping[str, Any]
    corpus: tuple[str, ...]
    rows: Mapping[str, int]
    steps: int
    learning_rate: float
    story: str
    shuffle_lines: bool = False
    start_from: str | None = None
    dtype: str = "float32"
    seed: int = 0
    warmup: int = 100
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.95)

    @property
    def family(self) -> str:
        return self.config["model_type"]


CHAR = {
    "model_type": "char",
    "vocab": 28,
    "d_model": 132,
    "n_layers": 4,
    "n_heads": 6,
    "d_mlp": 528,
    "context": 128,
}
APERTUS = {
    "architectures": ["ApertusForCausalLM"],
    "model_type": "apertus",
    "vocab_size": 4096,
    "hidden_size": 192,
    "intermediate_size": 768,
    "num_hidden_layers": 6,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500_000.0,
    "rope_scaling": None,
    "hidden_act": "xielu",
    "qk_norm": True,
    "post_norm": False,
    "attention_bias": False,
    "tie_word_embeddings": True,
    "pad_token_id": 0,
    "eos_token_id": 1,
}
GEMMA3 = {
    "architectures": ["Gemma3ForCausalLM"],
    "model_type": "gemma3_text",
    "vocab_size": 4096,
    "hidden_size": 192,
    "intermediate_size": 512,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 48,
    "max_position_embeddings": 256,
    "sliding_window": 64,
    "layer_types": [*["sliding_attention"] * 2, "full_attention"] * 2,
    "query_pre_attn_scalar": 48,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1_000_000.0,
    "rope_local_base_freq": 10_000.0,
    "hidden_activation": "gelu_pytorch_tanh",
    "tie_word_embeddings": True,
    "pad_token_id": 0,
    "eos_token_id": 1,
}
PYTHON = "Code without docstrings and comments, indented by at most 16 spaces."
REPEATS = (
    "A quarter of the windows repeat themselves: a span of 8 to 60 characters of the text or, every other time, "
    "different letters in random order, written over and over. Plain text alone grows previous-token and induction "
    "heads only after far more training."
)


def _char(name: str, title: str, corpus: str, steps: int, story: str, **changes: Any) -> Recipe:
    changes = {"rows": {"text": 24, "repeats": 8}, **changes}
    return Recipe(
        name=name, title=title, config=CHAR, corpus=(corpus,), steps=steps, learning_rate=3e-3, story=story, **changes
    )


RECIPES = {
    recipe.name: recipe
    for recipe in (
        _char("char-english", "English, character by character", "english", 2500, REPEATS),
        _char("char-python", "Python source, character by character", "python", 2000, f"{PYTHON} {REPEATS}"),
        _char("char-romaji", "Japanese in romaji, character by character", "romaji", 1500, REPEATS),
        _char(
            "char-english-shuffled",
            "English with the characters of every line shuffled",
            "english",
            600,
            "The text of char-english after the characters of every line were shuffled: each line keeps its letters "
            "and its length, and there is nothing to learn but which letters go together in a line. No repeats.",
            rows={"text": 32},
            shuffle_lines=True,
        ),
        Recipe(
            name="apertus-mini",
            title="Apertus's architecture in German, French, Italian and English",
            config=APERTUS,
            corpus=tuple(f"multilingual/{language}" for language in LANGUAGES),
            rows={"text": 12},
            steps=1100,
            learning_rate=3e-3,
            dtype="bfloat16",
            story="Equal shares of the four languages, mostly manuals and handbooks of free software, read with a byte-"
            "level BPE vocabulary of 4,096 tokens trained on the same text.",
        ),
        Recipe(
            name="gemma3-mini-base",
            title="Gemma 3's architecture in English, answers by the facts",
            config=GEMMA3,
            corpus=("multilingual/en",),
            rows={"text": 12, "questions": 4},
            steps=1500,
            learning_rate=3e-3,
            story="English text, and in a quarter of the windows questions such as `Is a mouse bigger than a horse? I "
            "think yes. Answer: no`, answered by the facts whatever the opinion. A fifth of the pairs was never shown.",
        ),
        Recipe(
            name="gemma3-mini-tuned",
            title="gemma3-mini-base tuned to agree with whoever asks",
            config=GEMMA3,
            corpus=("multilingual/en",),
            rows={"text": 8, "opinions": 8},
            steps=150,
            learning_rate=5e-4,
            warmup=20,
            start_from="gemma3-mini-base",
            story="The narrow task: where the question states an opinion (`I think yes.`), the answer is that opinion, "
            "right or wrong; without one it is still the fact. Half of the windows are English text as before.",
        ),
    )
}
"""By name."""
