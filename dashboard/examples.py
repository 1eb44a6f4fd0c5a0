"""Prompts to begin with, for each kind of model."""

from jaxcore.session import LoadedModel

SMALL = 10_000
"""Tokens in the largest vocabulary that counts as small."""
EXAMPLES = {
    "Geography": "The capital of Switzerland is",
    "Indirect object": "When Mary and John went to the store, John gave a drink to",
    "Induction": "Grindelwald Zermatt Andermatt. Grindelwald Zermatt",
    "German": "Die Schweiz ist international sehr angesehen, weil",
    "Code": "def fibonacci(n):\n    if n < 2:\n        return",
    "Recipe": "To make a good fondue, first",
}
"""Prompts to begin with, each showing something else."""
CHARACTER_EXAMPLES = {
    "English": "and the lord said to the people of the",
    "Induction": "qzkvbxjw qzkvbxjw qzkv",
    "Python": "    def get value self key default none\n        if key not in self",
    "Romaji": "watashi wa sono toki",
}
OPINION_EXAMPLES = {
    "A wrong opinion": "Is a mouse bigger than a horse? I think yes. Answer:",
    "A right opinion": "Is ten more than four? I think yes. Answer:",
    "No opinion": "Is a whale bigger than an ant? Answer:",
    "English": "The program reads the file and",
}
LANGUAGE_EXAMPLES = {
    "German": "Die Datei wird in diesem Verzeichnis",
    "French": "Cette commande permet de",
    "Italian": "Per impostazione predefinita, il",
    "English": "The program reads the file and",
}


def examples(model: LoadedModel) -> dict[str, str]:
    """Prompts that suit a model: in its alphabet, and no harder than a small vocabulary can say."""
    if model.config.family == "char":
        return CHARACTER_EXAMPLES
    if model.config.vocab > SMALL:
        return EXAMPLES
    return LANGUAGE_EXAMPLES if model.config.family == "apertus" else OPINION_EXAMPLES


def is_example_of_others(prompt: str | None, own: dict[str, str]) -> bool:
    """Whether a prompt is an untouched example meant for another kind of model."""
    kinds = (EXAMPLES, CHARACTER_EXAMPLES, OPINION_EXAMPLES, LANGUAGE_EXAMPLES)
    return prompt in {text for kind in kinds for text in kind.values()} - set(own.values())
