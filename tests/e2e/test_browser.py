"""The main path in a real browser: open, type, move a slider, click a token, branch."""

import re
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from tests.e2e.browser import CHROMIUM, FLAGS, NEEDS_BROWSER

ROOT = Path(__file__).parent.parent.parent
LONG = 30_000

pytestmark = [pytest.mark.xdist_group("pages"), *NEEDS_BROWSER]


@pytest.fixture(scope="module")
def address():
    """The app as ``streamlit run`` serves it."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", "dashboard/app.py", "--server.port", str(port)]
    server = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    url = f"http://localhost:{port}/"
    try:
        for _ in range(120):
            try:
                urllib.request.urlopen(f"{url}_stcore/health", timeout=1)
                break
            except OSError:
                time.sleep(0.5)
        else:
            pytest.fail("the app did not start within a minute")
        yield url
    finally:
        server.terminate()
        server.wait(30)


@pytest.fixture
def page():
    assert CHROMIUM is not None, "continuous integration must have Chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.set_default_timeout(LONG)
        expect.set_options(timeout=LONG)
        yield page
        browser.close()


def settled(page: Page) -> None:
    page.wait_for_selector('[data-testid="stApp"][data-test-script-state="notRunning"]')


def metric(page: Page, label: str):
    return page.get_by_test_id("stMetric").filter(has_text=label).get_by_test_id("stMetricValue")


def test_the_main_path(page, address):
    page.goto(address)
    page.get_by_role("button", name="Load", exact=True).click()
    expect(metric(page, "Parameters")).to_have_text("268 M")
    page.get_by_role("link", name="Sampling").click()

    prompt = page.get_by_role("textbox", name="Prompt")
    prompt.fill("The capital of France is")
    prompt.press("Control+Enter")
    expect(page.get_by_text("The likeliest next token is")).to_be_visible()
    settled(page)
    final = metric(page, "First choice, final")
    before = final.inner_text()
    slider = page.get_by_role("slider", name="Temperature")
    slider.focus()
    for _ in range(8):
        slider.press("ArrowRight")
    expect(final).not_to_have_text(before)
    expect(page).to_have_url(re.compile(r"temperature=1\.1\b"))
    expect(page).to_have_url(re.compile("prompt=The"))

    page.get_by_test_id("stButtonGroup").get_by_text("Write", exact=True).click()
    page.get_by_role("spinbutton", name="Tokens").fill("8")
    page.get_by_role("spinbutton", name="Tokens").press("Enter")
    settled(page)
    page.get_by_role("button", name="Write", exact=True).click()
    chips = page.locator(".chip[role=button]")
    expect(chips).to_have_count(8)
    settled(page)
    chips.nth(1).click()
    expect(page.get_by_text("Token 2 of text 1")).to_be_visible()
    expect(page.get_by_text("of 262,144")).to_be_visible()
    page.get_by_role("button", name="Branch").click()
    expect(page.get_by_text("branch of text 1 at token 2")).to_be_visible()
    expect(chips).to_have_count(16)
    expect(page.get_by_test_id("stException")).to_have_count(0)


def test_stop_keeps_what_was_written(page, address):
    page.goto(f"{address}sampling?load=1&view=Write&steps=500")
    page.get_by_role("button", name="Write", exact=True).click()
    expect(page.locator(".chip").nth(4)).to_be_visible()
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_text("stopped by hand")).to_be_visible()
    chips = page.locator(".chip[role=button]")
    expect(chips.nth(4)).to_be_visible()
    assert chips.count() < 500


def test_the_address_brings_back_prompt_and_settings(page, address):
    page.goto(f"{address}sampling?load=1&prompt=Zurich%20is&temperature=1.5&top_k=7")
    expect(page.get_by_text("The likeliest next token is")).to_be_visible()
    expect(page.get_by_role("textbox", name="Prompt")).to_have_value("Zurich is")
    expect(page.get_by_text("7 tokens · ")).to_be_visible()
    expect(page).to_have_url(re.compile(r"temperature=1\.5"))


def test_a_chart_can_be_saved(page, address):
    page.goto(f"{address}sampling?load=1")
    chart = page.get_by_test_id("stVegaLiteChart").first
    chart.hover()
    with page.expect_download() as download:
        page.get_by_role("button", name=re.compile("Download")).first.click()
    assert download.value.suggested_filename.endswith((".png", ".svg"))


def test_looking_inside(page, address):
    """Attention, layers and weights of one model after the other: no page loses its place or shows a traceback."""
    page.goto(f"{address}?model=gemma3-mini-base")
    page.get_by_role("button", name="Load", exact=True).click()
    expect(metric(page, "Layers")).to_have_text("6")

    page.get_by_role("link", name="Attention").click()
    page.get_by_role("button", name="Write", exact=True).click()
    expect(page.get_by_text("20 tokens written after the prompt")).to_be_visible()
    page.get_by_role("button", name="Layer 4, head 2").click()
    expect(page.get_by_text("L4H2", exact=True).first).to_be_visible()
    token = page.locator(".map .line").first.locator(".token").nth(5)
    token.hover()
    expect(token).to_have_class(re.compile(r"\bat\b"))
    token.click()
    expect(page.get_by_text("(5) looks at")).to_be_visible()
    page.get_by_text("Hide the first token").click()
    expect(page.get_by_text("The first token is hidden")).to_be_visible()
    expect(page.get_by_text("L4H2", exact=True).first).to_be_visible()

    page.get_by_role("link", name="Layers").click()
    expect(page.get_by_text("The lens over the text")).to_be_visible()
    page.get_by_role("radio", name="What if").click()
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_text("With L0H0 removed")).to_be_visible()

    page.get_by_role("link", name="Weights").click()
    expect(page.get_by_text("Nothing stands out in")).to_be_visible()
    page.get_by_role("link", name="Attention").click()
    expect(page.get_by_text("20 tokens written after the prompt")).to_be_visible()
    settled(page)
    assert page.get_by_test_id("stException").count() == 0

    page.get_by_role("link", name="Report").click()
    page.get_by_role("button", name="Build the report").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download the report").click()
    assert "Clearbox report: gemma3-mini-base" in download.value.path().read_text("utf-8")
