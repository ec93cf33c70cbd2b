// The forms of a report: Markdown, HTML and JSON.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/html.h"
#include "common/base/units.h"
#include "common/plot/svg.h"
#include "common/spec/evaluation/evaluation_table.h"
#include "common/spec/objective/objective_table.h"
#include "jobctl/report/report.h"
#include "jobctl/views/plots/plot.h"
#include "jobctl/views/text/display_text.h"
#include "nlohmann/json.hpp"

namespace hearth::jobctl {
namespace {

using Json = nlohmann::ordered_json;
using Rows = std::vector<std::pair<std::string, std::string>>;

constexpr size_t kSvgPoints = 600;

std::string Title(const Report& report) {
  return absl::StrCat(report.job.job_id(), ": ", StateName(report.job.state()));
}

std::string LossText(const std::optional<double>& loss) {
  return loss.has_value() ? Number(*loss, 4) : "-";
}

Rows NumberRows(const Report& report) {
  const v1::RunInfo& info = report.job.run_info();
  const Usage& usage = report.usage;
  Rows rows;
  if (report.job.has_run_info()) {
    rows.emplace_back(
        "Model", absl::StrCat(FormatCount(static_cast<double>(info.parameters())), " parameters"));
    rows.emplace_back("Precision", absl::StrCat(info.recipe(), " (", info.recipe_execution(), ")"));
    rows.emplace_back("Ranks", absl::StrCat(info.world_size()));
  }
  const bool trains = spec::Trains(report.job.spec());
  rows.emplace_back(spec::StepHeading(report.job.spec()),
                    absl::StrCat(report.job.step(), " of ", spec::TotalSteps(report.job)));
  if (trains) {
    rows.emplace_back("Tokens", FormatCount(static_cast<double>(usage.tokens)));
  }
  rows.emplace_back("Ran for", HumanDuration(absl::Seconds(usage.seconds)));
  if (report.mean_tokens_per_second.has_value()) {
    rows.emplace_back("Mean speed", FormatTokensPerSecond(*report.mean_tokens_per_second));
  }
  if (trains) {
    rows.emplace_back("Final loss", LossText(report.final_loss));
  }
  if (report.best_validation_loss.has_value()) {
    rows.emplace_back("Validation loss",
                      absl::StrCat(LossText(report.final_validation_loss), " at the end, best ",
                                   LossText(report.best_validation_loss), " at ",
                                   std::string(spec::StepUnit(report.job.spec())), " ",
                                   report.best_validation_step));
  }
  for (const std::string& text : spec::ResultTexts(report.job)) {
    rows.emplace_back("Evaluation", text);
  }
  for (const v1::SampleText& sample : report.job.last_report().samples()) {
    rows.emplace_back("Sample", absl::StrCat("after step ", sample.step(), ": ",
                                             spec::SampleLine(sample, /*whole=*/true)));
  }
  rows.emplace_back("Energy", EnergySentence(usage));
  if (usage.cost.has_value()) {
    rows.emplace_back("Cost", CostSentence(usage, report.prices.currency));
  }
  return rows;
}

Rows PlaceRows(const Report& report) {
  Rows rows;
  for (const ReportDevice& device : report.devices) {
    std::string text = absl::StrCat(device.model, " on ", device.host);
    if (!device.driver.empty()) {
      absl::StrAppend(&text, ", driver ", device.driver, ", CUDA ", device.cuda);
    }
    rows.emplace_back(absl::StrCat("Worker ", device.worker_id),
                      absl::StrCat(text, ", hearth ", device.version));
  }
  rows.emplace_back("Coordinator", report.coordinator_version);
  rows.emplace_back("jobctl", report.jobctl_version);
  rows.emplace_back("Created", TimeText(report.job.create_time()));
  rows.emplace_back("Ended", TimeText(report.job.end_time()));
  rows.emplace_back("Reported",
                    absl::FormatTime("%Y-%m-%d %H:%M:%S", report.now, absl::LocalTimeZone()));
  return rows;
}

PlotSeries LossSeries(const Report& report) {
  PlotSeries series;
  series.name = "loss";
  for (const v1::StepReport& step : report.steps) {
    series.x.push_back(static_cast<double>(step.step()));
    series.y.push_back(step.loss());
  }
  return series;
}

// For a cell of a Markdown table, which also knows HTML.
std::string Cell(std::string_view text) {
  return absl::StrReplaceAll(HtmlEscaped(std::string(text)), {{"|", "\\|"},
                                                              {"\n", " "},
                                                              {"\r", " "},
                                                              {"`", "\\`"},
                                                              {"*", "\\*"},
                                                              {"_", "\\_"},
                                                              {"[", "\\["}});
}

// Longer than any run of backticks within.
std::string Fence(const std::string& text) {
  size_t longest = 0;
  size_t run = 0;
  for (const char c : text) {
    run = c == '`' ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  return std::string(std::max<size_t>(3, longest + 1), '`');
}

std::string MarkdownTable(const Rows& rows) {
  std::string out = "| | |\n|---|---|\n";
  for (const auto& [name, text] : rows) {
    absl::StrAppend(&out, "| ", Cell(name), " | ", Cell(text), " |\n");
  }
  return out + "\n";
}

std::string HtmlTable(const Rows& rows) {
  std::string out = "<table>\n";
  for (const auto& [name, text] : rows) {
    absl::StrAppend(&out, "<tr><th>", HtmlEscaped(name), "</th><td>", HtmlEscaped(text),
                    "</td></tr>\n");
  }
  return out + "</table>\n";
}

// The mean loss of each of at most kSvgPoints stretches; one with a loss that is not finite has
// none, which parts the line.
plot::Curve Thinned(const PlotSeries& series) {
  plot::Curve thin;
  const size_t points = std::min(kSvgPoints, series.x.size());
  for (size_t i = 0; i < points; ++i) {
    const size_t begin = i * series.x.size() / points;
    const size_t end = (i + 1) * series.x.size() / points;
    double sum = 0.0;
    for (size_t j = begin; j < end; ++j) {
      sum += series.y[j];
    }
    // The first and the last step are points, so that the curve spans the whole run.
    thin.push_back(
        {series.x[i + 1 == points ? end - 1 : begin], sum / static_cast<double>(end - begin)});
  }
  return thin;
}

std::string Svg(const plot::Curve& curve) {
  plot::Range losses = plot::kNothing;
  plot::Widen(curve, 0, losses);
  if (losses.low > losses.high) {
    return "<p>No loss yet.</p>\n";
  }
  // A single step has no width that could be drawn.
  const plot::Panel panel({64, 8, 648, 184},
                          {curve.front().x, std::max(curve.back().x, curve.front().x + 1)},
                          plot::WithMargin(losses));
  return plot::Picture(
      720, 240, "loss by step", /*heading=*/false,
      absl::StrCat(panel.Axes(""), panel.StepName(), panel.Line(curve, plot::ColourOf(0))));
}

constexpr const char* kStyle =
    ":root{color-scheme:light dark}"
    "body{font:15px/1.5 system-ui,sans-serif;max-width:48rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse;width:100%}"
    "th,td{text-align:left;vertical-align:top;padding:.2rem .8rem .2rem 0;"
    "border-bottom:1px solid #8884}td:last-child{overflow-wrap:anywhere}"
    "th{font-weight:600;white-space:nowrap}"
    "svg{width:100%}"
    ".warning,.failed{color:#c33;font-weight:600}"
    "pre{overflow-x:auto;padding:.8rem;border:1px solid #8884}";

Json OrNull(const std::optional<double>& value) {
  return value.has_value() && std::isfinite(*value) ? Json(*value) : Json(nullptr);
}

std::optional<double> Given(bool given, double value) {
  return given ? std::optional<double>(value) : std::nullopt;
}

// 0 and "" stand for what is not known or not given.
Json OrNull(double value) {
  return value > 0.0 ? Json(value) : Json(nullptr);
}

Json PositiveOrNull(int64_t value) {
  return value > 0 ? Json(value) : Json(nullptr);
}
Json OrNull(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

Json OrNull(bool known, const google::protobuf::Timestamp& time) {
  return known ? Json(absl::FormatTime(absl::RFC3339_full, TimeOf(time), absl::UTCTimeZone()))
               : Json(nullptr);
}

Json ToJson(const v1::SampleText& sample) {
  return {{"step", sample.step()},
          {"prompt", sample.prompt()},
          {"text", sample.text()},
          {"tokens", sample.tokens()},
          {"end", std::string(spec::TextEndName(sample.end()))}};
}

Json ToJson(const v1::EvaluationResult& result) {
  return {
      {"name", result.name()},
      {"task", result.task()},
      {"step", result.step()},
      {"items", result.items()},
      {"acc", result.accuracy()},
      {"acc_norm", OrNull(Given(result.has_accuracy_normalised(), result.accuracy_normalised()))},
      {"acc_bytes", OrNull(Given(result.has_accuracy_bytes(), result.accuracy_bytes()))},
      {"perplexity", OrNull(Given(result.has_perplexity(), result.perplexity()))}};
}

// What task: eval has found; a model without results is not evaluated yet.
Json ModelsAsJson(const v1::Job& job) {
  Json models = Json::array();
  for (const v1::EvaluatedModel& model : job.models()) {
    Json evaluations = Json::array();
    for (const v1::EvaluationResult& result : model.evaluations()) {
      evaluations.push_back(ToJson(result));
    }
    Json data = Json::array();
    for (const v1::HeldOutLoss& loss : model.held_out()) {
      data.push_back(
          {{"path", loss.source()},
           {"loss", OrNull(loss.loss())},
           {"bits_per_byte", OrNull(Given(loss.has_bits_per_byte(), loss.bits_per_byte()))},
           {"tokens", loss.tokens()}});
    }
    models.push_back({{"path", model.checkpoint().path()},
                      {"job_id", OrNull(model.checkpoint().job_id())},
                      {"step", PositiveOrNull(model.checkpoint().step())},
                      {"evaluations", std::move(evaluations)},
                      {"data", std::move(data)}});
  }
  return models;
}

// Lists of sentences, each with its title.
struct ListRow {
  const char* title;
  std::vector<std::string> Report::*lines;
};
constexpr ListRow kLists[] = {
    {"Recoveries", &Report::recoveries},
    {"Notes", &Report::notes},
};

std::string MarkdownList(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) {
    absl::StrAppend(&out, "- ", Cell(line), "\n");
  }
  return lines.empty() ? "None.\n" : out;
}

std::string HtmlList(const std::vector<std::string>& lines) {
  std::string out = "<ul>\n";
  for (const std::string& line : lines) {
    absl::StrAppend(&out, "<li>", HtmlEscaped(line), "</li>\n");
  }
  return lines.empty() ? "<p>None.</p>\n" : out + "</ul>\n";
}

// The part of a page that is about one job.
std::string HtmlBody(const Report& report) {
  std::string out =
      absl::StrCat("<h1>", HtmlEscaped(Title(report)), "</h1>\n<h2>Verdict</h2>\n<table>\n");
  for (const Finding& finding : report.verdict) {
    const std::string verdict = VerdictName(finding.verdict);
    absl::StrAppend(&out, "<tr><th class=\"", verdict, "\">", verdict, "</th><td>",
                    HtmlEscaped(finding.check), "</td><td>", HtmlEscaped(finding.text),
                    "</td></tr>\n");
  }
  absl::StrAppend(&out, "</table>\n<h2>Numbers</h2>\n", HtmlTable(NumberRows(report)));
  if (spec::Trains(report.job.spec())) {
    absl::StrAppend(&out, "<h2>Loss</h2>\n", Svg(Thinned(LossSeries(report))));
  }
  absl::StrAppend(&out, "<h2>Where</h2>\n", HtmlTable(PlaceRows(report)));
  for (const ListRow& row : kLists) {
    absl::StrAppend(&out, "<h2>", row.title, "</h2>\n", HtmlList(report.*row.lines));
  }
  absl::StrAppend(&out, "<h2>Job file</h2>\n<p><code>",
                  HtmlEscaped(RerunCommand(report.job.job_id())),
                  "</code> runs it again, or <code>jobctl submit -f FILE</code> with this as "
                  "FILE:</p>\n<pre>",
                  HtmlEscaped(report.spec_yaml), "</pre>\n");
  return out;
}

}  // namespace

std::string RenderMarkdown(const Report& report) {
  std::string out = absl::StrCat("# ", Cell(Title(report)), "\n\n## Verdict\n\n",
                                 "| | check | |\n|---|---|---|\n");
  for (const Finding& finding : report.verdict) {
    absl::StrAppend(&out, "| ", VerdictName(finding.verdict), " | ", Cell(finding.check), " | ",
                    Cell(finding.text), " |\n");
  }
  PlotOptions plot;
  plot.width = 76;
  plot.height = 16;
  absl::StrAppend(&out, "\n## Numbers\n\n", MarkdownTable(NumberRows(report)));
  if (spec::Trains(report.job.spec())) {
    absl::StrAppend(&out, "## Loss\n\n```\n",
                    RenderPlot("loss by step", {LossSeries(report)}, plot), "```\n\n");
  }
  absl::StrAppend(&out, "## Where\n\n", MarkdownTable(PlaceRows(report)));
  for (const ListRow& row : kLists) {
    absl::StrAppend(&out, "## ", row.title, "\n\n", MarkdownList(report.*row.lines), "\n");
  }
  const std::string fence = Fence(report.spec_yaml);
  absl::StrAppend(&out, "## Job file\n\n`", RerunCommand(report.job.job_id()),
                  "` runs it again, or `jobctl submit -f FILE` with this as FILE:\n\n", fence,
                  "yaml\n", report.spec_yaml,
                  report.spec_yaml.empty() || report.spec_yaml.back() == '\n' ? "" : "\n", fence,
                  "\n");
  return out;
}

std::string RenderHtml(absl::Span<const Report> reports) {
  std::string out = absl::StrCat(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>",
      reports.size() == 1 ? HtmlEscaped(Title(reports[0])) : absl::StrCat(reports.size(), " jobs"),
      "</title>\n<style>", kStyle, "</style>\n</head>\n<body>\n");
  for (const Report& report : reports) {
    out += HtmlBody(report);
  }
  return out + "</body>\n</html>\n";
}

std::string RenderHtml(const Report& report) {
  return RenderHtml(absl::MakeConstSpan(&report, 1));
}

std::string RenderMarkdown(absl::Span<const Report> reports) {
  std::string out;
  for (const Report& report : reports) {
    absl::StrAppend(&out, out.empty() ? "" : "\n", RenderMarkdown(report));
  }
  return out;
}

std::string RenderJson(absl::Span<const Report> reports) {
  std::string out;
  for (const Report& report : reports) {
    absl::StrAppend(&out, out.empty() ? "[\n" : ",\n", RenderJson(report));
  }
  return out + "]\n";
}

std::string RenderJson(const Report& report) {
  const Usage& usage = report.usage;
  Json verdict = Json::array();
  for (const Finding& finding : report.verdict) {
    verdict.push_back({{"check", finding.check},
                       {"status", VerdictName(finding.verdict)},
                       {"text", finding.text}});
  }
  Json devices = Json::array();
  for (const ReportDevice& device : report.devices) {
    devices.push_back({{"worker", device.worker_id},
                       {"host", device.host},
                       {"kind", device.kind},
                       {"model", device.model},
                       {"driver", OrNull(device.driver)},
                       {"cuda", OrNull(device.cuda)},
                       {"version", device.version}});
  }
  Json evaluations = Json::array();
  for (const v1::EvaluationResult& result : report.job.last_report().evaluations()) {
    evaluations.push_back(ToJson(result));
  }
  Json samples = Json::array();
  for (const v1::SampleText& sample : report.job.last_report().samples()) {
    samples.push_back(ToJson(sample));
  }
  const Json out = {{"schema", "hearth.report/v1"},
                    {"job_id", report.job.job_id()},
                    {"state", StateName(report.job.state())},
                    {"reason", report.job.reason()},
                    {"create_time", OrNull(report.job.has_create_time(), report.job.create_time())},
                    {"end_time", OrNull(report.job.has_end_time(), report.job.end_time())},
                    {"unit", std::string(spec::StepUnit(report.job.spec()))},
                    {"step", report.job.step()},
                    {"steps", spec::TotalSteps(report.job)},
                    {"verdict", std::move(verdict)},
                    {"parameters", PositiveOrNull(report.job.run_info().parameters())},
                    {"recipe", OrNull(report.job.run_info().recipe())},
                    {"ranks", PositiveOrNull(report.job.run_info().world_size())},
                    {"tokens", usage.tokens},
                    {"running_seconds", usage.seconds},
                    {"mean_tokens_per_second", OrNull(report.mean_tokens_per_second)},
                    {"final_loss", OrNull(report.final_loss)},
                    {"final_validation_loss", OrNull(report.final_validation_loss)},
                    {"best_validation_loss", OrNull(report.best_validation_loss)},
                    {"best_validation_step", PositiveOrNull(report.best_validation_step)},
                    {"energy_joules", OrNull(usage.joules)},
                    {"tokens_per_joule", OrNull(usage.tokens_per_joule)},
                    {"currency", report.prices.currency},
                    {"price_per_kwh", OrNull(report.prices.per_kwh)},
                    {"price_per_gpu_hour", OrNull(report.prices.per_gpu_hour)},
                    {"cost", OrNull(usage.cost)},
                    {"cost_to_end", OrNull(usage.cost_left)},
                    {"cost_per_billion_tokens", OrNull(usage.cost_per_billion_tokens)},
                    {"evaluations", std::move(evaluations)},
                    {"samples", std::move(samples)},
                    {"models", ModelsAsJson(report.job)},
                    {"devices", std::move(devices)},
                    {"coordinator_version", report.coordinator_version},
                    {"jobctl_version", report.jobctl_version},
                    {"hottest_celsius", OrNull(report.job.devices().hottest_celsius())},
                    {"temperature_limit", report.temperature_limit},
                    {"recoveries", report.recoveries},
                    {"notes", report.notes},
                    {"command", RerunCommand(report.job.job_id())},
                    {"spec", report.spec_yaml}};
  // Text from a job file need not be UTF-8.
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace hearth::jobctl
