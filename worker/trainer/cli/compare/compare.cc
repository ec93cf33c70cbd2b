#include "worker/trainer/cli/compare/compare.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "common/base/units.h"
#include "common/base/version.h"
#include "google/protobuf/util/json_util.h"
#include "nlohmann/json.hpp"
#include "worker/trainer/guard/recipe_trial.h"

namespace hearth::trainer {
namespace {

using Json = nlohmann::ordered_json;

// Clocks, caches and CUDA's first launches settle in these.
constexpr size_t kSettlingSteps = 10;

absl::Status ParseJson(std::string_view text, google::protobuf::Message& message) {
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  const auto parsed = google::protobuf::util::JsonStringToMessage(
      google::protobuf::StringPiece(text.data(), text.size()), &message, options);
  return parsed.ok() ? absl::OkStatus() : absl::DataLossError(parsed.ToString());
}

double Median(std::vector<double> values) {
  if (values.empty()) {
    return 0;
  }
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::optional<double> Ratio(double value, double base) {
  return base > 0 && value > 0 ? std::optional<double>(value / base) : std::nullopt;
}

// The relative gap in percent.
std::optional<double> Gap(const std::optional<double>& value, const std::optional<double>& base) {
  const std::optional<double> gap = RelativeGap(value, base);
  return gap.has_value() ? std::optional<double>(100 * *gap) : std::nullopt;
}

std::vector<double> Losses(const std::vector<LossPoint>& points) {
  std::vector<double> losses;
  losses.reserve(points.size());
  for (const LossPoint& point : points) {
    losses.push_back(point.loss);
  }
  return losses;
}

std::string OrDash(const std::optional<double>& value, const absl::FormatSpec<double>& format) {
  return value.has_value() ? absl::StrFormat(format, *value) : "-";
}

Json OrNull(const std::optional<double>& value) {
  return value.has_value() && std::isfinite(*value) ? Json(*value) : Json(nullptr);
}

// 12,345,678
std::string Grouped(int64_t value) {
  std::string digits = absl::StrCat(value);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<size_t>(at), 1, ',');
  }
  return digits;
}

std::vector<std::string> Cells(const ComparedRun& run) {
  return {run.recipe,
          run.execution,
          OrDash(run.training_loss, "%.4f"),
          OrDash(run.training_gap, "%+.2f %%"),
          OrDash(run.held_out_loss, "%.4f"),
          OrDash(run.held_out_gap, "%+.2f %%"),
          Grouped(std::llround(run.tokens_per_second)),
          OrDash(run.speed_ratio, "%.2f"),
          FormatBytes(run.memory_bytes),
          OrDash(run.memory_ratio, "%.2f"),
          FormatBytes(run.planned_bytes),
          OrDash(run.planned_ratio, "%.2f"),
          absl::StrCat(run.skipped_steps),
          absl::StrCat(run.redone_steps)};
}

void Pad(std::string& line, const std::string& cell, size_t width, bool left) {
  const std::string fill(width > cell.size() ? width - cell.size() : 0, ' ');
  absl::StrAppend(&line, line.empty() ? "" : "  ", left ? cell : fill, left ? fill : cell);
}

Json RunJson(const ComparedRun& run) {
  Json out;
  out["recipe"] = run.recipe;
  out["state"] = run.state;
  out["problem"] = run.problem;
  out["execution"] = run.execution;
  out["steps"] = run.training.empty() ? 0 : run.training.back().step;
  out["tokens"] = run.tokens;
  out["micro_batch_size"] = run.micro_batch_size;
  out["global_batch_tokens"] = run.global_batch_tokens;
  out["training_loss"] = OrNull(run.training_loss);
  out["training_gap_percent"] = OrNull(run.training_gap);
  out["held_out_loss"] = OrNull(run.held_out_loss);
  out["held_out_gap_percent"] = OrNull(run.held_out_gap);
  out["tokens_per_second"] = run.tokens_per_second;
  out["speed_ratio"] = OrNull(run.speed_ratio);
  out["memory_bytes"] = run.memory_bytes;
  out["memory_ratio"] = OrNull(run.memory_ratio);
  out["planned_bytes"] = run.planned_bytes;
  out["planned_ratio"] = OrNull(run.planned_ratio);
  out["skipped_steps"] = run.skipped_steps;
  out["redone_steps"] = run.redone_steps;
  return out;
}

void AddStep(const v1::StepReport& step, std::vector<double>& speeds, ComparedRun& run) {
  run.training.push_back({step.step(), step.loss()});
  if (step.has_validation_loss()) {
    run.held_out.push_back({step.step(), step.validation_loss()});
  }
  speeds.push_back(step.tokens_per_second());
  run.tokens = step.tokens();
  run.memory_bytes = std::max(run.memory_bytes, step.memory_bytes());
  run.skipped_steps = step.skipped_steps();
  run.redone_steps = step.guard().redone_steps();
}

}  // namespace

absl::Status ReadRun(Env& env, const std::string& folder, int64_t window, ComparedRun& run) {
  HEARTH_ASSIGN_OR_RETURN(const std::string info_text, env.ReadFile(folder + "/run.json"));
  v1::RunInfo info;
  HEARTH_RETURN_IF_ERROR(ParseJson(info_text, info));
  run.execution = info.recipe_execution();
  run.planned_bytes = info.planned_bytes();
  run.micro_batch_size = info.micro_batch_size();
  run.global_batch_tokens = info.global_batch_tokens();
  HEARTH_ASSIGN_OR_RETURN(const std::string metrics, env.ReadFile(folder + "/metrics.jsonl"));
  std::vector<double> speeds;
  for (const absl::string_view line : absl::StrSplit(metrics, '\n', absl::SkipEmpty())) {
    v1::StepReport step;
    HEARTH_RETURN_IF_ERROR(ParseJson({line.data(), line.size()}, step));
    AddStep(step, speeds, run);
  }
  const size_t settling = std::min(kSettlingSteps, speeds.size() / 4);
  speeds.erase(speeds.begin(), speeds.begin() + static_cast<std::ptrdiff_t>(settling));
  run.tokens_per_second = Median(std::move(speeds));
  if (!run.training.empty()) {
    run.training_loss = MeanOfLast(Losses(run.training), window);
  }
  if (!run.held_out.empty()) {
    run.held_out_loss = run.held_out.back().loss;
  }
  return absl::OkStatus();
}

void Relate(Comparison& comparison) {
  if (comparison.runs.empty() || !comparison.runs.front().ok()) {
    return;
  }
  const ComparedRun& base = comparison.runs.front();
  for (size_t i = 1; i < comparison.runs.size(); ++i) {
    ComparedRun& run = comparison.runs[i];
    if (!run.ok()) {
      continue;
    }
    run.training_gap = Gap(run.training_loss, base.training_loss);
    run.held_out_gap = Gap(run.held_out_loss, base.held_out_loss);
    run.speed_ratio = Ratio(run.tokens_per_second, base.tokens_per_second);
    run.memory_ratio =
        Ratio(static_cast<double>(run.memory_bytes), static_cast<double>(base.memory_bytes));
    run.planned_ratio =
        Ratio(static_cast<double>(run.planned_bytes), static_cast<double>(base.planned_bytes));
  }
}

std::string CompareTable(const Comparison& comparison) {
  // A column's ratio or gap is named after the column before it.
  const std::vector<std::string> header = {"recipe",  "runs",  "training", "gap",    "held out",
                                           "gap",     "tok/s", "ratio",    "memory", "ratio",
                                           "planned", "ratio", "skipped",  "redone"};
  std::vector<size_t> widths;
  widths.reserve(header.size());
  for (const std::string& cell : header) {
    widths.push_back(cell.size());
  }
  for (const ComparedRun& run : comparison.runs) {
    widths[0] = std::max(widths[0], run.recipe.size());
    const std::vector<std::string> cells = Cells(run);
    for (size_t i = 1; run.ok() && i < cells.size(); ++i) {
      widths[i] = std::max(widths[i], cells[i].size());
    }
  }
  std::string out = absl::StrFormat("%s on %s: %s steps", comparison.job, comparison.device,
                                    Grouped(comparison.steps));
  if (!comparison.runs.empty()) {
    const ComparedRun& base = comparison.runs.front();
    if (base.global_batch_tokens > 0) {
      absl::StrAppend(&out, " of ", Grouped(base.global_batch_tokens), " tokens");
    }
    absl::StrAppend(&out, "; training: mean of the last ", comparison.window,
                    "; gaps and ratios: to ", base.recipe);
  }
  out += "\n\n";
  const auto add = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (size_t i = 0; i < cells.size(); ++i) {
      Pad(line, cells[i], widths[i], i < 2);
    }
    absl::StrAppend(&out, line, "\n");
  };
  add(header);
  for (const ComparedRun& run : comparison.runs) {
    if (run.ok()) {
      add(Cells(run));
      continue;
    }
    std::string line;
    Pad(line, run.recipe, widths[0], true);
    absl::StrAppend(&out, line, "  ", run.state, run.problem.empty() ? "" : ": ", run.problem,
                    "\n");
  }
  return out;
}

std::string CompareJson(const Comparison& comparison) {
  Json out;
  out["job"] = comparison.job;
  out["commit"] = std::string(GitCommit());
  out["device"] = comparison.device;
  out["steps"] = comparison.steps;
  out["window"] = comparison.window;
  out["reference"] = comparison.runs.empty() ? "" : comparison.runs.front().recipe;
  out["runs"] = Json::array();
  for (const ComparedRun& run : comparison.runs) {
    out["runs"].push_back(RunJson(run));
  }
  // A problem may quote bytes of a file that are not text.
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace hearth::trainer
