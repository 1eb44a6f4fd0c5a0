"""The report: complete, safe to open, and the same numbers as the commands give."""

import json
import re

import pytest
from playwright.sync_api import sync_playwright

from dashboard.report import __main__ as command
from dashboard.report.build import build
from dashboard.report.sections import PARTS
from jaxcore.catalogue import open_reference
from jaxcore.session import load
from tests.e2e.browser import CHROMIUM, FLAGS, NEEDS_BROWSER

HOSTILE = '</script><script>document.title="owned"</script><!-- & "quoted"'


@pytest.fixture(scope="module")
def model():
    return load(open_reference("gemma3-mini-base"), dtype="float32", device="cpu")


@pytest.fixture(scope="module")
def report(model, tmp_path_factory):
    """A file about a prompt that tries to break out of it, and the progress that was told."""
    told = []
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(build(model, HOSTILE, lambda share, what: told.append((share, what))), "utf-8")
    return path, told


def numbers(path) -> dict:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text("utf-8"), re.DOTALL)
    assert found
    return json.loads(found[1])


def test_progress_names_every_part(report):
    assert [what for _, what in report[1]] == [*PARTS, "Report written"]
    assert report[1][-1][0] == 1


def test_the_numbers_are_inside_as_the_commands_give_them(report, model):
    data = numbers(report[0])
    assert data["schema"] == "clearbox.report/1"
    assert data["model"]["reference"] == "gemma3-mini-base"
    assert data["prompt"] == HOSTILE
    assert data["prompt_ids"] == model.tokenizer.encode(HOSTILE, bos=True)
    assert data["machine"]["forward_s"] > 0
    assert len(data["sample"]["steps"]) > 0


def test_it_needs_no_network(report):
    """Addresses stand in it only as names of namespaces and of schemas, which nothing fetches."""
    text = report[0].read_text("utf-8")
    assert not re.search(r'(src|href)="?https?:', text)
    assert "default-src 'none'" in text


@NEEDS_BROWSER[0]
@NEEDS_BROWSER[1]
def test_it_opens_offline_and_draws_every_chart(report):
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_context(offline=True).new_page()
        faults = []
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
        page.goto(report[0].as_uri())
        page.wait_for_function(
            "[...document.querySelectorAll('.chart')].every(c => c.querySelector('.marks')?.clientWidth > 100)"
        )
        assert faults == []
        assert page.locator(".chart").count() >= 4
        assert page.title() == "Clearbox report: gemma3-mini-base"
        with page.expect_download() as download:
            page.locator("#save").click()
        assert json.loads(download.value.path().read_text())["prompt"] == HOSTILE
        browser.close()


def test_the_command_writes_it_and_leaves_nothing_behind_when_the_prompt_is_at_fault(tmp_path, capfd):
    out = tmp_path / "r.html"
    assert command.main(["char-english", "--out", str(out), "--quiet"]) == 0
    assert numbers(out)["prompt"] == "and the lord said to the people of the"
    out.unlink()
    assert command.main(["char-english", "--prompt", "", "--out", str(out), "--quiet"]) == 2
    assert capfd.readouterr().err.splitlines()[-1].startswith("error: The prompt is empty")
    assert list(tmp_path.iterdir()) == []
