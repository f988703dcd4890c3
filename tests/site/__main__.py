"""Walk all pages of build/site in Chromium, 390 pixels wide, light and dark; list what is wrong.

Needs a Chromium of the system and the extra afflux[browser].
"""

import os
import shutil
import sys
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from playwright.sync_api import Browser, Page, sync_playwright

from docs.generate.source_tree import ROOT

SITE = ROOT / "build" / "site"
WIDTH = 390
BROWSERS = ("chromium", "chromium-browser", "google-chrome")

# What is read from a page at once. A picture's card is the nearest background that is not clear.
READ = """() => {
  const card = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const found = getComputedStyle(each).backgroundColor.match(/[\\d.]+/g).map(Number);
      if (found.length < 4 || found[3] > 0) return found.slice(0, 3);
    }
    return [255, 255, 255];
  };
  const article = document.querySelector("article") ?? document.body;
  const prose = article.cloneNode(true);
  prose.querySelectorAll("pre, code, script, style").forEach((each) => each.remove());
  return {
    width: document.scrollingElement.scrollWidth,
    ids: [...document.querySelectorAll("[id]")].map((each) => each.id),
    links: [...document.querySelectorAll("a[href]")].map((each) => each.href),
    raw: prose.textContent.match(/\\|-{3}.*|```.*|\\]\\([^)]*\\)|^ *\\| .*/m)?.[0] ?? "",
    pictures: [...document.images].map((each) => ({
      source: each.src, loaded: each.complete && each.naturalWidth > 0, card: card(each),
    })),
  };
}"""


class Seen(NamedTuple):
    """A page as the browser shows it."""

    ids: set[str]
    links: list[str]
    pictures: int
    faults: list[str]


def look(page: Page, path: Path, dark: bool) -> Seen:
    """Open one page and return what is on it."""
    page.goto(path.as_uri())
    found = page.evaluate(READ)
    faults = []
    if found["width"] > WIDTH:
        faults.append(f"is {found['width']} pixels wide")
    if found["raw"]:
        faults.append(f"shows Markdown as text: {found['raw'][:60]!r}")
    for picture in found["pictures"]:
        name = Path(urlsplit(picture["source"]).path).name
        if not picture["loaded"]:
            faults.append(f"{name} does not load")
        # Plots have dark lines and letters.
        if dark and min(picture["card"]) < 200:
            faults.append(f"{name} lies on {picture['card']}, too dark for its letters")
    return Seen(set(found["ids"]), found["links"], len(found["pictures"]), faults)


def broken(pages: dict[Path, Seen]) -> dict[Path, list[str]]:
    """Return for each page the links within the site that lead nowhere."""
    faults: dict[Path, list[str]] = {}
    for path, seen in pages.items():
        for link in sorted({*seen.links}):
            parts = urlsplit(link)
            if parts.scheme != "file":
                continue
            target = Path(unquote(parts.path))
            target = target / "index.html" if target.is_dir() else target
            anchor = unquote(parts.fragment)
            if not target.is_file():
                faults.setdefault(path, []).append(f"links to {target}, which is not there")
            elif anchor and target in pages and anchor not in pages[target].ids:
                faults.setdefault(path, []).append(f"links to {target.name}#{anchor}: no such id")
    return faults


def walk(browser: Browser, dark: bool) -> tuple[dict[Path, Seen], list[str]]:
    """Return all pages, and the addresses elsewhere from which they fetch something."""
    elsewhere: list[str] = []
    context = browser.new_context(
        viewport={"width": WIDTH, "height": 844},
        color_scheme="dark" if dark else "light",
        offline=True,
    )
    page = context.new_page()
    page.on(
        "request",
        lambda request: (
            None
            if request.url.startswith(("file:", "data:", "blob:"))
            else elsewhere.append(request.url)
        ),
    )
    paths = [path for path in sorted(SITE.rglob("*.html")) if path.name != "404.html"]
    pages = {path: look(page, path, dark) for path in paths}
    context.close()
    return pages, elsewhere


def main() -> int:
    """Return 1 if anything is wrong."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        print(f"site-check: none of {', '.join(BROWSERS)} is installed", file=sys.stderr)
        return 2
    lines = []
    with sync_playwright() as playwright:
        # Chromium's sandbox does not start as root, as in containers.
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=program, args=options)
        for dark in (False, True):
            pages, elsewhere = walk(browser, dark)
            theme = "dark" if dark else "light"
            faults = broken(pages)
            for path, seen in pages.items():
                for fault in [*seen.faults, *faults.get(path, [])]:
                    lines.append(f"{path.relative_to(SITE)}, {theme}: {fault}")
            lines += [f"fetched from elsewhere: {url}" for url in sorted({*elsewhere})]
        browser.close()
    print("\n".join(lines), end="\n" if lines else "")
    links = sum(len(seen.links) for seen in pages.values())
    pictures = sum(seen.pictures for seen in pages.values())
    print(f"{len(pages)} pages, {links} links, {pictures} pictures: {len(lines)} faults")
    return 1 if lines or not pages else 0


if __name__ == "__main__":
    sys.exit(main())
