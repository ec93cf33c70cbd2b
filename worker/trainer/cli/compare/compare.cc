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
#include "worker/trainer/cli/compare/compare_rows.h"
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

// Characters of UTF-8 text.
size_t Width(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

void Pad(std::string& line, const std::string& cell, size_t width, bool left) {
  const std::string fill(width > Width(cell) ? width - Width(cell) : 0, ' ');
  absl::StrAppend(&line, line.empty() ? "" : "  ", left ? cell : fill, left ? fill : cell);
}

struct TableLine {
  std::vector<std::string> cells;
  std::string problem;  // stands in the place of all cells but the first
};

// The first two columns are words, the others numbers.
std::string TableOf(const std::vector<std::string>& header, const std::vector<TableLine>& lines) {
  std::vector<size_t> widths;
  for (const std::string& cell : header) {
    widths.push_back(Width(cell));
  }
  for (const TableLine& line : lines) {
    const size_t cells = line.problem.empty() ? line.cells.size() : 1;
    for (size_t i = 0; i < cells; ++i) {
      widths[i] = std::max(widths[i], Width(line.cells[i]));
    }
  }
  std::string out;
  const auto add = [&](const std::vector<std::string>& cells) {
    std::string text;
    for (size_t i = 0; i < cells.size(); ++i) {
      Pad(text, cells[i], widths[i], i < 2);
    }
    absl::StrAppend(&out, text, "\n");
  };
  add(header);
  for (const TableLine& line : lines) {
    if (line.problem.empty()) {
      add(line.cells);
      continue;
    }
    std::string text;
    Pad(text, line.cells.front(), widths[0], true);
    absl::StrAppend(&out, text, "  ", line.problem, "\n");
  }
  return out;
}

std::string ProblemText(const ComparedRun& run) {
  return absl::StrCat(run.state, run.problem.empty() ? "" : ": ", run.problem);
}

std::string Title(const Comparison& comparison) {
  std::string out = absl::StrFormat("%s on %s: %s steps", comparison.job, comparison.device,
                                    Grouped(comparison.steps));
  if (!comparison.runs.empty()) {
    const auto known =
        std::find_if(comparison.runs.begin(), comparison.runs.end(),
                     [](const ComparedRun& run) { return run.global_batch_tokens > 0; });
    if (known != comparison.runs.end()) {
      absl::StrAppend(&out, " of ", Grouped(known->global_batch_tokens), " tokens");
    }
    absl::StrAppend(&out, "; training: mean of the last ", comparison.window,
                    "; gaps and ratios: to ", comparison.runs.front().recipe,
                    comparison.seeds > 0 ? " with the same seed, mean ± standard error" : "");
  }
  return out + "\n\n";
}

// The median of a figure over the runs that are ok; a run without it has 0.
template <typename Figure>
double MedianOf(const Comparison& comparison, const CompareRow& row, const Figure& figure) {
  std::vector<double> values;
  for (const size_t i : row.runs) {
    if (comparison.runs[i].ok()) {
      values.push_back(figure(comparison.runs[i]));
    }
  }
  return Median(std::move(values));
}

// The run that says why a row has none that is ok: the first that failed, or else the first.
const ComparedRun& Telling(const Comparison& comparison, const CompareRow& row) {
  for (const size_t i : row.runs) {
    if (!comparison.runs[i].not_ended()) {
      return comparison.runs[i];
    }
  }
  return comparison.runs[row.runs.front()];
}

// Digits after the point of the columns of gaps.
struct GapColumns {
  int training = 2;
  int held_out = 2;
};

TableLine RowLine(const Comparison& comparison, const CompareRow& row, const GapColumns& digits) {
  const auto mean = [](const std::optional<MeanOfSeeds>& of) {
    return of.has_value() ? absl::StrFormat("%.4f", of->mean) : std::string("-");
  };
  const auto gap = [](const std::optional<MeanOfSeeds>& of, int after_point) {
    return of.has_value() ? GapText(*of, after_point) : std::string("-");
  };
  const auto median = [&](const auto& figure) { return MedianOf(comparison, row, figure); };
  const auto ratio = [&](std::optional<double> ComparedRun::*of) {
    const double value = median([&](const ComparedRun& run) { return (run.*of).value_or(0); });
    return value > 0 ? absl::StrFormat("%.2f", value) : std::string("-");
  };
  if (row.ok == 0) {
    return {{row.name}, ProblemText(Telling(comparison, row))};
  }
  int64_t skipped = 0;
  int64_t redone = 0;
  std::string execution;
  for (const size_t i : row.runs) {
    const ComparedRun& run = comparison.runs[i];
    skipped += run.skipped_steps;
    redone += run.redone_steps;
    execution = run.ok() ? run.execution : execution;
  }
  return {
      {row.name, execution,
       absl::StrCat(row.ok, row.runs.size() == static_cast<size_t>(row.ok)
                                ? ""
                                : absl::StrCat(" of ", row.runs.size())),
       mean(row.training_loss), gap(row.training_gap, digits.training), mean(row.held_out_loss),
       gap(row.held_out_gap, digits.held_out),
       Grouped(std::llround(median([](const ComparedRun& run) { return run.tokens_per_second; }))),
       ratio(&ComparedRun::speed_ratio),
       FormatBytes(static_cast<int64_t>(
           median([](const ComparedRun& run) { return static_cast<double>(run.memory_bytes); }))),
       ratio(&ComparedRun::memory_ratio), absl::StrCat(skipped), absl::StrCat(redone)},
      ""};
}

// "not ended: bf16 seed 1234; fp8 seed 1235" as a line; empty: all have.
std::string NotEnded(const Comparison& comparison) {
  std::vector<std::string> names;
  for (const ComparedRun& run : comparison.runs) {
    if (run.not_ended()) {
      names.push_back(
          absl::StrCat(run.name(), run.seed.has_value() ? absl::StrCat(" seed ", *run.seed) : ""));
    }
  }
  return names.empty() ? "" : absl::StrCat("not ended: ", Listed(names), "\n");
}

// What is missing, as lines.
std::string Missing(const Comparison& comparison) {
  const std::string problem = ProblemOf(comparison);
  return absl::StrCat(NotEnded(comparison), problem, problem.empty() ? "" : "\n");
}

// What is missing, why runs of rows that have others failed, and what is not significant.
std::string Below(const Comparison& comparison, const std::vector<CompareRow>& rows) {
  std::string out = absl::StrCat(Missing(comparison), FewerSeeds(rows));
  for (const CompareRow& row : rows) {
    for (const size_t i : row.runs) {
      const ComparedRun& run = comparison.runs[i];
      if (row.ok > 0 && !run.ok() && !run.not_ended()) {
        absl::StrAppend(&out, run.name(), " with seed ", run.seed.value_or(0), ": ",
                        ProblemText(run), "\n");
      }
    }
  }
  if (comparison.seeds < 2) {
    return out + "\nOne seed does not show which gaps are significant; --seeds 3 does.\n";
  }
  const std::string not_significant = NotSignificant(comparison, rows);
  return absl::StrCat(out, not_significant.empty() ? "" : "\nWith a probability of error of 5 %:\n",
                      not_significant);
}

Json RunJson(const ComparedRun& run) {
  Json out;
  out["recipe"] = run.recipe;
  if (run.seed.has_value()) {
    out["seed"] = *run.seed;
  }
  if (!run.setting.empty()) {
    out["setting"] = run.setting;
  }
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

Json MeanJson(const std::optional<MeanOfSeeds>& of) {
  if (!of.has_value()) {
    return nullptr;
  }
  Json out;
  out["mean"] = of->mean;
  out["standard_error"] = of->seeds > 1 ? Json(of->error) : Json(nullptr);
  out["seeds"] = of->seeds;
  return out;
}

Json RowJson(const CompareRow& row) {
  Json out;
  out["name"] = row.name;
  out["runs"] = row.runs.size();
  out["ok"] = row.ok;
  out["training_loss"] = MeanJson(row.training_loss);
  out["held_out_loss"] = MeanJson(row.held_out_loss);
  out["training_gap_percent"] = MeanJson(row.training_gap);
  out["held_out_gap_percent"] = MeanJson(row.held_out_gap);
  out["gap_significant"] = row.gap().has_value() ? Json(row.gap()->significant()) : Json(nullptr);
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

bool Comparison::in_rows() const {
  return seeds > 0 || std::any_of(runs.begin(), runs.end(),
                                  [](const ComparedRun& run) { return !run.setting.empty(); });
}

std::optional<size_t> ReferenceOf(const Comparison& comparison, size_t run) {
  const std::vector<ComparedRun>& runs = comparison.runs;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].recipe == runs.front().recipe && runs[i].seed == runs[run].seed &&
        runs[i].setting == runs[run].reference_setting) {
      return i;
    }
  }
  return std::nullopt;
}

void Relate(Comparison& comparison) {
  for (size_t i = 0; i < comparison.runs.size(); ++i) {
    const std::optional<size_t> reference = ReferenceOf(comparison, i);
    if (!reference.has_value() || *reference == i || !comparison.runs[*reference].ok()) {
      continue;
    }
    const ComparedRun& base = comparison.runs[*reference];
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

std::string ProblemOf(const Comparison& comparison) {
  bool any = false;
  for (const ComparedRun& run : comparison.runs) {
    if (run.ok() && run.recipe == comparison.runs.front().recipe) {
      return "";
    }
    any |= run.ok();
  }
  return any ? absl::StrCat("no run of ", comparison.runs.front().recipe,
                            ", the reference, has ended well, so there are no gaps")
             : "";
}

std::string CompareTable(const Comparison& comparison) {
  // A column's ratio or gap is named after the column before it.
  if (comparison.in_rows()) {
    const std::vector<CompareRow> rows = RowsOf(comparison);
    const GapColumns digits = {GapDigits(rows, &CompareRow::training_gap),
                               GapDigits(rows, &CompareRow::held_out_gap)};
    std::vector<TableLine> lines;
    for (const CompareRow& row : rows) {
      lines.push_back(RowLine(comparison, row, digits));
    }
    return Title(comparison) +
           TableOf({"recipe", "runs", "seeds", "training", "gap", "held out", "gap", "tok/s",
                    "ratio", "memory", "ratio", "skipped", "redone"},
                   lines) +
           Below(comparison, rows);
  }
  std::vector<TableLine> lines;
  for (const ComparedRun& run : comparison.runs) {
    lines.push_back({Cells(run), run.ok() ? "" : ProblemText(run)});
  }
  return Title(comparison) +
         TableOf({"recipe", "runs", "training", "gap", "held out", "gap", "tok/s", "ratio",
                  "memory", "ratio", "planned", "ratio", "skipped", "redone"},
                 lines) +
         Missing(comparison);
}

std::string CompareJson(const Comparison& comparison) {
  Json out;
  out["job"] = comparison.job;
  out["commit"] = std::string(GitCommit());
  out["device"] = comparison.device;
  out["steps"] = comparison.steps;
  out["window"] = comparison.window;
  out["reference"] = comparison.runs.empty() ? "" : comparison.runs.front().recipe;
  out["problem"] = ProblemOf(comparison);
  out["runs"] = Json::array();
  for (const ComparedRun& run : comparison.runs) {
    out["runs"].push_back(RunJson(run));
  }
  if (comparison.in_rows()) {
    out["seeds"] = comparison.seeds;
    out["rows"] = Json::array();
    for (const CompareRow& row : RowsOf(comparison)) {
      out["rows"].push_back(RowJson(row));
    }
  }
  // A problem may quote bytes of a file that are not text.
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace hearth::trainer
