"""Tests a web app that runs in a container with a real browser on this machine, and takes a picture."""
import os

from berth import Sandbox
from playwright.sync_api import expect, sync_playwright

PAGE = "<h1>Counter</h1><button onclick=\"n.textContent = +n.textContent + 1\">Add</button> <b id=n>0</b>"

with Sandbox.create() as sandbox, sync_playwright() as playwright:
    sandbox.files.write("site/index.html", PAGE)
    server = sandbox.run("python3 -u -m http.server 8000 --directory site", background=True)
    next(iter(server))  # its first words say that it listens

    # CHROMIUM is the path of a browser; without it, Playwright takes the one of `playwright install chromium`.
    page = playwright.chromium.launch(executable_path=os.environ.get("CHROMIUM")).new_page()
    page.goto(sandbox.ports.url(8000))
    page.get_by_role("button", name="Add").click(click_count=2)
    expect(page.locator("#n")).to_have_text("2")
    page.screenshot(path="page.png")
print("passed; the page is in page.png")
