#!/usr/bin/python3
"""The built-in page in headless Chromium: it loads, a running job's curve grows and goes on after a rewind without a duplicate or a
gap, runs are compared, a job's log, checkpoints, evaluations, samples and curves of its GPU are there, nothing reaches the console, and
it fits 1280 and 400 px in both colour schemes.

$HEARTH_SCREENSHOTS names a folder to leave the pictures in that docs/web.md shows."""

import base64
import json
import math
import os
import re
import shutil
import signal
import unittest
import urllib.error
import urllib.request

import evaluations_test
import harness
import played_gpu_test

try:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
except ImportError:
    webdriver = None

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
MISSING = [name for name, found in
           [("chromium", CHROMIUM), ("chromium-driver", DRIVER), ("python3-selenium", webdriver)] if not found]


@unittest.skipIf(MISSING, f"not installed: {' '.join(MISSING)} (scripts/deps.sh --tests)")
class Page:
    """The page of `cluster` in a browser."""

    def setUp(self):
        super().setUp()
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM
        for argument in ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1100,900",
                         "--disable-background-networking", f"--user-data-dir={self.cluster.dir}/chromium"]:
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.browser = webdriver.Chrome(service=Service(DRIVER), options=options)
        self.addCleanup(self.browser.quit)
        self.console = []

    def script(self, text, *args):
        return self.browser.execute_script("return " + text, *args)

    def assert_quiet_console(self):
        """Errors of scripts, refused resources and violations of the policy all end there."""
        self.console += self.browser.get_log("browser")
        self.assertEqual([entry["message"] for entry in self.console if entry["level"] in ("SEVERE", "WARNING")], [])

    def open_page(self, fragment=""):
        self.browser.get(f"http://{self.cluster.http}/{fragment}")

    def chart_step(self):
        """The last step of the loss curve that is drawn, 0 = none yet."""
        label = self.script("document.querySelector('figure[data-title=loss] svg')?.getAttribute('aria-label') ?? ''")
        found = re.search(r"^loss: loss [\d.e+-]+ at step (\d+)$", label)
        return int(found.group(1)) if found else 0

    def emulate(self, scheme, width, height=900):
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                     {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})

    def screenshot(self, name):
        folder = os.environ.get("HEARTH_SCREENSHOTS")
        if folder:
            data = self.browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})["data"]
            with open(os.path.join(folder, name), "wb") as f:
                f.write(base64.b64decode(data))

    def assert_fits(self, widths=(1280, 400)):
        """In both colour schemes and at each width, neither the page nor a table in it scrolls sideways."""
        for scheme in ("light", "dark"):
            for width in widths:
                self.emulate(scheme, width)
                self.assertEqual(self.script("innerWidth"), width)
                wide = self.script("[document.documentElement, ...document.querySelectorAll('.scroll, figure, #job-facts')].filter(e => "
                                   "e.scrollWidth > e.clientWidth).map(e => `${e.tagName} ${e.getAttribute('aria-label') || "
                                   "e.getAttribute('aria-labelledby')}: ${e.scrollWidth} > ${e.clientWidth}`)")
                self.assertEqual(wide, [], f"{scheme} {width}")

    def luminance(self, property_name):
        colour = self.script(f"getComputedStyle(document.body).{property_name}")
        red, green, blue = map(int, re.findall(r"\d+", colour)[:3])
        return (0.2126 * red + 0.7152 * green + 0.0722 * blue) / 255

    def api(self, path):
        return json.loads(self.cluster.get("/api/v1/" + path))

    def wait_job(self, what, job, condition):
        """Through the page's own API: starting jobctl over and over takes the processor from the browser."""
        return harness.wait_until(what, lambda: condition(self.api(f"jobs/{job}")))

    def points(self, title):
        """How many points each line of a picture has."""
        return self.script("[...document.querySelectorAll(`figure[data-title='${arguments[0]}'] path`)].map(p => +p.dataset.points)", title)


class WebPage(Page, harness.ClusterTest):
    GATES = {"step": "trainer.step@640"}

    def test_running_job(self):
        job = self.cluster.submit(harness.tiny_job(self.data, 10**6, name="first-run", checkpoint={"every_steps": 200}))
        self.wait_job("some steps", job, lambda j: j["step"] >= 20)
        self.open_page()  # no fragment: the running job is shown
        first = harness.wait_until("the curve", self.chart_step)
        harness.wait_until("the curve to grow", lambda: self.chart_step() > first + 10)
        self.assertEqual(self.script("document.querySelectorAll('#workers tr').length"), 2)
        self.assertIn(job, self.script("document.getElementById('workers').textContent"))
        self.assertEqual(self.script("document.querySelector('#jobs tr[aria-current] a').textContent"), job)
        self.assertIn("running", self.script("document.getElementById('job-title').textContent"))
        self.assertIn("running", self.script("document.getElementById('events').textContent"))
        self.assertIn("updated", self.script("document.getElementById('status').textContent"))

        # A CPU measures neither power nor MFU nor temperature: null to the page, which then shows nothing.
        columns = self.api(f"jobs/{job}/metrics")["columns"]
        self.assertEqual({value for key in ("power_watts", "mfu") for value in columns[key]}, {None})
        titles = self.script("[...document.querySelectorAll('figure')].map(f => f.dataset.title).join()")
        # What is drawn is what the rows say and the job measured, in their order.
        curves = self.api(f"jobs/{job}/metrics")["curves"]
        measured = [c["chart"].replace("_", " ") for c in curves if any(v is not None for v in columns[c["column"]])]
        self.assertEqual(sorted(titles.split(",")), sorted(set(measured)))
        self.assertIn("loss", titles)
        self.assertNotRegex(titles, "power|mfu")
        self.assertNotRegex(self.script("document.body.textContent"), r"NaN|null|undefined|\b0 W\b|°C")

        for scheme in ("light", "dark"):
            self.emulate(scheme, 1100)
            self.screenshot(f"web-{scheme}.png")
            contrast = self.luminance("color") - self.luminance("backgroundColor")
            self.assertGreater(contrast if scheme == "dark" else -contrast, 0.7, scheme)
        self.assert_fits()
        unnamed = self.script("[...document.querySelectorAll('progress, svg, [role=region]')].filter(e => "
                              "!e.getAttribute('aria-label') && !e.getAttribute('aria-labelledby')).length")
        self.assertEqual(unnamed, 0)
        self.assert_quiet_console()
        self.cluster.jobctl("cancel", job, "--now")

    def assert_whole_curve(self, job, steps, rewinds):
        """Every step once, in the page's data and in the history, with the same losses."""
        answer = self.api(f"jobs/{job}/metrics?points=1000")
        columns, shown = answer["columns"], 0
        self.assertGreaterEqual(answer["rewinds"], rewinds)
        for first, last, count in zip(columns["first_step"], columns["step"], columns["steps"]):
            self.assertEqual((first, count), (shown + 1, last - first + 1))
            shown = last
        self.assertEqual(shown, steps)
        rows = self.assert_every_step_once(job, steps)
        losses = [float(row["loss"]) for row in rows]
        for first, last, loss in zip(columns["first_step"], columns["step"], columns["loss"]):
            self.assertAlmostEqual(loss, sum(losses[first - 1:last]) / (last - first + 1), places=4)

    def test_cancelled_and_resumed_job(self):
        steps = 2000
        self.hold()
        job = self.cluster.submit(harness.tiny_job(self.data, steps, workers=1, checkpoint={"every_steps": 500}))
        self.open_page("#" + job)
        self.wait_job("some steps", job, lambda j: j["step"] >= 620)
        self.cluster.jobctl("cancel", job, "--now")  # what came after step 500 is void
        self.release()
        self.wait_job("the cancel", job, lambda j: j["state"] == "cancelled")
        harness.wait_until("the state", lambda: "cancelled" in self.script("document.getElementById('job-title').textContent"))
        self.hold()  # 640 steps after the checkpoint
        more = self.cluster.recorded_step(job) + 620
        self.cluster.jobctl("resume", job)
        self.wait_job("more steps", job, lambda j: j["step"] >= more and j["state"] == "running")
        self.cluster.jobctl("cancel", job)  # with a checkpoint of its own
        self.release()
        self.wait_job("the cancel", job, lambda j: j["state"] == "cancelled")
        self.cluster.jobctl("resume", job)
        self.wait_job("the end", job, lambda j: j["state"] == "succeeded")
        harness.wait_until("the whole curve", lambda: self.chart_step() == steps)
        self.assert_whole_curve(job, steps, 1)
        self.assert_quiet_console()

    def test_rewound_job(self):
        steps = 2000
        self.hold()
        job = self.cluster.submit(harness.tiny_job(self.data, steps, workers=1, checkpoint={"every_steps": 500}))
        self.open_page("#" + job)
        worker = self.wait_job("some steps", job, lambda j: j["step"] >= 620 and j["workers"])[0]
        os.kill(self.cluster.trainer_pids(worker)[0], signal.SIGKILL)
        self.release()
        self.wait_job("the end", job, lambda j: j["state"] == "succeeded")
        harness.wait_until("the whole curve", lambda: self.chart_step() == steps)
        self.assertIn("Rewinds", self.script("document.getElementById('job-facts').textContent"))
        self.assert_whole_curve(job, steps, 1)
        self.assert_quiet_console()

    def choose(self, selector, value):
        self.script("(e => { if (e.type === 'checkbox') e.click(); else { e.value = arguments[1]; "
                    "e.dispatchEvent(new Event(e.tagName === 'SELECT' ? 'change' : 'input')); } })"
                    "(document.querySelector(arguments[0]))", selector, value)

    def test_two_runs_are_compared(self):
        jobs = [self.cluster.submit(harness.tiny_job(self.data, 60, name="run-" + name, workers=1, labels={"team": name},
                                                     optimizer={"lr": lr}))
                for name, lr in (("a", 0.001), ("b", 0.01))]
        for job in jobs:
            self.wait_job("the end", job, lambda j: j["state"] == "succeeded")
        first, second = jobs
        self.open_page("#" + first)
        harness.wait_until("the curve", lambda: self.points("loss")[:1] == [60])
        self.assertIn(first, self.script("document.title"))
        self.assertIn("team=b", self.script("document.getElementById('jobs').textContent"))

        self.choose(f"input[aria-label='Compare {second}']", None)
        harness.wait_until("two curves", lambda: [n for n in self.points("loss") if n] == [60, 60])
        self.assertEqual(self.script("[...document.querySelectorAll('#runs a')].map(a => a.textContent)"), jobs)
        before = self.script("document.querySelector('figure[data-title=loss] path').getAttribute('d')")
        self.choose("#axis", "tokens")
        self.choose("#smooth", "20")
        self.choose("#log", None)
        self.choose("#find", "run-")
        label = self.script("document.querySelector('figure[data-title=loss] svg').getAttribute('aria-label')")
        self.assertRegex(label, rf"^loss: .*{first} [\d.]+, .*{second} [\d.]+ at [\d.]+k? tokens$")
        self.assertNotEqual(before, self.script("document.querySelector('figure[data-title=loss] path').getAttribute('d')"))
        self.assertEqual(self.script("location.hash"), f"#{first}?with={second}&x=tokens&smooth=20&log=1&find=run-")
        low, middle, high = map(float, self.script("[...document.querySelectorAll('figure[data-title=loss] text')].slice(0, 3)"
                                                   ".map(t => t.textContent)"))
        self.assertLess(abs(middle - math.sqrt(low * high)), abs(middle - (low + high) / 2), "the axis is not logarithmic")

        self.browser.refresh()  # the address keeps what was chosen
        harness.wait_until("two curves", lambda: [n for n in self.points("loss") if n] == [60, 60])
        self.assertEqual(self.script("['axis', 'smooth', 'find'].map(id => document.getElementById(id).value)"), ["tokens", "20", "run-"])
        self.toggle("spec")
        harness.wait_until("the keys", lambda: self.script("document.querySelectorAll('#spec-rows tr').length") > 0)
        keys = self.script("[...document.querySelectorAll('#spec-rows tr')].map(r => [...r.cells].map(c => c.textContent))")
        self.assertIn(["optimizer.lr", "0.001", "0.01"], keys)
        self.assertNotIn("train.steps", [key for key, *_ in keys])
        self.toggle("commands")
        self.wait_text("command-list", "jobctl diff")
        self.assertIn(f"jobctl diff {first} {second}", self.script("document.getElementById('command-list').textContent"))

        self.assert_fits()
        for scheme in ("light", "dark"):
            self.emulate(scheme, 1280)
            self.script("document.getElementById('job-title').scrollIntoView()")
            self.screenshot(f"web-compare-{scheme}.png")
        for scheme in ("light", "dark"):
            self.emulate(scheme, 400)
            self.script("scrollTo(0, 0)")
            self.screenshot(f"web-phone-{scheme}.png")
        self.emulate("light", 1280)
        self.choose("#find", "team=b")
        harness.wait_until("the filter", lambda: self.script("document.querySelectorAll('#jobs tr').length") == 1)
        self.assert_quiet_console()

        # A run that is gone leaves the comparison; the page goes on with the other.
        harness.wait_until("both to end", lambda: all(self.cluster.job(job)["state"] == "JOB_STATE_SUCCEEDED" for job in (first, second)))
        self.cluster.jobctl("delete", second, "--yes")
        harness.wait_until("one curve", lambda: second not in self.script("location.hash") and [n for n in self.points("loss") if n] == [60])
        self.assertIn("updated", self.script("document.getElementById('status').textContent"))

    def toggle(self, section):
        self.script("document.querySelector(`#${arguments[0]} summary`).click()", section)

    def text(self, element):
        return self.script("document.getElementById(arguments[0]).textContent", element)

    def wait_text(self, element, text):
        harness.wait_until(f"{text!r} in #{element}", lambda: text in self.text(element))

    def test_log_checkpoints_evaluations_and_samples(self):
        maker = evaluations_test.Evaluations
        items = maker.items(self, "piqa", 4)
        spec = harness.tiny_job(maker.build(self), 700, workers=1, model={"vocab": 320}, data={"sequence_length": 128},
                                batch={"global_batch_tokens": 256}, checkpoint={"every_steps": 100, "keep_last": 3},
                                train={"evaluations": [{"task": "piqa", "items": items, "every_steps": 300}],
                                       "samples": [{"prompt": "the ", "max_tokens": 5}]})
        self.hold()
        job = self.cluster.submit(spec)
        self.wait_job("the gate", job, lambda j: j["step"] >= 620)
        self.cluster.jobctl("note", job, "looks good")
        self.open_page("#" + job)
        self.wait_text("events", "looks good")

        self.toggle("logs")
        self.wait_text("log-lines", "checkpoint of step 600")
        self.assertIn("open=logs", self.script("location.hash"))
        lines = self.text("log-lines").splitlines()
        self.release()  # what comes now is added behind
        self.wait_job("the end", job, lambda j: j["state"] == "succeeded")
        self.wait_text("log-lines", "checkpoint of step 700")
        self.assertEqual(self.text("log-lines").splitlines()[:len(lines)], lines)
        whole = self.api(f"jobs/{job}/logs?tail=1000")["lines"]
        harness.wait_until("the whole log", lambda: len(self.text("log-lines").splitlines()) == len(whole))
        self.change("rank", 3)
        self.wait_text("logs-note", "No lines")
        self.change("rank", 0)
        harness.wait_until("rank 0", lambda: len(self.text("log-lines").splitlines()) == len([line for line in whole if line["rank"] == 0]))

        for section in ("checkpoints", "evaluations", "samples"):
            self.toggle(section)
        self.browser.refresh()  # the address keeps what is open
        self.wait_text("log-lines", "checkpoint of step 700")
        self.wait_text("samples", "the ")
        recorded = self.api(f"jobs/{job}/checkpoints")["checkpoints"]
        self.assertEqual([c["step"] for c in recorded], [700, 600, 500])
        for checkpoint in recorded:
            self.wait_text("checkpoint-rows", checkpoint["path"])
        self.wait_text("evaluation-rows", "piqa: acc")
        rows = self.script("[...document.querySelectorAll('#checkpoint-rows tr')].map(r => [...r.cells].map(c => c.textContent))")
        found = {row[0]: "piqa: acc" in row[5] for row in rows}
        self.assertTrue(found["600"] and not found["500"], rows)
        self.assert_fits()
        self.assert_quiet_console()

    def change(self, field, value):
        self.script("(e => { e.value = arguments[1]; e.dispatchEvent(new Event('change')); })(document.getElementById(arguments[0]))", field, value)

    def test_commands_are_copied(self):
        job = self.cluster.submit(harness.tiny_job(self.data, 1, workers=1))
        self.wait_job("the end", job, lambda j: j["state"] == "succeeded")
        self.open_page("#" + job)
        harness.wait_until("the curve", lambda: self.points("loss")[:1] == [1])
        self.toggle("commands")
        self.wait_text("command-list", "jobctl describe")
        self.script("void (window.said = '', new MutationObserver(() => { said += document.getElementById('told').textContent; })"
                    ".observe(document.getElementById('told'), {childList: true}))")
        self.script("document.querySelector('#command-list button').click()")
        harness.wait_until("the answer", lambda: re.match("Copied|Selected", self.script("said")))  # as the browser lends the clipboard
        # The text stays selected while the page goes on reading, so that it can be copied by hand, too.
        before = self.text("status")
        harness.wait_until("another reading", lambda: self.text("status") != before)
        self.assertEqual(self.script("getSelection().toString()"), f"jobctl describe {job}")
        self.assert_quiet_console()

    def test_a_stretch_is_shown_alone(self):
        job = self.cluster.submit(harness.tiny_job(self.data, 60, workers=1))
        self.wait_job("the end", job, lambda j: j["state"] == "succeeded")
        self.open_page("#" + job)
        harness.wait_until("the curve", lambda: self.points("loss")[:1] == [60])
        self.script("""(picture => { const box = picture.getBoundingClientRect();
          for (const [kind, part] of [['pointerdown', 0.4], ['pointermove', 0.7], ['pointerup', 0.7]]) {
            picture.dispatchEvent(new PointerEvent(kind, {clientX: box.left + part * box.width, clientY: box.top + 20, pointerType: 'mouse'}));
          } })(document.querySelector('figure[data-title=loss] svg'))""")
        shown = self.points("loss")[0]
        self.assertTrue(10 < shown < 30, shown)
        self.assertIn("from=", self.script("location.hash"))
        self.script("document.getElementById('whole').click()")
        self.assertEqual(self.points("loss")[0], 60)
        self.assert_quiet_console()

    def test_one_step_is_a_dot(self):
        job = self.cluster.submit(harness.tiny_job(self.data, 1, workers=1))
        self.wait_job("the end", job, lambda j: j["state"] == "succeeded")
        self.open_page("#" + job)
        harness.wait_until("the curve", lambda: self.points("loss")[:1] == [1])
        self.assertGreaterEqual(self.script("document.querySelectorAll('figure[data-title=loss] circle').length"), 1)
        self.assert_quiet_console()

    def test_long_names_need_no_scrolling(self):
        labels = {"experiment": "long-context-ablation", "team": "research", "x" * 63: "y" * 63}
        jobs = [self.cluster.submit(harness.tiny_job(self.data, 5, workers=workers, name=name * 63, labels=labels))
                for name, workers in (("n", 1), ("w", 4))]  # there are no four workers: it says so
        self.wait_job("the end", jobs[0], lambda j: j["state"] == "succeeded")
        self.wait_job("a reason", jobs[1], lambda j: j["reason"])
        self.open_page("#" + jobs[0])
        harness.wait_until("the jobs", lambda: self.script("document.querySelectorAll('#jobs tr').length") == 2)
        self.choose(f"input[aria-label='Compare {jobs[1]}']", None)
        self.toggle("spec")
        harness.wait_until("the keys", lambda: self.script("document.querySelectorAll('#spec-rows tr').length") > 0)
        self.assert_fits()
        self.assert_quiet_console()

    def test_runbook(self):
        self.browser.get(f"http://{self.cluster.http}/runbook#hearthjobstuck")
        harness.wait_until("the entry", lambda: self.script("document.querySelector(':target')?.textContent") == "HearthJobStuck")
        self.assertGreater(self.script("document.querySelectorAll('code').length"), 20)
        self.emulate("dark", 400)
        self.assertLessEqual(self.script("document.documentElement.scrollWidth"), self.script("document.documentElement.clientWidth"))
        self.assert_quiet_console()

    def test_without_jobs_and_unknown_ones(self):
        self.open_page()
        harness.wait_until("the workers", lambda: self.script("document.querySelectorAll('#workers tr').length") == 2)
        self.assertIn("No jobs yet", self.script("document.getElementById('jobs-note').textContent"))
        self.assertTrue(self.script("document.getElementById('job').hidden"))
        self.assert_quiet_console()
        with self.assertRaises(urllib.error.HTTPError) as refused:
            self.api("jobs/none")
        self.assertEqual(refused.exception.code, 404)
        self.assertIn("none", json.load(refused.exception)["error"]["message"])
        self.open_page("#none")
        harness.wait_until("the error", lambda: "no job none" in self.script("document.getElementById('status').textContent"))
        self.open_page("#" + "%3Cimg%20src=x%20onerror=document.title=1%3E")
        harness.wait_until("the error", lambda: "no job <img" in self.script("document.getElementById('status').textContent"))
        self.assertEqual(self.script("document.querySelectorAll('img').length"), 0)
        with self.assertRaises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(urllib.request.Request(f"http://{self.cluster.http}/api/v1/jobs", data=b"{}"), timeout=5)
        self.assertEqual(refused.exception.code, 405)


class GpuPage(Page, played_gpu_test.GpuTest):
    def test_curves_of_the_gpu(self):
        job = self.cluster.submit(self.gpu_job())
        self.cluster.wait_step(job, 1)
        self.gpu(celsius=78, joules=1500)
        # A heartbeat may tell the heat before a step does; the curve needs a step.
        harness.wait_until("a hot step", lambda: 78 in self.api(f"jobs/{job}/metrics")["columns"]["temperature_celsius"])
        self.stop()
        self.wait_job("the end", job, lambda j: j["state"] == "succeeded")
        self.open_page("#" + job)
        for title, says in (("memory bytes", "1.00 GiB"), ("power watts", "500 W"), ("temperature celsius", "78 °C"),
                            ("utilization ratio", "90.0 %")):
            harness.wait_until(title, lambda title=title: self.points(title))
            self.assertGreater(self.points(title)[0], 1, title)
            label = self.script("document.querySelector(`figure[data-title='${arguments[0]}'] svg`).getAttribute('aria-label')", title)
            self.assertIn(says, label)
        self.assertIn("78 °C", self.script("document.getElementById('job-facts').textContent"))
        self.assertIn("78 °C", self.script("document.getElementById('workers').textContent"))
        self.assert_fits()
        self.assert_quiet_console()


if __name__ == "__main__":
    harness.main()
