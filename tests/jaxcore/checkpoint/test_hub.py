"""The hub: a small server that answers as the hub does, and huggingface_hub itself in a process of its own."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from jaxcore.checkpoint.hub import parse
from models.errors import InputError
from tests.reference.gemma3 import save_tokenizer

ROOT = Path(__file__).parents[3]
COMMIT = "c0ffee" + "0" * 34
UNREACHABLE = "http://127.0.0.1:9"  # the discard port: nothing listens


class Hub(BaseHTTPRequestHandler):
    """Three requests: what a repository holds, and a file's size and content."""

    folder: Path
    asked: list[tuple[str, str]]
    refusal: tuple[int, str] | None

    def do_HEAD(self):
        self.answer(body=False)

    def do_GET(self):
        self.answer(body=True)

    def log_message(self, *_):
        pass

    def answer(self, body):
        self.asked.append((self.command, self.path))
        path = self.path.partition("?")[0]
        if self.refusal:
            self.send_response(self.refusal[0])
            self.send_header("X-Error-Code", self.refusal[1])
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if path in ("/api/models/org/tiny", "/api/models/org/tiny/revision/main", "/api/models/org/tiny/revision/v1"):
            files = [
                {"rfilename": str(f.relative_to(self.folder)), "size": f.stat().st_size}
                for f in sorted(self.folder.rglob("*"))
                if f.is_file()
            ]
            content = json.dumps({"id": "org/tiny", "sha": COMMIT, "siblings": files}).encode()
        elif path.startswith(f"/org/tiny/resolve/{COMMIT}/"):
            content = (self.folder / path.rpartition("/")[2]).read_bytes()
        else:
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(200)
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if body:
            self.wfile.write(content)


@pytest.fixture
def hub(model, tmp_path):
    """A running server with one sharded model beside files that must not be fetched."""
    folder = tmp_path / "repository"
    model.save_pretrained(folder, max_shard_size="600KB")
    (folder / "pytorch_model.bin").write_bytes(b"pickle")
    (folder / "consolidated.safetensors").write_bytes(b"another copy")
    (folder / "original").mkdir()
    (folder / "original" / "model.safetensors").write_bytes(b"another copy")
    handler = type("Handler", (Hub,), {"folder": folder, "asked": [], "refusal": None})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


SCRIPT = """
import json, sys
from jaxcore.catalogue import open_reference
from jaxcore.checkpoint import hub
from models.errors import ClearboxError
told = []
try:
    if sys.argv[1] == "plan":
        plan = hub.plan(sys.argv[2])
        found = {"files": plan.files, "total": plan.total_bytes, "missing": plan.missing_bytes, "commit": plan.revision}
    elif sys.argv[1] == "tokens":
        from jaxcore.tokens import find_tokenizer
        tokenizer = find_tokenizer(sys.argv[2])
        found = {"ids": tokenizer.encode("ab", bos=True), "stop": sorted(tokenizer.stop_ids)}
    else:
        checkpoint = open_reference(sys.argv[2], lambda share, what: told.append(share))
        found = {"revision": checkpoint.revision, "tensors": len(checkpoint.tensors), "path": str(checkpoint.path)}
    print(json.dumps({**found, "told": told}))
except ClearboxError as error:
    print(json.dumps({"error": str(error)}))
"""


def run(what, reference, cache, endpoint):
    """The outcome in a new process, since huggingface_hub reads its settings when it is imported."""
    settings = {"HF_HUB_CACHE": str(cache), "HF_ENDPOINT": endpoint, "HF_HUB_DISABLE_TELEMETRY": "1"}
    command = [sys.executable, "-c", SCRIPT, what, reference]
    environment = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
    result = subprocess.run(
        command, cwd=ROOT, env={**environment, **settings}, capture_output=True, text=True, check=True
    )
    return json.loads(result.stdout), result.stderr


def address(server):
    return f"http://127.0.0.1:{server.server_port}"


def test_a_plan_names_the_files_and_their_bytes_and_downloads_nothing(hub, tmp_path):
    found, _ = run("plan", "hf:org/tiny", tmp_path / "cache", address(hub))
    folder = hub.RequestHandlerClass.folder
    shards = sorted(path.name for path in folder.glob("model-*.safetensors"))
    assert len(shards) > 1
    expected = {"config.json", "generation_config.json", "model.safetensors.index.json", *shards}
    assert set(found["files"]) == expected
    assert found["total"] == found["missing"] == sum((folder / name).stat().st_size for name in expected)
    assert found["commit"] == COMMIT
    assert not list((tmp_path / "cache").rglob("*.safetensors"))


@pytest.mark.parametrize("reference", ["hf:org/tiny", "hf:org/tiny@v1", f"hf:org/tiny@{COMMIT}"])
def test_a_reference_is_fetched_once_and_opens_offline_afterwards(hub, model, tmp_path, reference):
    handler = hub.RequestHandlerClass
    if reference.endswith(COMMIT):  # an exact commit is asked for under its own name
        reference_name = f"/api/models/org/tiny/revision/{COMMIT}"
        original = handler.answer

        def answer(self, body):
            self.path = self.path.replace(reference_name, "/api/models/org/tiny/revision/main")
            original(self, body)

        handler.answer = answer
    first, printed = run("open", reference, tmp_path / "cache", address(hub))
    assert first["revision"] == COMMIT
    assert first["tensors"] == len(list(model.parameters()))
    assert first["told"] == sorted(first["told"])
    assert (first["told"][0], first["told"][-1]) == (0.0, 1.0)
    assert "%" not in printed  # no bars of the library's own
    fetched = {path.rpartition("/")[2] for command, path in handler.asked if "/resolve/" in path}
    assert not fetched & {"pytorch_model.bin", "consolidated.safetensors"}

    again, _ = run("open", reference, tmp_path / "cache", UNREACHABLE)
    assert again == {**first, "told": []}


def with_tokenizer(folder):
    save_tokenizer(folder)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [257, 7]}))


@pytest.mark.parametrize("reference", ["hf:org/tiny", "hf:org/tiny@v1"])
def test_of_a_tokenizer_only_its_own_files_are_fetched(hub, model, tmp_path, reference):
    with_tokenizer(hub.RequestHandlerClass.folder)
    first, _ = run("tokens", reference, tmp_path / "cache", address(hub))
    assert first == {"ids": [256, 97 - 33, 98 - 33], "stop": [7, 257], "told": []}
    fetched = {path.rpartition("/")[2] for _, path in hub.RequestHandlerClass.asked if "/resolve/" in path}
    assert fetched == {"tokenizer.json", "generation_config.json"}
    assert run("tokens", reference, tmp_path / "cache", UNREACHABLE)[0] == first

    whole, _ = run("open", reference, tmp_path / "cache", address(hub))
    assert whole["tensors"] == len(list(model.parameters()))


def test_a_repository_without_a_tokenizer_is_refused(hub, tmp_path):
    found, _ = run("tokens", "hf:org/tiny", tmp_path / "cache", address(hub))
    assert "hf:org/tiny holds no tokenizer" in found["error"]
    assert not [path for _, path in hub.RequestHandlerClass.asked if "/resolve/" in path]


def test_half_a_download_is_completed_and_not_opened(hub, tmp_path):
    first, _ = run("open", "hf:org/tiny", tmp_path / "cache", address(hub))
    shard = sorted(Path(first["path"]).glob("model-*.safetensors"))[1]
    shard.resolve().unlink()
    shard.unlink()
    hub.RequestHandlerClass.asked.clear()
    again, _ = run("open", "hf:org/tiny", tmp_path / "cache", address(hub))
    assert again["tensors"] == first["tensors"]
    got = [path.rpartition("/")[2] for command, path in hub.RequestHandlerClass.asked if command == "GET"]
    assert [name for name in got if name.endswith(".safetensors")] == [shard.name]


@pytest.mark.parametrize(
    ("refusal", "message"),
    [
        ((403, "GatedRepo"), "is gated: accept its licence on huggingface.co/org/tiny"),
        ((404, "RepoNotFound"), "does not exist, or is private"),
        ((404, "RevisionNotFound"), "this revision does not exist"),
        ((500, ""), "could not be reached"),
    ],
)
def test_refusals_say_what_to_do(hub, tmp_path, refusal, message):
    hub.RequestHandlerClass.refusal = refusal
    found, _ = run("open", "hf:org/tiny", tmp_path / "cache", address(hub))
    assert message in found["error"]
    assert "hf:org/tiny" in found["error"]


def test_without_a_network_the_message_says_so(tmp_path):
    found, _ = run("open", "hf:org/tiny", tmp_path / "cache", UNREACHABLE)
    assert "Check the network" in found["error"]


def test_a_repository_of_pickles_is_refused_before_anything_is_fetched(hub, tmp_path):
    folder = hub.RequestHandlerClass.folder
    for path in folder.glob("*.safetensors*"):
        path.unlink()
    shutil.rmtree(folder / "original")
    found, _ = run("open", "hf:org/tiny", tmp_path / "cache", address(hub))
    assert "holds no safetensors weights" in found["error"]
    assert not [path for _, path in hub.RequestHandlerClass.asked if "/resolve/" in path]


def test_a_cache_that_other_tools_filled_opens_offline(saved, tmp_path):
    """The library's layout: a snapshot of links into blobs, and a branch that points to it."""
    repository = tmp_path / "cache" / "models--org--tiny"
    snapshot = repository / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (repository / "blobs").mkdir()
    for path in saved.iterdir():
        shutil.copy(path, repository / "blobs" / path.name)
        (snapshot / path.name).symlink_to(f"../../blobs/{path.name}")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    found, _ = run("open", "hf:org/tiny", tmp_path / "cache", UNREACHABLE)
    assert found["revision"] == COMMIT
    assert Path(found["path"]) == snapshot


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("hf:org/name", ("org/name", None)),
        ("hf:org/name@v1.0", ("org/name", "v1.0")),
        ("hf:org/name@", ("org/name", None)),
    ],
)
def test_references_are_parsed(reference, expected):
    assert parse(reference) == expected


@pytest.mark.parametrize(
    "reference", ["hf:", "hf:name", "hf:a/b/c", "hf:/b", "hf:a/", "hf:a b/c", "hf:../x/y", "hf:a/b@../../x"]
)
def test_what_is_no_reference_is_an_input_error(reference):
    with pytest.raises(InputError, match="write hf:org/name"):
        parse(reference)
