#!/usr/bin/python3
"""The page of `jobctl plan --gpu all -o html` in headless Chromium: its headings sort the table by mouse and keyboard, the names in its
picture do not cover one another, it fits the window in both colour schemes, and nothing reaches the console or the network."""

import os
import pathlib
import subprocess
import tempfile
import types
import unittest

import harness
import web_page_test

JOB = os.path.join(harness.SOURCE, "configs", "jobs", "qwen2.5-1.5b-bf16.yaml")


class PlanPage(web_page_test.Page, unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="hearth-test-", ignore_cleanup_errors=True)
        self.addCleanup(folder.cleanup)
        self.cluster = types.SimpleNamespace(dir=folder.name)
        super().setUp()

    def open_plan(self, *words):
        run = subprocess.run([harness.program("jobctl"), "plan", JOB, "--gpu", "all", "-o", "html", *words], capture_output=True,
                             text=True, env={**os.environ, "HEARTH_HOME": self.cluster.dir})
        self.assertEqual(run.returncode, 0, run.stderr)
        path = pathlib.Path(self.cluster.dir, "plan.html")
        path.write_text(run.stdout, encoding="utf-8")
        self.browser.get(path.as_uri())

    def column(self, title):
        """[the cell's text, its number or None] from top to bottom."""
        return self.script("(n => [...document.querySelector('table.sortable').tBodies[0].rows].map(r => [r.cells[n].textContent, "
                           "'number' in r.cells[n].dataset ? +r.cells[n].dataset.number : null]))"
                           "([...document.querySelectorAll('th')].findIndex(h => h.textContent === arguments[0]))", title)

    def heading(self, title):
        return self.script("[...document.querySelectorAll('th button')].find(b => b.textContent === arguments[0])", title)

    def sorted_by(self):
        return self.script("[...document.querySelectorAll('th[aria-sort]')].map(h => [h.textContent, h.getAttribute('aria-sort')])")

    def test_headings_sort_the_table(self):
        self.open_plan("--price-hour", "2")
        self.assertEqual(self.sorted_by(), [])
        gpus = sorted(text for text, _ in self.column("GPU"))
        for title in ("TOK/S", "TIME", "GB", "OF", "RENT", "BOUGHT", "VERDICT"):
            with self.subTest(title=title):
                for order in ("ascending", "descending"):
                    self.heading(title).click()
                    self.assertEqual(self.sorted_by(), [[title, order]])
                    cells = self.column(title)
                    known = [number for _, number in cells if number is not None]
                    self.assertGreater(len(set(known)), 1)
                    self.assertEqual([number for _, number in cells], sorted(known, reverse=order == "descending") +
                                     [None] * (len(cells) - len(known)), "numbers, what is not known last")
                    self.assertEqual(sorted(text for text, _ in self.column("GPU")), gpus, "whole rows move")
        self.assertIn("-", [text for text, _ in self.column("BOUGHT")], "a price that nobody has named")
        self.heading("GPU").click()
        names = [text for text, _ in self.column("GPU")]
        self.assertLess(names.index("RTX 3090"), names.index("RTX 5090"))
        self.assertLess(names.index("A100 40GB"), names.index("H100 SXM"))
        self.assert_quiet_console()

    def test_the_keyboard_sorts_too(self):
        self.open_plan("--price-hour", "2")
        self.script("document.activeElement.blur()")
        for _ in range(30):
            self.browser.switch_to.active_element.send_keys("\ue004")  # Tab
            if self.browser.switch_to.active_element.text == "TOK/S":
                break
        for order in ("ascending", "descending"):
            self.browser.switch_to.active_element.send_keys("\ue007")  # Enter
            self.assertEqual(self.sorted_by(), [["TOK/S", order]])
        self.assertEqual(self.browser.switch_to.active_element.text.split()[0], "TOK/S", "the heading keeps the focus")

    def test_the_picture_is_read_in_both_colour_schemes(self):
        for words in (("--price-hour", "2"), ("--price-kwh", "0.3"), ("--tokens", "1e12", "--price-hour", "2")):
            with self.subTest(words=words):
                self.open_plan(*words)
                self.assert_fits()
                self.emulate("light", 1280)
                covered = self.script(
                    "(all => all.flatMap((a, i) => all.slice(i + 1).filter(b => a.x < b.x + b.width && b.x < a.x + a.width && "
                    "a.y < b.y + b.height && b.y < a.y + a.height).map(b => [a, b])))"
                    "([...document.querySelectorAll('svg text.label')].map(t => t.getBBox()))")
                self.assertEqual(covered, [], "a name covers another one")
                names = self.script("[...document.querySelectorAll('svg text.label')].map(t => t.textContent)")
                dots = self.script("[...document.querySelectorAll('svg circle title')].map(t => t.textContent)")
                self.assertGreater(len(names), len(dots) / 2)
                outside = self.script("[...document.querySelectorAll('svg text')].filter(t => { const b = t.getBoundingClientRect(), s = "
                                      "t.ownerSVGElement.getBoundingClientRect(); return b.left < s.left || b.right > s.right || b.top < "
                                      "s.top || b.bottom > s.bottom; }).map(t => t.textContent)")
                self.assertEqual(outside, [], "a text is cut off")
                for scheme, dark in (("light", False), ("dark", True)):
                    self.emulate(scheme, 1280)
                    ground = self.script("getComputedStyle(document.documentElement).colorScheme")
                    self.assertEqual(ground, "light dark")
                    self.assertEqual(self.luminance("color") > 0.5, dark)
                self.assert_quiet_console()


if __name__ == "__main__":
    harness.main()
