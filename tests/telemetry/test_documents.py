"""docs/metrics.md, the alerts and the board say what the code counts, and nothing else."""

from __future__ import annotations

import ast
import json
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import yaml
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry, generate_latest

from tests.house.sources import ROOT, modules
from twicesafe.core.outcome import Attempt, FailureKind, Sent, Stop
from twicesafe.observe import COUNTED, Event
from twicesafe.opentelemetry import Telemetry
from twicesafe.telemetry import METRICS, OUTCOMES, Kind, Measuring

DOCS = ROOT / "docs"
PAGE = (DOCS / "metrics.md").read_text(encoding="utf-8")
ALERTS = DOCS / "metrics/alerts.yml"
BOARD = json.loads((DOCS / "metrics/grafana.json").read_text(encoding="utf-8"))

TOLD_BY = {"Event", "Told", "Notice", "_tell_end", "event"}
"""What a name of an event is handed to, in the sources."""

OF_CLIENTS = {"operation.succeeded", "operation.rejected", "operation.unknown"}
OF_MESSAGES = {"message.parked", "message.skipped", "message.failed"}
"""Made of their parts in the sources."""


def table(heading: str) -> list[list[str]]:
    """The rows of the table below a heading of the page."""
    part = re.split(rf"^#+ {heading}$", PAGE, flags=re.MULTILINE)[1]
    rows = re.search(r"^\|.*?(?=\n\n)", f"{part}\n\n", re.MULTILINE | re.DOTALL)
    assert rows is not None
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[0].splitlines()[2:]]


def quoted(cell: str) -> list[str]:
    """What stands in backticks."""
    return re.findall(r"`([^`]+)`", cell)


@cache
def in_prometheus() -> str:
    """What Prometheus would read of a process that has met every event."""
    registry = CollectorRegistry()
    meters = MeterProvider(metric_readers=[PrometheusMetricReader(registry=registry)], shutdown_on_exit=False)
    telemetry = Telemetry(meters=meters)
    for event in every_event():
        telemetry(event)
    try:
        return generate_latest(registry).decode()
    finally:
        meters.shutdown()


def every_event() -> Iterator[Event]:
    attempt = Attempt(2, 0.0, 0.1, Sent.YES, 503, FailureKind.DROPPED, "503", None, Stop.BUDGET, 1.0, 0.0)
    for name in names_told():
        client = name.startswith(("attempt.", "operation.", "retry.", "key.made"))
        yield Event(
            name, "POST pay.example:443/charges/1" if client else "charge", "…6f2a", loud=name in LOUD, seconds=0.5,
            attempt=attempt if client else None, operation_id="0" * 32 if client else None,
        )  # fmt: skip


@cache
def names_told() -> frozenset[str]:
    """Every event that the sources tell of, by its name."""
    found = OF_CLIENTS | OF_MESSAGES
    for module, tree in modules().items():
        if module.startswith(("twicesafe.conformance", "twicesafe.demo", "twicesafe.storm", "twicesafe.testing")):
            continue
        chosen: dict[str, set[str]] = {}
        handed: list[ast.expr] = []
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                chosen.setdefault(node.targets[0].id, set()).update(texts(node.value))
            elif isinstance(node, ast.Call) and node.args:
                called = getattr(node.func, "attr", getattr(node.func, "id", ""))
                handed += [node.args[0]] if called in TOLD_BY else []
        for one in handed:
            found |= chosen.get(one.id, set()) if isinstance(one, ast.Name) else texts(one)
    return frozenset(name for name in found | COUNTED if re.fullmatch(r"[a-z_]+(\.[a-z_]+)?", name))


def texts(tree: ast.expr) -> set[str]:
    """The texts that stand in an expression."""
    return {one.value for one in ast.walk(tree) if isinstance(one, ast.Constant) and isinstance(one.value, str)}


LOUD = {
    event for names, loud, *_ in table("Events") if loud == "yes" for event in quoted(names)
}  # fmt: skip


def test_every_metric_is_documented() -> None:
    """R44: name, kind, attributes and meaning are the code's, and no metric is missing or made up."""
    rows = [(quoted(name), kind, quoted(attributes), says) for name, _, kind, attributes, says in table("Metrics")]
    assert rows == [([m.name], m.kind.value, list(m.attributes), m.says) for m in METRICS]


def test_every_metric_is_called_so_in_prometheus() -> None:
    """R44: the names in the page's second column are those that Prometheus' own exporter gives."""
    page = in_prometheus()
    series = {name for name, kind in re.findall(r"^# TYPE (\S+) (\S+)", page, re.MULTILINE) if name != "target_info"}
    documented = {quoted(row[1])[0] for row in table("Metrics")}
    assert {name for name in series if not name.endswith("_created")} == documented
    for metric, row in zip(METRICS, table("Metrics"), strict=True):
        (name,) = quoted(row[1])
        found = re.findall(rf"^{name}(?:_count)?\{{(.*?)\}} ", page, re.MULTILINE)
        labels = {label for line in found for label in re.findall(r"(\w+)=", line)}
        assert {attribute.replace(".", "_") for attribute in metric.attributes} <= labels, name


def test_every_outcome_is_documented() -> None:
    """R44: the outcomes of a request, each with the event that says so."""
    assert {quoted(outcome)[0]: quoted(event)[0] for outcome, event, _ in table("Outcomes")} == {
        outcome: event for event, outcome in OUTCOMES.items()
    }


def test_every_event_is_documented_where_it_counts() -> None:
    """R44: whatever the sources tell is on the page, with the metric that it is counted in, and loud if it is."""
    documented = {
        event: (loud, quoted(metric)[0]) for names, loud, metric, _ in table("Events") for event in quoted(names)
    }
    outcomes = set(OUTCOMES) - set(documented)
    assert names_told() - outcomes == set(documented)
    for event in every_event():
        if event.name in outcomes:
            continue
        _, metric = documented[event.name]
        counted = {measured.metric.name for measured in Measuring(9).measured(event)}
        quiet = {measured.metric.name for measured in Measuring(9).measured(event._replace(loud=False))}
        assert metric in quiet, event.name
        assert not event.loud or "twicesafe.events" in counted, event.name


def test_what_is_for_those_who_count_is_told_to_nobody_else() -> None:
    """R44: everything in COUNTED is told where an observer's `counts` was asked for, in the lines before."""
    callers = [
        ast.unparse(node)
        for module, tree in modules().items()
        if module not in ("twicesafe.observe", "twicesafe.telemetry")
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ("counts" in ast.unparse(node.test) or "_asked_at" in ast.unparse(node.test))
    ]
    assert [name for name in COUNTED if not any(f"'{name}'" in text for text in callers)] == []


def expressions() -> list[str]:
    """What the alerts and the board ask Prometheus for."""
    rules = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"][0]["rules"]
    asked = [rule["expr"] for rule in rules]
    asked += [target["expr"] for panel in BOARD["panels"] for target in panel.get("targets", ())]
    return [*asked, *[one["query"]["query"] for one in BOARD["templating"]["list"] if isinstance(one["query"], dict)]]


def test_alerts_and_board_ask_for_what_there_is() -> None:
    """R44: every metric, label and value in a rule or a panel is one that the exporter gives, spelled so."""
    page = in_prometheus()
    known = set(re.findall(r"^(\w+?)\{", page, re.MULTILINE))
    labels = set(re.findall(r'(\w+)="', page)) | {"le"}
    outcomes, events = set(OUTCOMES.values()), names_told()
    assert len(expressions()) > 30
    for expression in expressions():
        assert set(re.findall(r"\btwicesafe_\w+?(?=[\s({\[),]|$)", expression)) - labels <= known, expression
        for label, _, values in re.findall(r'(\w+)(=~|!=|=)"([^"]*)"', expression):
            assert label in labels, expression
            wanted = {value for value in values.split("|") if value and "$" not in value}
            if label == "twicesafe_outcome":
                assert {value.removesuffix(".*") for value in wanted} <= outcomes, expression
            elif label == "twicesafe_event":
                assert wanted <= events, expression
        for grouped in re.findall(r"by \(([^)]*)\)", expression):
            assert {name.strip() for name in grouped.split(",")} <= labels, expression


def test_loud_is_spelled_as_the_alerts_have_it() -> None:
    """R44: what the exporter makes of a truth is what the rules and the board look for."""
    spelled = set(re.findall(r'twicesafe_loud="(\w+)"', in_prometheus()))
    wanted = {value for asked in expressions() for value in re.findall(r'twicesafe_loud=~"([^"]+)"', asked)}
    assert len(spelled) == 2 and len(wanted) == 1
    (pattern,) = wanted
    assert [word for word in spelled if re.fullmatch(pattern, word)] == [word for word in spelled if word[0] in "tT"]


def test_the_whole_board_shows_every_metric() -> None:
    """R44: valid JSON of Grafana's, panels side by side without overlap, and no metric that no panel shows."""
    shown = " ".join(expressions())
    assert [row[1] for row in table("Metrics") if quoted(row[1])[0] not in shown] == []
    places = [(p["gridPos"]["y"], p["gridPos"]["x"], p["gridPos"]["w"], p["gridPos"]["h"]) for p in BOARD["panels"]]
    taken = {(y + dy, x + dx) for y, x, w, h in places for dy in range(h) for dx in range(w)}
    assert len(taken) == sum(w * h for _, _, w, h in places)
    assert all(x + w <= 24 for _, x, w, _ in places)
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])


def test_every_alert_is_explained() -> None:
    """R44: the page says of each alert what it means; there is none that it leaves out."""
    rules = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"][0]["rules"]
    assert [quoted(row[0])[0] for row in table("Alerts and a board")] == [rule["alert"] for rule in rules]


def test_alerts_fire_where_they_should(tmp_path: Path) -> None:
    """R44: Prometheus' own tool plays a healthy hour to the rules, and none fires; then everything at once, and each
    does."""
    played = Path(__file__).with_name("alerts_test.yml").read_text(encoding="utf-8")
    plays = tmp_path / "plays.yml"
    plays.write_text(played.replace("ALERTS", str(ALERTS)), encoding="utf-8")
    rules = {rule["alert"] for rule in yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"][0]["rules"]}
    healthy, ill = yaml.safe_load(plays.read_text(encoding="utf-8"))["tests"]
    assert {one["alertname"] for one in healthy["alert_rule_test"]} == rules
    assert {one["alertname"] for one in ill["alert_rule_test"] if one["exp_alerts"]} == rules
    for command in (["check", "rules", str(ALERTS)], ["test", "rules", str(plays)]):
        ran = subprocess.run(["promtool", *command], capture_output=True, text=True, timeout=60, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_page_of_metrics_is_as_prometheus_wants_it() -> None:
    """R44: what is exported passes the linter of Prometheus' own tool, but for what OpenTelemetry's exporter writes."""
    ran = subprocess.run(
        ["promtool", "check", "metrics"], input=in_prometheus(), capture_output=True, text=True, timeout=60, check=False
    )
    complaints = [line for line in (ran.stdout + ran.stderr).splitlines() if line.startswith("twicesafe")]
    assert complaints == [], ran.stdout + ran.stderr


def test_kinds_are_what_their_names_say() -> None:
    """R44: counters end in _total, and what is counted in seconds says so."""
    for metric, row in zip(METRICS, table("Metrics"), strict=True):
        (name,) = quoted(row[1])
        assert name.endswith("_total") == (metric.kind is Kind.COUNTER)
        assert ("_seconds" in name) == (metric.unit == "s")
