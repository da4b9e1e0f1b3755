"""The page of ``bonsai serve`` in a real browser: Chromium, by Playwright, where both are at hand.

`make test` has Playwright; a Chromium is that of the system (``apt-get install chromium``), the one that
BONSAI_CHROMIUM names, or that of ``playwright install chromium``. Without one, these tests are skipped.
"""

import csv
import json
import os
import re
import shutil
from urllib.parse import quote

import pytest

from bonsai_xmc import Fusion, TextBonsai
from helpers import text_bonsai

pytest.importorskip("uvicorn", reason="needs the extra serve")
from test_server import HTML, Server, make_model

playwright = pytest.importorskip(
    "playwright.sync_api", reason="no test of pages: pip install playwright, and a Chromium"
)

SCREENSHOTS = os.environ.get("BONSAI_SCREENSHOTS")  # a folder, to look at them


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as engine:
        path = os.environ.get("BONSAI_CHROMIUM") or shutil.which("chromium")
        try:
            browser = engine.chromium.launch(executable_path=path, args=["--no-sandbox"])
        except playwright.Error as error:
            pytest.skip(
                "no test of pages: there is no Chromium. apt-get install chromium, or set BONSAI_CHROMIUM "
                f"({str(error)[:60]})"
            )
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """Serve a model with names and fields, one of plain texts and one with trees; return texts and folder."""
    folder = tmp_path_factory.mktemp("page")
    data = make_model(folder / "themes.bonsai")
    make_model(
        folder / "trees.bonsai", classifiers="blend", blend_weight=0.4, branching_factor=4, word_ngrams=2
    )
    records = [{"title": text[:30], "abstract": text} for text in data.texts_train]
    labels = [[f"id:{label}" for label in row] for row in data.labels_train]
    fields = text_bonsai(fields=["title", "abstract"], min_df=1, n_jobs=1, threshold=0.05)
    fields.fit(records, labels)
    names = {label: label[3:].capitalize() for label in fields.classes_.tolist()[::2]}
    fields.name_labels(names).save(folder / "fields.bonsai")
    server = Server(*(folder / f"{name}.bonsai" for name in ("themes", "fields", "trees")))
    yield server, data.texts_test, folder
    assert server.stop() == 0


class Watched:
    """Open a page that must not log errors or load from other servers."""

    def __init__(self, browser, url, **options):
        self.context = browser.new_context(viewport={"width": 1100, "height": 900}, **options)
        self.page = self.context.new_page()
        self.url, self.faults, self.asked = url, [], []
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("console", lambda message: self.faults.append(f"{message.type}: {message.text}"))
        self.page.on("dialog", lambda dialog: (self.faults.append("a dialog"), dialog.dismiss()))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(url)

    def close(self):
        self.context.close()
        assert not self.faults
        assert all(url.startswith((self.url, "blob:")) for url in self.asked)


@pytest.fixture
def page(browser, served):
    watched = Watched(browser, f"http://127.0.0.1:{served[0].port}/")
    yield watched.page
    watched.close()


def look(page, name):
    if SCREENSHOTS:
        page.screenshot(path=os.path.join(SCREENSHOTS, f"{name}.png"), full_page=True)


def open_tab(page, name):
    page.get_by_role("tab", name=name).click()


def fits(page):
    return page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_labels_appear_while_typing(page, served):
    _, texts, folder = served
    playwright.expect(page.locator("#status")).to_have_text("Labels appear here while you type.")
    page.get_by_label("Text", exact=True).last.press_sequentially(texts[0][:80], delay=1)
    page.get_by_label("Text", exact=True).last.fill(texts[0])
    best = TextBonsai.load(folder / "themes.bonsai").suggest(texts[0], 10)
    items = page.locator("#results .label")
    playwright.expect(items.first.locator(".name")).to_have_text(best[0][0])
    playwright.expect(items).to_have_count(len(best))
    playwright.expect(items.first.locator(".score")).to_have_text(f"{best[0][1]:.3f}")
    playwright.expect(page.locator("#status")).to_contain_text(f"{len(best)} labels, best: {best[0][0]}")
    below = sum(score < 0.5 for _, score in best)
    assert page.locator("#results .below").count() == below
    assert page.locator("#results .line").count() == (below > 0)
    page.get_by_label("Labels", exact=True).first.fill("3")
    playwright.expect(items).to_have_count(3)
    look(page, "typed")
    page.locator("#boxes textarea").fill("")
    playwright.expect(items).to_have_count(0)


def test_text_and_labels_are_side_by_side_on_wide_screens(page, served):
    def places():
        return [page.locator(place).bounding_box() for place in ("#text", "#results")]

    page.set_viewport_size({"width": 1400, "height": 700})
    page.locator("#boxes textarea").fill(served[1][0])
    page.locator("#results .label").first.wait_for()
    text, labels = places()
    assert labels["x"] > text["x"] + text["width"] and labels["y"] < 250
    page.set_viewport_size({"width": 700, "height": 700})
    text, labels = places()
    assert labels["y"] > text["y"] + text["height"]


def test_each_field_has_a_box_and_nameless_labels_are_marked(page, served):
    _, texts, folder = served
    page.get_by_label("Model").select_option("fields")
    page.get_by_label("title").fill(texts[0][:30])
    page.get_by_label("abstract").fill(texts[0])
    model = TextBonsai.load(folder / "fields.bonsai")
    record = {"title": texts[0][:30], "abstract": texts[0]}
    best = model.suggest(record, 10)
    items = page.locator("#results .label")
    playwright.expect(items.first.locator(".key")).to_have_text(best[0][0])
    known = dict(zip(model.classes_.tolist(), model.label_names_, strict=True))
    shown = [known[label] if known[label] != label else "no name" for label, _ in best]
    assert items.locator(".name").all_inner_texts() == shown and len(set(shown)) > 2
    assert items.locator(".key").all_inner_texts() == [label for label, _ in best]
    page.get_by_role("button", name=re.compile("^Why ")).first.click()
    fields = page.locator("#results .why .text .key")
    playwright.expect(fields).to_have_text(["title", "abstract"])


def test_a_link_shares_text_and_model(page, browser, served):
    page.get_by_label("Model").select_option("fields")
    page.get_by_label("abstract").fill(f"{HTML} {served[1][0]}")
    page.get_by_label("Labels", exact=True).first.fill("4")
    page.get_by_role("button", name="Copy a link").click()
    playwright.expect(page.locator("#share-status")).to_contain_text("The link is")
    link = page.evaluate("location.href")
    assert quote("text.abstract") in link
    other = Watched(browser, link)
    playwright.expect(other.page.locator("#results .label")).to_have_count(4)
    assert other.page.get_by_label("Model").input_value() == "fields"
    assert other.page.get_by_label("abstract").input_value() == f"{HTML} {served[1][0]}"
    other.url = link.partition("#")[0]
    other.close()
    page.get_by_label("abstract").fill(20_000 * "ab ")
    page.get_by_role("button", name="Copy a link").click()
    playwright.expect(page.locator("#share-status")).to_contain_text("too long for a link")


def results_of(page):
    with page.expect_download() as download:
        page.get_by_role("link", name="Download the results").click()
    text = download.value.path().read_text(encoding="utf-8")
    assert text.startswith("\ufeff")  # by which spreadsheets know UTF-8
    return list(csv.DictReader(text.removeprefix("\ufeff").splitlines()))


def test_a_file_of_lines(page, served, tmp_path):
    _, texts, folder = served
    chosen = [*texts[:30], HTML, "tab\there"] * 4  # more than one request
    (tmp_path / "texts.txt").write_text("\n".join(chosen) + "\n", encoding="utf-8")
    open_tab(page, "Files")
    page.get_by_label("File", exact=True).set_input_files(tmp_path / "texts.txt")
    page.get_by_label("Labels per text").fill("2")
    page.get_by_role("button", name="Label the texts").click()
    playwright.expect(page.locator("#file-status")).to_have_text(f"{len(chosen)} texts done")
    rows = results_of(page)
    assert list(rows[0]) == ["row", "id", "rank", "label", "name", "score"]
    best = TextBonsai.load(folder / "themes.bonsai").suggest(chosen, 2)
    expected = [(str(i), label) for i, row in enumerate(best, 1) for label, score in row if score > 0]
    assert [(row["row"], row["label"]) for row in rows if row["label"]] == expected
    assert page.locator("#preview tbody tr").count() == 10


@pytest.mark.parametrize("kind", ["jsonl", "csv", "semicolons", "windows"])
def test_files_with_fields_are_read_in_each_encoding(page, served, tmp_path, kind):
    _, texts, folder = served
    records = [
        {"id": f"a{i}", "title": f'"{text[:20]}";, é', "abstract": text.replace(". ", ".\n")}
        for i, text in enumerate(texts[:12])
    ]
    path = tmp_path / ("documents.jsonl" if kind == "jsonl" else "documents.csv")
    with open(path, "w", encoding="cp1252" if kind == "windows" else "utf-8", newline="") as file:
        if kind == "jsonl":
            file.writelines(json.dumps(record) + "\n" for record in records)
        else:
            writer = csv.DictWriter(file, list(records[0]), delimiter=";" if kind == "semicolons" else ",")
            writer.writeheader()
            writer.writerows(records)
    page.get_by_label("Model").select_option("fields")
    open_tab(page, "Files")
    page.get_by_label("File", exact=True).set_input_files(path)
    assert page.get_by_label("Column for abstract").input_value() == "abstract"
    page.get_by_label("only those above the threshold").check()
    page.get_by_role("button", name="Label the texts").click()
    playwright.expect(page.locator("#file-status")).to_have_text("12 texts done")
    rows = results_of(page)
    model = TextBonsai.load(folder / "fields.bonsai")
    documents = [{name: record[name] for name in ("title", "abstract")} for record in records]
    expected = [
        (record["id"], label)
        for record, row in zip(records, model.suggest(documents, 10), strict=True)
        for label, score in row
        if score >= 0.05
    ]
    assert [(row["id"], row["label"]) for row in rows if row["label"]] == expected
    names = dict(zip(model.classes_.tolist(), model.label_names_, strict=True))
    for row in rows:
        assert row["name"] == ("" if names.get(row["label"]) == row["label"] else names.get(row["label"], ""))


def test_files_that_hold_nothing_or_nonsense(page, tmp_path):
    open_tab(page, "Files")
    for name, content, message in (
        ("empty.txt", "", "There is no text in the file."),
        ("broken.jsonl", '{"text": "a"}\n{', "line 2 is not JSON"),
        ("numbers.jsonl", "1\n", "row 1 is neither a text nor an object"),
    ):
        (tmp_path / name).write_text(content)
        page.get_by_label("File", exact=True).set_input_files(tmp_path / name)
        playwright.expect(page.locator("#file-status")).to_contain_text(message)
        playwright.expect(page.get_by_role("button", name="Label the texts")).to_be_disabled()


def test_all_labels_and_html_in_them(page):
    open_tab(page, "All labels")
    playwright.expect(page.locator("#all li")).to_have_count(20)
    page.get_by_role("button", name="Show more").click()
    playwright.expect(page.locator("#all li")).to_have_count(40)
    page.get_by_label("Search").fill("onerror")
    playwright.expect(page.locator("#all .name").first).to_have_text(HTML)
    assert page.locator("main img").count() == 0


def test_tabs_and_forms_by_keyboard(page, served):
    page.get_by_role("tab", name="Try").focus()
    page.keyboard.press("ArrowRight")
    playwright.expect(page.locator("#file")).to_be_visible()
    page.keyboard.press("End")
    playwright.expect(page.locator("#search")).to_be_visible()
    page.keyboard.press("Home")
    seen = []
    for _ in range(3):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.id"))
    assert seen == ["box-0", "k", "share"]
    for name in page.evaluate("[...document.querySelectorAll('input, select, textarea')].map(x => x.name)"):
        assert name is not None


def test_no_heading_and_no_column_is_empty(page, served):
    ask_for(page, served[1][0])
    page.get_by_role("button", name=re.compile("^Why ")).first.click()
    page.locator("#results .why mark").first.wait_for()
    headings = page.locator("h1, h2, h3, h4, th, summary").all_text_contents()
    assert len(headings) > 8 and all(text.strip() and text.strip() != "…" for text in headings)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_wide_and_narrow(page, served, scheme):
    page.emulate_media(color_scheme=scheme)
    ask_for(page, served[1][2])
    page.get_by_role("button", name=re.compile("^Why ")).first.click()
    page.locator("#results .why mark").first.wait_for()
    page.locator("#results .why summary").first.click()
    colours = page.evaluate(
        "(() => { const s = getComputedStyle(document.body); return [s.backgroundColor, s.color]; })()"
    )
    back, fore = (sum(map(int, colour.strip("rgb()").split(","))) / 3 for colour in colours)
    assert abs(back - fore) > 180 and (back > fore) == (scheme == "light")
    for width in (1400, 800, 400, 320):
        page.set_viewport_size({"width": width, "height": 800})
        for tab in ("Try", "Files", "All labels", "Tree"):
            open_tab(page, tab)
            assert fits(page), f"{tab} at {width} scrolls to the side"
        open_tab(page, "Try")
        look(page, f"{scheme}-{width}")


def test_the_key_is_asked_for(browser, served, tmp_path):
    (tmp_path / "key").write_text("secret")
    server = Server(served[2] / "themes.bonsai", "--api-key-file", tmp_path / "key")
    try:
        watched = Watched(browser, f"http://127.0.0.1:{server.port}/")
        page = watched.page
        playwright.expect(page.locator("#status")).to_contain_text("an API key is needed")
        for key, message in (("wrong", "the API key is wrong"), ("secret", "Labels appear here")):
            page.get_by_label("API key").fill(key)
            page.get_by_label("API key").press("Tab")
            playwright.expect(page.locator("#status")).to_contain_text(message)
        page.locator("#boxes textarea").fill(served[1][0])
        page.locator("#results .label").first.wait_for()
        assert {fault.split(" (")[0][-30:] for fault in watched.faults} == {"responded with a status of 401"}
        watched.faults.clear()
        watched.close()
    finally:
        assert server.stop() == 0


# --- why, why not, and the tree ---


@pytest.fixture(scope="module")
def trees(served):
    return TextBonsai.load(served[2] / "trees.bonsai")


def ask_for(page, text):
    """Return the labels of a text by the model that has trees."""
    page.get_by_label("Model").select_option("trees")
    page.locator("#boxes textarea").fill(text)
    page.locator("#results .label").first.wait_for()


def test_why_shows_the_explanation_of_a_label(page, served, trees):
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
    playwright.expect(panel.get_by_text("From margins to the score")).to_be_hidden()
    panel.get_by_text("How the score is computed").click()
    paths = panel.locator("details section")
    assert paths.count() == len(why.paths) == 3
    assert why.paths[0].decisions[-1].contributions[0].name in paths.first.inner_text()
    steps = panel.locator("table").last.locator("tbody tr")
    assert steps.count() == len(why.steps)
    assert float(steps.last.locator("td").last.inner_text()) == pytest.approx(why.score, rel=1e-3)
    look(page, "why")
    button.click()
    playwright.expect(panel).to_be_hidden()


def test_explanations_are_reachable_by_keyboard(page, served, trees):
    ask_for(page, served[1][1])
    page.locator("#share").focus()
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


def test_why_shows_the_share_of_each_member(browser, served):
    folder, text = served[2], served[1][0]
    members = [TextBonsai.load(folder / f"{name}.bonsai") for name in ("themes", "trees")]
    texts = served[1][:20]
    labels = [[label] for ((label, _),) in members[0].suggest(texts, 1)]
    model = Fusion.of(dict(zip("ab", members, strict=True)), texts, labels, link="score", weights=[1, 1])
    model.save(folder / "both.bonsai")
    server = Server(folder / "both.bonsai")
    watched = Watched(browser, f"http://127.0.0.1:{server.port}/")
    label = model.suggest(text, 1)[0][0]
    watched.page.locator("#boxes textarea").fill(text)
    watched.page.get_by_role("button", name=f"Why {label}?").click()
    panel = watched.page.get_by_role("region", name=f"Why {label}", exact=True)
    why = model.explain(text, label)
    shares = [f"{one.name}: {100 * one.share:.0f} % of the score" for one in why.members]
    playwright.expect(panel.locator("h3").first).to_be_visible()
    assert set(shares) <= set(panel.locator("h3").all_inner_texts())
    watched.close()
    assert server.stop() == 0


def test_why_not_shows_rank_and_reason(page, served, trees):
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
    page.locator("#boxes textarea").fill(served[1][3])  # the answer is not about this text
    playwright.expect(answer.locator("p")).to_have_count(0)
    page.locator("#boxes textarea").fill("")
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


def test_why_not_of_an_unknown_label(browser, served):
    watched = Watched(browser, f"http://127.0.0.1:{served[0].port}/")
    page = watched.page
    ask_for(page, served[1][0])
    page.get_by_label("Label", exact=True).fill("no such label")
    page.get_by_role("button", name="Why not?").click()
    playwright.expect(page.locator("#why-not-status")).to_contain_text("the model has no label")
    assert len(watched.faults) == 1 and "status of 404" in watched.faults.pop()
    watched.close()


def test_the_tree_opens_down_to_its_labels(page, served, trees):
    playwright.expect(page.get_by_role("tab", name="Tree")).to_be_hidden()
    page.get_by_label("Model").select_option("trees")
    open_tab(page, "Tree")
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
    page.get_by_label("Tree number").select_option("1")
    playwright.expect(clusters).to_have_count(len(trees.trees_[1].nodes[0].children))
    page.get_by_label("Model").select_option("themes")
    playwright.expect(page.locator("#tree-part")).to_be_hidden()
    playwright.expect(page.locator("#text")).to_be_visible()
