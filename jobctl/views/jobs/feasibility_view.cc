#include "jobctl/views/jobs/feasibility_view.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/units.h"
#include "common/spec/feasibility/feasibility_text.h"
#include "common/spec/feasibility/memory/parameter_bytes.h"
#include "common/spec/feasibility/step_parts.h"
#include "common/spec/gpus/gpus.h"
#include "jobctl/views/jobs/plan_columns.h"
#include "jobctl/views/output/table.h"
#include "jobctl/views/text/display_text.h"
#include "nlohmann/json.hpp"

namespace hearth::jobctl {
namespace {

using spec::Feasibility;

double Gb(int64_t bytes) {
  return static_cast<double>(bytes) * 1e-9;
}

std::vector<std::string> Header() {
  std::vector<std::string> header;
  for (const PlanColumn& column : PlanColumns()) {
    header.emplace_back(column.title);
  }
  return header;
}

std::vector<std::string> Row(const Feasibility& f, const spec::FeasibilityQuery& query) {
  std::vector<std::string> row;
  for (const PlanColumn& column : PlanColumns()) {
    row.push_back(column.text(f, query.prices.currency));
  }
  return row;
}

constexpr const char* kLargestNote =
    "The largest model of the job's family (layers and heads scaled) that trains, with the "
    "smallest micro-batch, recompute: block and gradients in bf16.\n";

// The rule of thumb for formats that people ask for.
std::string TiersTable(const std::vector<const spec::GpuRow*>& rows, int gpus, int columns) {
  std::vector<std::string> header = {"GPU"};
  for (const spec::ParameterBytes* tier : spec::ParameterByteTiers()) {
    header.push_back(absl::StrFormat("AT-%.3fB", tier->bytes()));
  }
  Table table(header);
  for (const spec::GpuRow* gpu : rows) {
    std::vector<std::string> row = {gpu->name};
    for (const spec::ParameterBytes* tier : spec::ParameterByteTiers()) {
      row.push_back(FormatCount(spec::LargestParameters(gpu->memory_gb * gpus, tier->bytes())));
    }
    table.Add(std::move(row));
  }
  std::string out = absl::StrFormat(
      "\nBy a rule of thumb: %.0f %% of the nominal memory divided by the bytes of a parameter.\n",
      100 * spec::kParameterShare);
  absl::StrAppend(&out, table.Render(columns));
  for (const spec::ParameterBytes* tier : spec::ParameterByteTiers()) {
    absl::StrAppendFormat(
        &out, "AT-%.3fB: %s; %s.\n", tier->bytes(), tier->name,
        tier->built ? "this version supports it" : "this version does not support it");
  }
  return out;
}

nlohmann::json Number(bool known, double value) {
  return known && std::isfinite(value) ? nlohmann::json(value) : nlohmann::json();
}

nlohmann::json Optional(const std::optional<double>& value) {
  return Number(value.has_value(), value.value_or(0));
}

nlohmann::json MemoryJson(const Feasibility& f) {
  nlohmann::json out = {{"total_bytes", f.total_bytes},
                        {"device_bytes", f.device_bytes},
                        {"host_bytes", f.host_bytes},
                        {"largest_micro_batch", f.largest_micro_batch}};
  for (const spec::MemoryPart& part : f.memory) {
    out["parts"].push_back({{"name", part.name}, {"bytes", part.bytes}});
  }
  for (const spec::LevelRow& level : f.levels) {
    out["levels"].push_back({{"recompute", level.recompute},
                             {"activation_bytes_per_token", level.activation_bytes},
                             {"total_bytes", level.total_bytes},
                             {"largest_micro_batch", level.largest_micro_batch},
                             {"step_seconds", Number(level.step_seconds > 0, level.step_seconds)},
                             {"fits", level.fits}});
  }
  for (const spec::Saving& saving : f.savings) {
    out["remedies"].push_back({{"change", saving.change},
                               {"saved_bytes", saving.saved_bytes},
                               {"time_ratio", Number(saving.time_ratio > 0, saving.time_ratio)},
                               {"loss", saving.loss}});
  }
  return out;
}

nlohmann::json TimeJson(const Feasibility& f) {
  const spec::StepTime& t = f.time;
  const bool known = t.known();
  nlohmann::json out = {{"unknown", known ? nlohmann::json() : nlohmann::json(t.unknown)},
                        {"tok_s", Number(known, f.tok_s)},
                        {"peak_tok_s", Number(known, f.peak_tok_s)},
                        {"mfu", Number(known, f.mfu)},
                        {"peak_share", Number(known, f.peak_share())},
                        {"step_seconds", Number(known, t.seconds)},
                        {"seconds", Number(known, f.seconds)},
                        {"goodput", Number(known, f.goodput)},
                        {"watts", Number(t.watts > 0, t.watts)}};
  for (const spec::StepPart& part : spec::kStepParts) {
    out["step"][part.key] = t.*part.seconds;
  }
  for (const spec::ProductTime& p : t.products) {
    out["products"].push_back({{"weight", p.work.weight},
                               {"pass", p.work.pass},
                               {"format", std::string(spec::MatrixFormatName(p.work.format))},
                               {"m", p.work.m},
                               {"n", p.work.n},
                               {"k", p.work.k},
                               {"calls", p.work.calls},
                               {"seconds", p.seconds}});
  }
  return out;
}

nlohmann::json ToJson(const Feasibility& f) {
  nlohmann::json out = {{"job", f.job},
                        {"gpu", f.gpu},
                        {"gpus", f.gpus},
                        {"plan_only", f.plan_only},
                        {"verdict", std::string(spec::VerdictName(f.verdict))},
                        {"reasons", f.reasons},
                        {"parameters", f.parameters},
                        {"flops_per_token", f.flops_per_token},
                        {"recipe", f.recipe},
                        {"execution", f.execution},
                        {"recompute", f.recompute},
                        {"micro_batch_size", f.micro_batch},
                        {"micro_batches", f.micro_batches},
                        {"sequence_length", f.sequence_length},
                        {"optimizer_shards", f.shards},
                        {"shard", f.shard},
                        {"tokens", f.tokens},
                        {"memory", MemoryJson(f)},
                        {"time", TimeJson(f)},
                        {"joules", Optional(f.joules)},
                        {"power_cost", Optional(f.power_cost)},
                        {"rent_cost", Optional(f.rent_cost)},
                        {"purchase_cost", Optional(f.purchase_cost)},
                        {"break_even_hours", Optional(f.break_even_hours)},
                        {"confidence", f.confidence}};
  out["changes"] = nlohmann::json::array();
  for (const spec::Change& change : f.changes) {
    out["changes"].push_back({{"field", change.field}, {"value", change.value}});
  }
  return out;
}

// A model of a family; null: none.
nlohmann::json ToJson(const spec::FamilyModel* model) {
  if (model == nullptr) {
    return nullptr;
  }
  return {{"parameters", model->parameters}, {"total_bytes", model->total_bytes},
          {"layers", model->layers},         {"hidden", model->hidden},
          {"heads", model->heads},           {"kv_heads", model->kv_heads},
          {"head_dim", model->head_dim},     {"ffn_hidden", model->ffn_hidden}};
}

}  // namespace

std::optional<double> CostOf(const Feasibility& f) {
  return f.rent_cost.has_value()    ? f.rent_cost
         : f.power_cost.has_value() ? f.power_cost
                                    : f.purchase_cost;
}

void SortPlans(const std::string& by, std::vector<Feasibility>& plans) {
  static constexpr double kLast = std::numeric_limits<double>::infinity();
  const auto key = [&by](const Feasibility& f) -> double {
    if (by == "cost") {
      return CostOf(f).value_or(kLast);
    }
    if (by == "memory") {
      return static_cast<double>(f.device_bytes);
    }
    if (f.seconds > 0) {
      return f.seconds;
    }
    return kLast;
  };
  std::stable_sort(plans.begin(), plans.end(), [&](const Feasibility& a, const Feasibility& b) {
    if (by == "name") {
      return a.gpu < b.gpu;
    }
    const bool a_no = a.verdict == spec::Verdict::kNo;
    const bool b_no = b.verdict == spec::Verdict::kNo;
    return a_no != b_no ? b_no : key(a) < key(b);
  });
}

std::string PlanTable(const std::vector<Feasibility>& plans,
                      const spec::FeasibilityQuery& query,
                      int columns) {
  Table table(Header());
  for (const Feasibility& f : plans) {
    table.Add(Row(f, query));
  }
  return table.Render(columns);
}

std::string PlanMarkdown(const std::vector<Feasibility>& plans,
                         const spec::FeasibilityQuery& query) {
  std::string out = absl::StrCat("| ", absl::StrJoin(Header(), " | "), " |\n|");
  for (size_t i = 0; i < Header().size(); ++i) {
    absl::StrAppend(&out, "---|");
  }
  absl::StrAppend(&out, "\n");
  for (const Feasibility& f : plans) {
    absl::StrAppend(&out, "| ", absl::StrJoin(Row(f, query), " | "), " |\n");
  }
  for (const Feasibility& f : plans) {
    absl::StrAppend(&out, "\n```\n", spec::FeasibilityText(f, query, plans.size() == 1), "```\n");
  }
  return out;
}

std::string PlanJson(const std::vector<Feasibility>& plans) {
  nlohmann::json out = {{"schema", "hearth.plan/v1"}, {"plans", nlohmann::json::array()}};
  for (const Feasibility& f : plans) {
    out["plans"].push_back(ToJson(f));
  }
  return out.dump(2) + "\n";
}

std::string LargestTable(const std::vector<spec::FormatFamily>& families,
                         const std::vector<const spec::GpuRow*>& rows,
                         int gpus,
                         int columns) {
  std::vector<std::string> header = {"GPU", "OF-GB"};
  for (const spec::FormatFamily& family : families) {
    header.push_back(absl::AsciiStrToUpper(
        family.tier.empty() ? spec::ShortChoiceText(family.format) : family.tier));
  }
  Table table(header);
  for (const spec::GpuRow* gpu : rows) {
    std::vector<std::string> row = {gpu->name, absl::StrFormat("%.1f", Gb(gpu->memory_bytes()))};
    for (const spec::FormatFamily& family : families) {
      const spec::FamilyModel* model = spec::LargestOf(family.models, gpu->memory_bytes());
      row.push_back(model != nullptr ? FormatCount(static_cast<double>(model->parameters)) : "-");
    }
    table.Add(std::move(row));
  }
  return absl::StrCat(table.Render(columns), kLargestNote, TiersTable(rows, gpus, columns));
}

std::string LargestOfGpu(const std::vector<spec::FormatFamily>& families,
                         const spec::GpuRow& gpu,
                         int gpus,
                         int columns) {
  Table table({"OPTIMIZER", "PARAMETERS", "LAYERS", "HIDDEN", "GB", "OF-GB"});
  for (const spec::FormatFamily& family : families) {
    const std::string name = family.tier.empty() ? spec::ChoiceText(family.format) : family.tier;
    const spec::FamilyModel* model = spec::LargestOf(family.models, gpu.memory_bytes());
    const std::string of = absl::StrFormat("%.1f", Gb(gpu.memory_bytes()));
    if (model == nullptr) {
      table.Add({name, "-", "-", "-", "-", of});
      continue;
    }
    table.Add({name, FormatCount(static_cast<double>(model->parameters)),
               absl::StrCat(model->layers), absl::StrCat(model->hidden),
               absl::StrFormat("%.1f", Gb(model->total_bytes)), of});
  }
  return absl::StrCat(table.Render(columns), kLargestNote, TiersTable({&gpu}, gpus, columns));
}

std::string LargestJson(const std::vector<spec::FormatFamily>& families,
                        const std::vector<const spec::GpuRow*>& rows) {
  nlohmann::json out = {{"schema", "hearth.largest/v1"}, {"gpus", nlohmann::json::array()}};
  for (const spec::GpuRow* gpu : rows) {
    nlohmann::json formats = nlohmann::json::array();
    for (const spec::FormatFamily& family : families) {
      formats.push_back(
          {{"format", spec::ChoiceText(family.format)},
           {"tier", family.tier},
           {"largest", ToJson(spec::LargestOf(family.models, gpu->memory_bytes()))},
           {"too_large", ToJson(spec::FirstTooLarge(family.models, gpu->memory_bytes()))}});
    }
    out["gpus"].push_back({{"gpu", gpu->name},
                           {"memory_bytes", gpu->memory_bytes()},
                           {"formats", std::move(formats)}});
  }
  return out.dump(2) + "\n";
}

}  // namespace hearth::jobctl
