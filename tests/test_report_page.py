"""The page of `metrics.Report` in a real browser; see test_page.py for what that needs."""

import pytest

from bonsai_xmc import datasets, metrics
from bonsai_xmc._explain import html
from helpers import text_bonsai
from test_page import browser, look, playwright  # noqa: F401
from test_report import NASTY, two  # noqa: F401


@pytest.fixture(scope="module")
def path(generated, two, tmp_path_factory):  # noqa: F811
    path = tmp_path_factory.mktemp("page") / "report.html"
    texts = [f"{NASTY} a long text without blanks: {'x' * 300}" for _ in range(150)]
    names = [f"{NASTY} {'a label with a long name ' * (i % 9)}" for i in range(60)]
    by = {"half": ["first" if i < 75 else "second" for i in range(150)]}
    metrics.Report(
        generated.Y_test,
        two,
        generated.Y_train,
        label_names=names,
        texts=texts,
        by=by,
        title="Two models",
        about={"Data": f"{NASTY} {300 * 'y'}"},
        notes=[f"a note {NASTY}"],
        coverage=True,
    ).save(path)
    return path


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (400, "light"), (400, "dark")])
def test_it_fits_and_loads_nothing_else(browser, path, width, scheme):  # noqa: F811
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page = context.new_page()
    faults, asked = [], []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda message: faults.append(message.text))
    page.on("dialog", lambda dialog: (faults.append("a dialog"), dialog.dismiss()))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())
    look(page, f"report-{width}-{scheme}")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert asked == [path.as_uri()] and not faults
    back = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert back == ("rgb(22, 24, 26)" if scheme == "dark" else "rgb(255, 255, 255)")
    context.close()


def test_explanations_fit_in_light_and_dark(browser, tmp_path):  # noqa: F811
    data = datasets.make_texts(200, n_test=5, random_state=0)
    model = text_bonsai(
        min_df=1, n_jobs=1, threshold=0.5, classifiers="blend", blend_weight=0.4, branching_factor=4
    )
    model.fit(data.texts_train, [[*row, NASTY] for row in data.labels_train])
    text = f"{data.texts_test[0]} {'x' * 300}"
    (label, _), *_, (last, _) = model.suggest(text, 20)
    fragments = [model.explain(text, label).to_html(), model.why_not(text, last).to_html()]
    path = tmp_path / "why.html"
    path.write_text(html.page(f"why {NASTY}", fragments, {"Data": 200 * "z"}), encoding="utf-8")
    for width, scheme in ((1200, "light"), (400, "dark")):
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
        page = context.new_page()
        page.goto(path.as_uri())
        page.locator("summary").first.click()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert all(text.strip() for text in page.locator("h1, h3, h4, th, dt, summary").all_text_contents())
        fore = page.evaluate("getComputedStyle(document.querySelector('h3')).color")
        assert (fore == "rgb(255, 255, 255)") == (scheme == "dark")
        look(page, f"why-{width}-{scheme}")
        context.close()


def test_with_the_keyboard_and_a_screen_reader(browser, path):  # noqa: F811
    page = browser.new_page()
    page.goto(path.as_uri())
    expect = playwright.expect
    expect(page.get_by_role("heading", level=1)).to_have_text("Two models")
    expect(page.get_by_role("navigation", name="Sections").get_by_role("link")).to_have_count(9)
    expect(page.get_by_role("img", name="P@k", exact=True)).to_be_visible()
    for svg in page.locator("svg").all():
        assert svg.locator("title").first.text_content() and svg.locator("desc").first.text_content()
    expect(page.get_by_role("list", name="Warnings").get_by_role("listitem")).to_have_text(
        [f"a note {NASTY}"]
    )
    assert "bonsai-xmc" in page.locator("#about + dl").inner_text()
    assert all(text.strip() for text in page.locator("h1, h2, th, dt, summary").all_text_contents())
    details = page.locator("#missed ~ .wide details").first
    details.locator("summary").focus()
    page.keyboard.press("Enter")
    expect(details.get_by_text("Predicted:")).to_be_visible()
    expect(details.get_by_text("<script>").first).to_be_visible()
    page.close()
