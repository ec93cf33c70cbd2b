#!/usr/bin/python3
"""The compose files and the Dockerfile name only files, services, stages, flags, ports and build options that exist, and docker
compose, where it is installed, takes the files as they are. No container engine is needed, so nothing here shows that they run."""

import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest

import yaml

import series

FOLDER = os.path.join(series.DEPLOY, "compose")
FLAGS_OF = {"hearth-coordinator": "coordinator/main.cc", "hearth-worker": "worker/daemon/options.cc"}


def merge(base, over):
    """As docker compose merges an override: mappings by key, the rest replaced (lists of ours are never extended)."""
    if isinstance(base, dict) and isinstance(over, dict):
        return {key: merge(base[key], over[key]) if key in base and key in over else over.get(key, base.get(key))
                for key in [*base, *(k for k in over if k not in base)]}
    return over


def load(*files):
    result = {}
    for name in files:
        result = merge(result, yaml.safe_load(series.read("deploy/compose", name)))
    return result


def compose_config(files):
    """What docker compose makes of the files; None where it is not installed. Its first version (Debian 12 has it) does not know the
    key `name`, which is left out for it."""
    if shutil.which("docker") and subprocess.run(["docker", "compose", "version"], capture_output=True).returncode == 0:
        command, texts = ["docker", "compose"], [series.read("deploy/compose", name) for name in files]
    elif shutil.which("docker-compose"):
        command, texts = ["docker-compose"], [re.sub(r"(?m)^name:.*", "", series.read("deploy/compose", name)) for name in files]
    else:
        return None
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for name, text in zip(files, texts):
            paths += ["-f", os.path.join(folder, name)]
            with open(paths[-1], "w", encoding="utf-8") as f:
                f.write(text)
        run = subprocess.run([*command, "--project-directory", FOLDER, "--project-name", "hearth", *paths, "config"],
                             capture_output=True, text=True)
    if run.returncode != 0:
        raise AssertionError(run.stderr)
    return yaml.safe_load(run.stdout)


def flags(program):
    return set(re.findall(r'"(?:-\w,)?(--[a-z-]+)"', series.read(FLAGS_OF[program])))


def host_path(source):
    return os.path.normpath(os.path.join(FOLDER, source))


class Compose(unittest.TestCase):
    def each(self):
        """(name, service) of the base file alone and with the override."""
        for files in (["compose.yml"], ["compose.yml", "compose.gpu.yml"]):
            document = load(*files)
            for name, service in document["services"].items():
                with self.subTest(files=files, service=name):
                    yield document, name, service

    def test_flags_exist(self):
        seen = set()
        for _, _, service in self.each():
            program, *arguments = service.get("command", [""])
            if program in FLAGS_OF:
                seen.add(program)
                used = {a for a in arguments if a.startswith("--")}
                self.assertTrue(used)
                self.assertEqual(used - flags(program), set())
        self.assertEqual(seen, set(FLAGS_OF))

    def test_compose_itself_takes_the_files(self):
        for files in (["compose.yml"], ["compose.yml", "compose.gpu.yml"]):
            document = compose_config(files)
            if document is None:
                self.skipTest("neither docker compose nor docker-compose is installed")
            self.assertEqual(set(document["services"]), set(load(*files)["services"]))
            self.assertEqual(document["services"]["worker-1"]["command"], load(*files)["services"]["worker-1"]["command"])

    def test_services_that_are_named_exist(self):
        for document, _, service in self.each():
            names = set(service.get("depends_on", []))
            mode = service.get("network_mode", "")
            if mode:
                names.add(mode.removeprefix("service:"))
                self.assertNotIn("ports", service)
            coordinator = service.get("environment", {}).get("HEARTH_COORDINATOR")
            if coordinator:
                host, port = coordinator.split(":")
                names.add(host)
                self.assertIn(f"0.0.0.0:{port}", document["services"][host]["command"])
            self.assertEqual(names - set(document["services"]), set())

    def test_a_worker_is_reached_by_its_service_name(self):
        workers = 0
        for _, name, service in self.each():
            if "hearth-worker" in service.get("command", []):
                workers += 1
                command = service["command"]
                self.assertEqual(command[command.index("--advertise") + 1], name)
                self.assertEqual(command[command.index("--name") + 1], name)
        self.assertEqual(workers, 4)

    def test_mounts_exist(self):
        for document, _, service in self.each():
            for mount in service.get("volumes", []):
                source = mount.split(":")[0]
                if source.startswith("."):
                    self.assertTrue(os.path.exists(host_path(source)), mount)
                else:
                    self.assertIn(source, document["volumes"])

    def test_prometheus_and_grafana_see_the_shipped_files(self):
        services = load("compose.yml")["services"]
        mounts = {m.split(":")[1]: host_path(m.split(":")[0]) for s in ("prometheus", "grafana") for m in services[s]["volumes"]
                  if m.startswith(".")}
        self.assertEqual(mounts["/etc/prometheus/prometheus.yml"], os.path.join(series.DEPLOY, "prometheus", "prometheus.yml"))
        provider = yaml.safe_load(series.read("deploy/grafana/provisioning/dashboards/hearth.yml"))["providers"][0]["options"]["path"]
        self.assertEqual(mounts[provider], os.path.join(series.DEPLOY, "grafana", "dashboards"))
        home = services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
        self.assertTrue(os.path.exists(os.path.join(mounts[os.path.dirname(home)], os.path.basename(home))))

    def test_addresses_of_the_shipped_files_hold_in_the_shared_network(self):
        services = load("compose.yml")["services"]
        config = yaml.safe_load(series.read("deploy/prometheus/prometheus.yml"))
        target = config["scrape_configs"][0]["static_configs"][0]["targets"][0]
        self.assertIn("0.0.0.0:" + target.split(":")[1], services["coordinator"]["command"])
        source = yaml.safe_load(series.read("deploy/grafana/provisioning/datasources/hearth.yml"))["datasources"][0]
        self.assertEqual(source["url"], "http://127.0.0.1:9090")
        for name in ("prometheus", "grafana"):
            self.assertEqual(services[name]["network_mode"], "service:coordinator")
        published = {p.split(":")[2] for p in services["coordinator"]["ports"]}
        self.assertEqual(published, {"7070", "7071", "9090", "3000"})
        self.assertTrue(all(p.startswith("127.0.0.1:") for p in services["coordinator"]["ports"]))


class Dockerfile(unittest.TestCase):
    def setUp(self):
        self.text = series.read("deploy/compose/Dockerfile")
        self.stages = re.findall(r"^FROM .* AS (\w+)$", self.text, re.M)

    def test_targets_and_arguments_exist(self):
        for files in (["compose.yml"], ["compose.yml", "compose.gpu.yml"]):
            build = load(*files)["services"]["coordinator"]["build"]
            self.assertEqual(host_path(build["context"]), series.SOURCE)
            self.assertTrue(os.path.exists(os.path.join(series.SOURCE, build["dockerfile"])))
            self.assertIn(build["target"], self.stages)
            for argument in build.get("args", {}):
                self.assertRegex(self.text, rf"(?m)^ARG {argument}=")

    def test_what_it_copies_and_runs_exists(self):
        for source in re.findall(r"^COPY (?!--from)(\S+) ", self.text, re.M):
            self.assertTrue(os.path.exists(os.path.join(series.SOURCE, source)), source)
        for stage in re.findall(r"--from=(\w+)", self.text):
            self.assertIn(stage, self.stages)
        for script in set(re.findall(r"scripts/[\w-]+\.sh", self.text)):
            self.assertTrue(os.access(os.path.join(series.SOURCE, script), os.X_OK), script)
        presets = {p["name"] for p in json.loads(series.read("CMakePresets.json"))["buildPresets"]}
        self.assertEqual(set(re.findall(r"--preset (\w+)", self.text)) - presets, set())
        options = "".join(series.read(path) for path in ("CMakeLists.txt", "kernels/CMakeLists.txt", "cmake/Cuda.cmake")
                          if os.path.exists(os.path.join(series.SOURCE, path)))
        for option in re.findall(r"-D(\w+)=", self.text):
            self.assertRegex(options, rf"\b{option}\b")

    def test_the_runtime_image_can_check_certificates(self):
        runtime = self.text.split(" AS runtime\n")[1].split("\nFROM ")[0]
        self.assertRegex(runtime, r"apt-get install .*\bca-certificates\b")

    def test_the_bundle_unpacks_where_the_path_points(self):
        self.assertIn('bundle/{bin,libexec,lib', series.read("scripts/bundle.sh"))
        self.assertRegex(self.text, r"(?s)AS bundle\n.*ADD bundle.tar.xz /opt/\nENV PATH=/opt/bundle/bin")


if __name__ == "__main__":
    unittest.main(verbosity=2)
