"""The series that exist: those of docs/metrics.md and the recorded ones. And what else tests read from deploy/."""

import importlib.util
import json
import os
import re

import yaml

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DEPLOY = os.path.join(SOURCE, "deploy")


def read(*path):
    with open(os.path.join(SOURCE, *path), encoding="utf-8") as f:
        return f.read()


def documented():
    """name -> (type, labels) of the tables in docs/metrics.md."""
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([^|]*) \|", read("docs", "metrics.md"), re.M)
    return {name: (kind, [label for label in labels.strip().split(",") if label]) for name, kind, labels in rows}


def rules():
    """All recording and alert rules of deploy/prometheus."""
    folder = os.path.join(DEPLOY, "prometheus", "rules")
    return [rule for name in sorted(os.listdir(folder)) for group in yaml.safe_load(read(folder, name))["groups"]
            for rule in group["rules"]]


def known():
    names = set()
    for name, (kind, _) in documented().items():
        names |= {name + suffix for suffix in ("_bucket", "_sum", "_count")} if kind == "histogram" else {name}
    return names | {rule["record"] for rule in rules() if "record" in rule}


def generator():
    """deploy/grafana/dashboards.py as a module."""
    spec = importlib.util.spec_from_file_location("hearth_dashboards", os.path.join(DEPLOY, "grafana", "dashboards.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def dashboards():
    """name -> the committed file's content."""
    folder = os.path.join(DEPLOY, "grafana", "dashboards")
    return {name.removesuffix(".json"): json.loads(read(folder, name)) for name in sorted(os.listdir(folder))}
