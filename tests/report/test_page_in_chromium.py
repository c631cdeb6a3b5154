"""The page in a real Chromium: nothing is cut off, and axe-core finds no barrier.

Needs the Debian packages chromium and chromium-driver, selenium, and the file axe.min.js of npm's
axe-core where $WRI_AXE says or in .venv; `.ci/run` fetches them.
"""

import os
import shutil
from pathlib import Path

import pytest
from example_page import COMMAND, make_page

from wri.report.page import write_page

pytestmark = pytest.mark.slow  # a browser starts
AXE = Path(os.environ.get("WRI_AXE", Path(__file__).parents[2] / ".venv" / "axe.min.js"))
RUN_AXE = """
    const done = arguments[arguments.length - 1];
    const page = {exclude: [['.card > svg > g']]};  // drawings: no text of the page
    axe.run(page, {resultTypes: ['violations', 'incomplete']}).then(done, e => done(String(e)));
"""
FLAT = """
    const sheet = document.createElement('style');  // axe computes no contrast on gradients
    sheet.textContent = '.scroll { background: var(--behind) !important; }';
    document.head.append(sheet);
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    names = ("chromium", "chromium-browser", "google-chrome")
    binary = next(filter(None, map(shutil.which, names)), None)
    driver = shutil.which("chromedriver")
    if not binary or not driver:
        pytest.skip("chromium and chromedriver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    path = write_page(make_page(), tmp_path_factory.mktemp("page") / "page.html")
    chromium = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        chromium.get(path.as_uri())
        yield chromium
    finally:
        chromium.quit()


def look(browser, width, scheme="light", media=""):
    """Show the page on a screen of this width, or on paper."""
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"media": media, "features": [{"name": "prefers-color-scheme", "value": scheme}]},
    )
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def test_the_console_is_empty(browser):
    assert browser.get_log("browser") == []


@pytest.mark.parametrize("width", [320, 375, 768, 1280])
def test_nothing_scrolls_sideways_but_boxes(browser, width):
    look(browser, width)
    root = "document.documentElement"
    assert browser.execute_script(f"return {root}.scrollWidth <= {root}.clientWidth")
    boxes = "return [...document.querySelectorAll('.scroll')].filter(e => {}).length"
    inside = browser.execute_script(boxes.format("e.scrollWidth > e.clientWidth"))
    assert inside > 0 if width < 500 else inside == 0  # tables and figures fit on larger screens


def test_figures_have_names_for_screen_readers(browser):
    from selenium.webdriver.common.by import By

    figures = browser.find_elements(By.CSS_SELECTOR, "figure svg")
    assert len(figures) == 3
    assert [each.aria_role for each in figures] == ["image"] * 3
    assert all(each.accessible_name for each in figures)


def test_boxes_scroll_by_the_keyboard(browser):
    from selenium.webdriver.common.keys import Keys

    look(browser, 375)
    box = browser.execute_script("return document.querySelector('figure .scroll')")
    box.send_keys(Keys.END)
    for _ in range(3):
        box.send_keys(Keys.ARROW_RIGHT)
    moved = "const done = arguments[1]; setTimeout(() => done(arguments[0].scrollLeft), 300)"
    assert browser.execute_async_script(moved, box) > 0


def test_one_click_selects_the_command(browser):
    from selenium.webdriver.common.by import By

    look(browser, 375)
    browser.find_element(By.CSS_SELECTOR, ".command").click()
    selected = browser.execute_script("return getSelection().toString()")
    assert selected.strip() == COMMAND


def test_figures_fit_on_paper_in_light_colours(browser):
    look(browser, 700, "dark", "print")
    widths = browser.execute_script(
        "return [...document.querySelectorAll('figure svg')].map(e => e.clientWidth)"
    )
    assert max(widths) <= 700
    ground = "return getComputedStyle(document.body).backgroundColor"
    assert browser.execute_script(ground) == "rgb(255, 255, 255)"
    look(browser, 1280)


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (375, "dark")])
def test_axe_finds_no_barriers(browser, width, scheme):
    if not AXE.exists():
        pytest.skip(f"there is no {AXE}; .ci/run fetches it from npm, or name one by WRI_AXE")
    look(browser, width, scheme)
    browser.execute_script(AXE.read_text() + FLAT)
    found = browser.execute_async_script(RUN_AXE)
    assert not isinstance(found, str), found
    for kind in ("violations", "incomplete"):
        assert [(each["id"], each["nodes"][0]["html"]) for each in found[kind]] == []
    contrast = [each["nodes"] for each in found["passes"] if each["id"] == "color-contrast"]
    assert contrast  # was decided
