"""Rules that a dashboard must keep, each by its name; those of grafana/dashboard-linter and some of ours. Nothing else than the JSON
is looked at, except for the names of the series that exist, which the caller gives."""

import re

SERIES = re.compile(r"\b(?:(?:job_id|cluster):)?(?:hearth|process)_[a-zA-Z0-9_:]+")
SELECTOR = re.compile(r"((?:[a-z_]+:)?(?:hearth|process)_[a-zA-Z0-9_:]+)(\{[^}]*\})?")
UNITS = {"none", "percentunit", "bytes", "Bps", "s", "watt", "joule", "celsius", "hertz", "sci"}
# Prometheus' own.
FREE_SERIES = ("up", "ALERTS")


def panels(dashboard):
    return [p for p in dashboard["panels"] if p["type"] != "row"]


def targets(dashboard):
    return [(p["title"], t) for p in panels(dashboard) for t in p.get("targets", [])]


def variables(dashboard):
    return {v["name"]: v for v in dashboard["templating"]["list"]}


def expressions(dashboard):
    """(where, expression) of panels and annotations."""
    found = [(title, t.get("expr", "")) for title, t in targets(dashboard)]
    return found + [("annotation " + a["name"], a["expr"]) for a in dashboard["annotations"]["list"] if "expr" in a]


def query_variables(dashboard):
    return [v for v in variables(dashboard).values() if v["type"] == "query"]


def template_datasource(d, _):
    found = [v for v in d["templating"]["list"] if v["type"] == "datasource"]
    if [(v["name"], v["query"]) for v in found] != [("datasource", "prometheus")]:
        yield "exactly one datasource variable, named datasource, of prometheus"


def template_job_and_instance(d, _):
    for name in ("job", "instance"):
        v = variables(d).get(name)
        if not v or not v.get("multi") or v.get("allValue") != ".+" or v["datasource"]["uid"] != "${datasource}":
            yield f"variable {name}: multi, allValue .+, of ${{datasource}}"


def template_refresh(d, _):
    yield from (f"variable {v['name']} does not refresh with the time range" for v in query_variables(d) if v.get("refresh") != 2)


def panel_datasource(d, _):
    for p in panels(d):
        for source in [p.get("datasource"), *[t.get("datasource") for t in p.get("targets", [])]]:
            if (source or {}).get("uid") != "${datasource}":
                yield f"{p['title']}: datasource is not ${{datasource}}"


def panel_title_description(d, _):
    for p in panels(d):
        if not p.get("title") or len(p.get("description", "")) < 10:
            yield f"panel {p['id']}: no title or description"


def panel_units(d, _):
    yield from (f"{p['title']}: unit" for p in panels(d) if p["fieldConfig"]["defaults"].get("unit") not in UNITS)


def panel_targets(d, _):
    yield from (f"{p.get('title')}: no target" for p in panels(d) if not [t for t in p.get("targets", []) if t.get("expr")])


def panel_legends(d, _):
    for title, t in targets(d):
        if t["range"] and t.get("legendFormat", "__auto") == "__auto":
            yield f"{title}: no legend"


def panel_titles_unique(d, _):
    titles = [p["title"] for p in panels(d)]
    yield from (f"title {t} twice" for t in sorted(set(titles)) if titles.count(t) > 1)


def panel_layout(d, _):
    taken = {}
    for p in d["panels"]:
        g = p["gridPos"]
        if g["x"] + g["w"] > 24:
            yield f"{p['title']}: wider than the grid"
        for cell in [(x, y) for x in range(g["x"], g["x"] + g["w"]) for y in range(g["y"], g["y"] + g["h"])]:
            if taken.setdefault(cell, p["id"]) != p["id"]:
                yield f"{p['title']}: overlaps another panel"
                break


def target_rate_interval(d, _):
    for where, expression in expressions(d):
        for function, window in re.findall(r"\b(rate|irate|increase)\([^\[\]]*\[([^\]]*)\]", expression):
            if window != "$__rate_interval":
                yield f"{where}: {function} over {window}"


def target_matchers(d, _):
    for where, expression in expressions(d):
        for name, matchers in SELECTOR.findall(expression):
            wanted = ["job"] if name.startswith("cluster:") else ["job", "instance"]
            yield from (f"{where}: {name} without {m}" for m in wanted if f'{m}=~"${m}"' not in matchers)


def target_counters(d, _):
    for title, t in targets(d):
        if title in ("Restarts", "Restarts and recovery", "Energy"):
            continue  # the sum so far is what they show
        for name in SERIES.findall(t["expr"]):
            if name.endswith("_total") and not re.search(r"\b(rate|irate|increase)\(" + re.escape(name), t["expr"]):
                yield f"{title}: counter {name} without rate or increase"


def target_series_exist(d, known):
    queries = [("variable " + v["name"], v["query"]["query"]) for v in query_variables(d)]
    for where, expression in expressions(d) + queries:
        yield from (f"{where}: no series {n}" for n in SERIES.findall(expression) if n not in known)
        if not SERIES.search(expression) and not any(n in expression for n in FREE_SERIES):
            yield f"{where}: names no series"


def variables_defined(d, _):
    for where, expression in expressions(d):
        for name in re.findall(r"\$([a-z_]+)", expression):
            if not name.startswith("__") and name not in variables(d):
                yield f"{where}: no variable {name}"


def uneditable(d, _):
    if d.get("editable") is not False:
        yield "editable"


def identity(d, _):
    if d.get("id", 0) is not None or not re.fullmatch(r"[a-z][a-z0-9-]{7,39}", d.get("uid", "")) or not d.get("tags"):
        yield "id must be null, uid 8 to 40 letters, tags present"
    if d.get("time") != {"from": "now-1h", "to": "now"} or d.get("refresh") != "10s" or "__inputs" in d:
        yield "time, refresh or __inputs"


RULES = {f.__name__.replace("_", "-"): f for f in (
    template_datasource, template_job_and_instance, template_refresh, panel_datasource, panel_title_description, panel_units,
    panel_targets, panel_legends, panel_titles_unique, panel_layout, target_rate_interval, target_matchers, target_counters,
    target_series_exist, variables_defined, uneditable, identity)}


def lint(dashboard, known):
    """[(rule, text)]; `known` holds the names of all series, buckets of histograms and recorded ones included."""
    return [(name, text) for name, rule in RULES.items() for text in rule(dashboard, known)]
