"""The page of ``bonsai serve`` in a real browser: Chromium, by Playwright, where both are at hand.

pip install playwright; then `playwright install chromium`, or name a Chromium in BONSAI_CHROMIUM.
"""

import os
import shutil

import pytest

from bonsai_xmc import TextBonsai
from test_server import HTML, Server, make_model

playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")

SCREENSHOTS = os.environ.get("BONSAI_SCREENSHOTS")  # a folder, to look at them


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as engine:
        path = os.environ.get("BONSAI_CHROMIUM") or shutil.which("chromium")
        try:
            browser = engine.chromium.launch(executable_path=path)
        except playwright.Error as error:
            pytest.skip(
                f"no Chromium: set BONSAI_CHROMIUM or run `playwright install chromium` ({str(error)[:60]})"
            )
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    data = make_model(folder / "themes.bonsai")
    make_model(folder / "other.bonsai", seed=3)
    server = Server(folder / "themes.bonsai", folder / "other.bonsai")
    yield server, data.texts_test, folder
    assert server.stop() == 0


@pytest.fixture
def page(browser, served):
    """The page, opened; nothing may go wrong in it, and nothing may be asked of other servers."""
    context = browser.new_context(viewport={"width": 1100, "height": 900})
    page = context.new_page()
    faults, asked = [], []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    page.on("dialog", lambda dialog: (faults.append("a dialog"), dialog.dismiss()))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"http://127.0.0.1:{served[0].port}/")
    yield page
    assert not faults
    assert all(url.startswith((f"http://127.0.0.1:{served[0].port}/", "blob:")) for url in asked)
    context.close()


def look(page, name):
    if SCREENSHOTS:
        page.screenshot(path=os.path.join(SCREENSHOTS, f"{name}.png"), full_page=True)


def test_labels_appear_while_typing(page, served):
    _, texts, folder = served
    page.get_by_label("Text to label").press_sequentially(texts[0][:80], delay=1)
    page.get_by_label("Text to label").fill(texts[0])
    best = TextBonsai.load(folder / "themes.bonsai").suggest(texts[0], 10)
    items = page.locator("#results li")
    playwright.expect(items.first.locator(".name")).to_have_text(best[0][0])
    playwright.expect(items).to_have_count(len(best))
    playwright.expect(items.first.locator(".score")).to_have_text(f"{best[0][1]:.3f}")
    playwright.expect(page.get_by_role("status").first).to_contain_text(
        f"{len(best)} labels, best: {best[0][0]}"
    )
    page.get_by_label("Labels", exact=True).first.fill("3")
    playwright.expect(items).to_have_count(3)
    look(page, "typed")
    page.get_by_label("Text to label").fill("")
    playwright.expect(items).to_have_count(0)


def test_another_model(page, served):
    _, texts, folder = served
    page.get_by_label("Model").select_option("other")
    page.get_by_label("Text to label").fill(texts[1])
    best = TextBonsai.load(folder / "other.bonsai").suggest(texts[1], 1)[0][0]
    playwright.expect(page.locator("#results .name").first).to_have_text(best)


def test_labels_with_html_are_text(page):
    page.get_by_label("Search").fill("onerror")
    playwright.expect(page.locator("#all li span").first).to_have_text(HTML)
    assert page.locator("#all img").count() == 0
    page.get_by_label("Text to label").fill(HTML)
    page.wait_for_timeout(400)
    assert page.locator("main img").count() == 0


def test_a_file_of_texts(page, served, tmp_path):
    _, texts, folder = served
    chosen = [*texts[:30], HTML, "tab\there"] * 4  # more than one request
    (tmp_path / "texts.txt").write_text("\n".join(chosen) + "\n", encoding="utf-8")
    page.get_by_label("File", exact=True).set_input_files(tmp_path / "texts.txt")
    playwright.expect(page.locator("#file-status")).to_have_text(f"{len(chosen)} texts are done")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download the results").click()
    lines = download.value.path().read_text(encoding="utf-8").splitlines()
    assert len(lines) == 1 + len(chosen)
    best = TextBonsai.load(folder / "themes.bonsai").suggest(texts[0], 1)[0][0]
    assert lines[1].split("\t")[:2] == [" ".join(texts[0].split()), best]
    assert lines[31].startswith(HTML)
    assert lines[32].startswith("tab here")


def test_all_labels(page):
    playwright.expect(page.locator("#all li")).to_have_count(20)
    page.get_by_role("button", name="Show more").click()
    playwright.expect(page.locator("#all li")).to_have_count(40)


def test_keyboard(page, served):
    """Everything is reached by the tabulator, in the order of the page."""
    playwright.expect(page.get_by_role("button", name="Show more")).to_be_visible()
    page.get_by_label("Text to label").focus()
    seen = []
    for _ in range(6):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.id"))
    assert seen[:4] == ["k", "file", "search", "more"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1100, 360])
def test_light_and_dark_wide_and_narrow(page, served, scheme, width):
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 800})
    page.get_by_label("Text to label").fill(served[1][2])
    page.locator("#results li").first.wait_for()
    colours = page.evaluate(
        "(() => { const s = getComputedStyle(document.body); return [s.backgroundColor, s.color]; })()"
    )
    back, fore = (sum(map(int, colour.strip("rgb()").split(","))) / 3 for colour in colours)
    assert abs(back - fore) > 180 and (back > fore) == (scheme == "light")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "no scrolling to the side"
    look(page, f"{scheme}-{width}")


def test_the_key_is_asked_for(browser, served, tmp_path):
    (tmp_path / "key").write_text("secret")
    server = Server(served[2] / "themes.bonsai", "--api-key-file", tmp_path / "key")
    try:
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{server.port}/")
        page.get_by_label("API key").fill("secret")
        page.get_by_label("API key").press("Tab")
        page.get_by_label("Text to label").fill(served[1][0])
        page.locator("#results li").first.wait_for()
        page.close()
    finally:
        assert server.stop() == 0
