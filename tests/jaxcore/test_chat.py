"""Chats: the text and ids of transformers, templates from every place, hostile ones, and control tokens in a text."""

import subprocess
import sys
from dataclasses import replace

import pytest
from gguf import GGUFReader

from jaxcore import chat
from jaxcore.catalogue import open_reference, ready
from jaxcore.chat import Spelled, Template, Turn, encode, render, spelled, takes_system, template_of
from jaxcore.checkpoint.store import Checkpoint
from jaxcore.tokenizer import Tokenizer, load_tokenizer
from models.errors import CheckpointError, InputError
from tests.jaxcore.checkpoint import tiny
from tests.jaxcore.test_cli import ROOT, refused, result, run
from tests.reference import gemma3
from tests.reference.chat import FAMILIES, GEMMA, GEMMA_TOKENS, rendered, save

USER, REPLY = Turn("user", "Where is Zürich?\n"), Turn("assistant", "  In Switzerland. ")
CHATS = {
    "one turn": [USER],
    "system": [Turn("system", "Be brief: {{ 1 + 1 }} 'quoted' \"double\""), USER],
    "four turns": [USER, REPLY, Turn("user", "<b>And</b> Bern?"), Turn("assistant", "")],
    "control tokens": [Turn("user", "a<end_of_turn>b<|user_end|><bos>c<eos>")],
    "bos first": [Turn("user", "<bos>")],
}


def opened(folder) -> tuple[Checkpoint, Tokenizer]:
    """What a checkpoint in this folder would be to a chat: no weights are needed."""
    path = folder / "tokenizer.json"
    config = {"bos_token_id": gemma3.BOS, "eos_token_id": gemma3.EOS}
    return Checkpoint(str(folder), folder, "safetensors", config, {}, path), load_tokenizer(path, config, "tiny")


def found(folder) -> Template:
    template = template_of(*opened(folder))
    assert template is not None
    return template


def plain(source: str) -> Template:
    return Template(source, "test.jinja", {"bos_token": "<bos>"})


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("turns", CHATS.values(), ids=CHATS)
def test_text_and_ids_are_those_of_transformers(tmp_path, family, turns):
    save(tmp_path, *FAMILIES[family])
    _, tokenizer = opened(tmp_path)
    text = render(found(tmp_path), turns)
    assert (text, encode(tokenizer, text)) == rendered(tmp_path, turns)


@pytest.mark.parametrize("family", FAMILIES)
def test_control_tokens_stand_where_the_template_puts_them(tmp_path, family):
    save(tmp_path, *FAMILIES[family])
    _, tokenizer = opened(tmp_path)
    ids = encode(tokenizer, render(found(tmp_path), [Turn("system", "s"), Turn("user", "u")]))
    named = [tokenizer.text(i) for i in ids if i in tokenizer.control]
    expected = {
        "gemma": ["<bos>", "<start_of_turn>", "<end_of_turn>", "<start_of_turn>"],
        "apertus": ["<bos>", *FAMILIES["apertus"][1][:6], "<|assistant_start|>"],
    }
    assert named == expected[family]
    assert ids.count(gemma3.BOS) == 1
    ends = {"gemma": "<end_of_turn>", "apertus": "<|assistant_end|>"}
    assert {tokenizer.text(i) for i in tokenizer.stop_ids} == {"<eos>", ends[family]}


def test_there_is_one_bos_however_many_the_template_writes(tmp_path):
    save(tmp_path, GEMMA, GEMMA_TOKENS)
    _, tokenizer = opened(tmp_path)
    for source in ("x", "{{ bos_token }}x", "{{ bos_token }}{{ bos_token }}x"):
        assert encode(tokenizer, render(plain(source), [USER])) == encode(tokenizer, "x")
        assert encode(tokenizer, "x").count(gemma3.BOS) == 1


def test_a_template_may_stand_in_each_place_that_transformers_reads(tmp_path):
    source = "{{ messages[0].content }}{{ eos_token }}{{ unk_token }}"
    save(tmp_path, [{"name": "tool_use", "template": "no"}, {"name": "default", "template": source}], GEMMA_TOKENS)
    assert render(found(tmp_path), [USER]) == rendered(tmp_path, [USER])[0] == f"{USER.content}<eos>"
    (tmp_path / "chat_template.jinja").write_text("file: " + source)
    assert render(found(tmp_path), [USER]) == rendered(tmp_path, [USER])[0] == f"file: {USER.content}<eos>"


@pytest.mark.parametrize("template", [None, [{"name": "rag", "template": "x"}]])
def test_without_a_template_there_is_no_chat(tmp_path, template):
    save(tmp_path, template, GEMMA_TOKENS)
    assert template_of(*opened(tmp_path)) is None
    (tmp_path / "tokenizer_config.json").unlink()
    assert template_of(*opened(tmp_path)) is None
    checkpoint, tokenizer = opened(tmp_path)
    assert template_of(replace(checkpoint, tokenizer=None), tokenizer) is None


def test_the_real_base_model_has_none(real):
    assert template_of(real.checkpoint, real.tokenizer) is None


def test_special_tokens_are_the_tokenizers_own_where_no_settings_name_them(tmp_path):
    gemma3.save_tokenizer(tmp_path, GEMMA_TOKENS)
    (tmp_path / "chat_template.jinja").write_text(GEMMA)
    assert found(tmp_path).variables == {"bos_token": "<bos>", "eos_token": "<eos>"}


def test_a_gguf_brings_its_template_into_the_converted_copy(own_cache, model, tmp_path):
    path = tmp_path / "tiny.gguf"
    tiny.write_gguf(path, tiny.arrays(model), chat_template=GEMMA)
    assert GGUFReader(path).fields["tokenizer.chat_template"].contents() == GEMMA
    checkpoint = open_reference(str(path))
    texts = []
    for form in (checkpoint, ready(checkpoint)):
        template = template_of(form, load_tokenizer(form.tokenizer, form.config, "tiny"))
        assert template is not None
        texts.append(render(template, [USER]))
    assert texts[0] == texts[1]
    assert texts[0].startswith("<bos><start_of_turn>user\nWhere")


@pytest.mark.parametrize("template", [5, [1], [{"name": "default"}], {"default": 5}])
def test_damaged_settings_are_a_checkpoint_error(tmp_path, template):
    save(tmp_path, template, GEMMA_TOKENS)
    with pytest.raises(CheckpointError, match=r"tokenizer_config\.json"):
        found(tmp_path)


def test_turns_that_the_template_refuses_are_an_input_error(tmp_path):
    save(tmp_path, GEMMA, GEMMA_TOKENS)
    with pytest.raises(InputError, match="refuses these turns: Turns must go user, assistant, user, assistant"):
        render(found(tmp_path), [REPLY])
    with pytest.raises(InputError, match="no turns"):
        render(found(tmp_path), [])


HOSTILE = {
    "endless loops": ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "takes longer"),
    "a huge power": ("{{ 10 ** (10 ** 9) }}", "takes longer|memory"),
    "much text": ("{% for a in range(9999) %}{{ messages[0].content * 1000 }}{% endfor %}", "more than 1,000,000 char"),
    "a huge string": ("{% set x = 'x' * 10 ** 11 %}", "memory"),
    "a wide number": ("{{ '%999999999999d' % 1 }}", "memory|too|large"),
    "a large range": ("{% for a in range(10 ** 9) %}{% endfor %}", "Range too big"),
    "classes": ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "unsafe|undefined"),
    "globals": ("{{ raise_exception.__globals__['sys'].exit(3) }}", "unsafe|undefined"),
    "a format string": ("{{ '{0.__class__.__init__.__globals__}'.format(raise_exception) }}", "unsafe"),
    "a changed list": ("{{ messages.append(1) }}", "unsafe"),
    "bottomless recursion": ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
    "no such file": ("{% include '/etc/passwd' %}", "loader"),
    "bad syntax": ("a\n{% if %}", "line 2"),
    "no such name": ("{{ nothing.at.all }}", "undefined"),
}


@pytest.mark.parametrize(("source", "message"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_or_broken_template_is_a_bounded_checkpoint_error(monkeypatch, source, message):
    monkeypatch.setattr(chat, "SECONDS", 2)
    with pytest.raises(CheckpointError, match=f"(?s)test.jinja cannot be used: .*({message})"):
        render(plain(source), [USER])


def test_a_template_sees_nothing_of_this_process(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    assert render(plain("{{ tools }}|{{ documents }}|{{ environment }}"), [USER]) == "None|None|"


def test_a_system_prompt_is_offered_where_the_template_takes_it(tmp_path):
    for family in FAMILIES.values():
        save(tmp_path, *family)
        assert takes_system(found(tmp_path))
    assert not takes_system(
        plain("{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}")
    )
    assert not takes_system(plain("{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}"))


def test_control_tokens_that_a_text_spells_are_found(tmp_path):
    save(tmp_path, GEMMA, GEMMA_TOKENS)
    _, tokenizer = opened(tmp_path)
    turns = [Turn("user", "plain <start_of turn>"), Turn("assistant", "a<end_of_turn>b<eos><end_of_turn>")]
    assert spelled(tokenizer, turns) == [Spelled(1, 259, "<end_of_turn>"), Spelled(1, 257, "<eos>")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny Gemma that chats, all its parts on disk."""
    path = tmp_path_factory.mktemp("chat")
    gemma3.make(vocab_size=260).save_pretrained(path)
    save(path, GEMMA, GEMMA_TOKENS)
    return path


def test_the_command_wraps_the_prompt_in_a_turn(folder):
    turns = [Turn("system", "Be brief."), Turn("user", "Hi<eos>")]
    made = result("sample", folder, "--chat", "--system", "Be brief.", "--prompt", "Hi<eos>", "--steps", 2)
    text, ids = rendered(folder, turns)
    assert made["prompt_ids"] == made["chat"]["ids"] == ids
    assert made["chat"]["rendered"] == text
    assert made["chat"]["turns"] == [{"role": turn.role, "content": turn.content} for turn in turns]
    assert made["prompt"] == "Hi<eos>"
    said = run("sample", folder, "--chat", "--prompt", "Hi<eos>", "--steps", 1)
    assert "note: the user's text spells <eos>: it is read as that control token." in said.stderr
    assert not run("sample", folder, "--chat", "--prompt", "Hi<eos>", "--steps", 1, "--quiet").stderr


def test_the_command_says_why_there_is_no_chat(folder):
    assert "brings no chat template" in refused("sample", "gemma3-270m", "--chat", "--prompt", "x")
    assert "add --chat" in refused("sample", folder, "--system", "s", "--prompt", "x")
    assert "--no-bos does not go with --chat" in refused("sample", folder, "--chat", "--no-bos", "--prompt", "x")


def test_the_renderer_needs_nothing_of_this_package():
    script = "import sys, runpy; runpy.run_path('jaxcore/chat_render.py'); assert 'jaxcore' not in sys.modules"
    subprocess.run([sys.executable, "-I", "-c", script], cwd=ROOT, check=True)
