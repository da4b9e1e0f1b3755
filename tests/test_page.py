"""The page of ``bonsai serve`` in a real browser: Chromium, by Playwright, where both are at hand.

pip install playwright; then `playwright install chromium`, or name a Chromium in BONSAI_CHROMIUM.
"""

import os
import re
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
    make_model(
        folder / "trees.bonsai", classifiers="blend", blend_weight=0.4, branching_factor=4, word_ngrams=2
    )
    server = Server(*(folder / f"{name}.bonsai" for name in ("themes", "other", "trees")))
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


# --- why, why not, and the tree ---


@pytest.fixture(scope="module")
def trees(served):
    return TextBonsai.load(served[2] / "trees.bonsai")


def ask_for(page, text):
    """The labels of a text by the model that has trees."""
    page.get_by_label("Model").select_option("trees")
    page.get_by_label("Text to label").fill(text)
    page.locator("#results li").first.wait_for()


def test_why_a_label(page, served, trees):
    text = served[1][0]
    ask_for(page, text)
    label, _ = trees.suggest(text, 1)[0]
    why = trees.explain(text, label)
    button = page.get_by_role("button", name=f"Why {label}?")
    assert button.get_attribute("aria-expanded") == "false"
    button.click()
    panel = page.get_by_role("region", name=f"Why {label}", exact=True)
    playwright.expect(panel).to_be_visible()
    playwright.expect(page.locator("#status")).to_contain_text(f"Reasons for {label}")
    assert button.get_attribute("aria-expanded") == "true"
    assert panel.locator(".text").inner_text() == text
    marked = {mark.lower() for mark in panel.locator("mark.up").all_inner_texts()}
    assert any(why.effects[0].name.split()[0] in mark for mark in marked)
    first = panel.locator("table").first.locator("tbody tr").first.locator("td")
    assert first.nth(2).inner_text() == why.effects[0].name
    assert first.nth(0).inner_text() == f"{why.effects[0].effect:+.3f}"
    paths = panel.locator("details")
    assert paths.count() == len(why.paths) == 3
    paths.first.locator("summary").click()
    assert why.paths[0].decisions[-1].contributions[0].name in paths.first.inner_text()
    steps = panel.locator("table").last.locator("tbody tr")
    assert steps.count() == len(why.steps)
    assert float(steps.last.locator("td").last.inner_text()) == pytest.approx(why.score, rel=1e-3)
    look(page, "why")
    button.click()
    playwright.expect(panel).to_be_hidden()


def test_by_keyboard(page, served, trees):
    ask_for(page, served[1][1])
    page.get_by_label("Text to label").focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Why?"
    page.keyboard.press("Enter")
    playwright.expect(page.locator("#results .why mark").first).to_be_visible()
    page.get_by_label("Label", exact=True).focus()
    label = trees.suggest(served[1][1], 8)[-1][0]
    page.keyboard.type(label)
    page.keyboard.press("Enter")
    rank = trees.why_not(served[1][1], label).rank
    playwright.expect(page.locator("#why-not-status")).to_contain_text(f"is number {rank} of")


def test_why_not_another(page, served, trees):
    text = served[1][2]
    ask_for(page, text)
    label = trees.suggest(text, 25)[-1][0]
    expected = trees.why_not(text, label)
    page.get_by_label("Label", exact=True).fill(label)
    playwright.expect(page.locator("#why-not-labels option").first).to_be_attached()
    page.get_by_role("button", name="Why not?").click()
    answer = page.locator("#why-not-answer")
    playwright.expect(answer.locator("p").first).to_have_text(expected.sentences[0])
    headings = answer.get_by_role("heading", name=re.compile("^Ahead")).all_inner_texts()
    assert [h.split(": ")[1].split(", number")[0] for h in headings] == [a.name for a in expected.ahead]
    row = answer.locator("table").first.locator("tbody tr").first.locator("td").all_inner_texts()
    first = expected.ahead[0].differences[0]
    assert row[0] == first.name and row[3] == f"{first.difference:+.3f}".replace("-", "−")
    look(page, "why-not")
    page.get_by_label("Text to label").fill(served[1][3])  # of another text nothing is known
    playwright.expect(answer.locator("p")).to_have_count(0)
    page.get_by_label("Text to label").fill("")
    playwright.expect(page.locator("#why-not-part")).to_be_hidden()


def test_html_in_texts_and_labels(page, served):
    text = f"{HTML} {served[1][0]} 🌳"
    ask_for(page, text)
    page.get_by_role("button", name=re.compile("^Why ")).first.click()
    playwright.expect(page.locator("#results .why .text").first).to_have_text(text)
    page.get_by_label("Label", exact=True).fill(HTML)
    page.get_by_role("button", name="Why not?").click()
    playwright.expect(page.locator("#why-not-status")).to_contain_text(f"{HTML} is number")
    assert page.locator("main img").count() == 0


def test_why_not_a_label_that_there_is_not(browser, served):
    page = browser.new_page()  # which complains about the answer 404
    page.goto(f"http://127.0.0.1:{served[0].port}/")
    ask_for(page, served[1][0])
    page.get_by_label("Label", exact=True).fill("no such label")
    page.get_by_role("button", name="Why not?").click()
    playwright.expect(page.locator("#why-not-status")).to_contain_text("the model has no label")
    page.close()


def test_the_tree(page, served, trees):
    playwright.expect(page.locator("#tree-part")).to_be_hidden()
    page.get_by_label("Model").select_option("trees")
    root = page.locator("#tree-root")
    clusters = root.locator("> li.cluster > button")
    playwright.expect(clusters.first).to_be_visible()
    tree = trees.trees_[0]
    assert clusters.count() == len(tree.nodes[0].children)
    opened = 0
    while root.locator("li.leaf:visible").count() == 0:
        root.locator('button.open[aria-expanded="false"]:visible').first.click()
        page.wait_for_timeout(150)
        opened += 1
        assert opened < 6
    name = root.locator("li.leaf:visible").first.inner_text()
    assert name in trees.classes_
    look(page, "tree")
    clusters.first.click()
    playwright.expect(root.locator("li.leaf:visible")).to_have_count(0)
    page.get_by_label("Number").select_option("1")
    playwright.expect(clusters).to_have_count(len(trees.trees_[1].nodes[0].children))
    page.get_by_label("Model").select_option("other")
    playwright.expect(page.locator("#tree-part")).to_be_hidden()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_narrow(page, served, scheme):
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 360, "height": 800})
    ask_for(page, served[1][0])
    page.get_by_role("button", name=re.compile("^Why ")).first.click()
    page.locator("#results .why mark").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "no scrolling to the side"
    look(page, f"why-{scheme}-360")
