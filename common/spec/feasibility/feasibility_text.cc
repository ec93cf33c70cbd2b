#include "common/spec/feasibility/feasibility_text.h"

#include <cmath>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "common/base/units.h"
#include "common/spec/feasibility/memory/parameter_bytes.h"
#include "common/spec/feasibility/step_parts.h"

namespace hearth::spec {
namespace {

constexpr double kMs = 1e3;

constexpr const char* kLossNote =
    "LOSS: held-out loss of hearth-112m against the default after 3,000 steps, means of seeds "
    "(docs/memory.md); -: no figure.\n";

double Gb(int64_t bytes) {
  return static_cast<double>(bytes) * 1e-9;
}

void AddMemory(const Feasibility& f, std::string& out) {
  absl::StrAppendFormat(&out, "\n%-24s %10s %8s\n", "MEMORY", "GB", "SHARE");
  for (const MemoryPart& part : f.memory) {
    absl::StrAppendFormat(&out, "%-24s %10.3f %6.1f %%\n", part.name, Gb(part.bytes),
                          100.0 * Gb(part.bytes) / Gb(f.total_bytes));
  }
  absl::StrAppendFormat(&out, "%-24s %10.3f\n", "total", Gb(f.total_bytes));
  const int64_t left = f.device_bytes - f.total_bytes;
  absl::StrAppendFormat(&out, "%-24s %10.3f of %.3f GB (%.1f %%)\n", left >= 0 ? "left" : "missing",
                        Gb(left >= 0 ? left : -left), Gb(f.device_bytes),
                        100.0 * std::abs(Gb(left)) / Gb(f.device_bytes));
  absl::StrAppendFormat(&out, "%-24s %10.3f\n", "pinned, of the host", Gb(f.host_bytes));
}

void AddLevels(const Feasibility& f, std::string& out) {
  absl::StrAppendFormat(&out, "\n%-12s %10s %10s %12s %10s\n", "RECOMPUTE", "KB/TOKEN", "TOTAL GB",
                        "LARGEST B", "STEP MS");
  for (const LevelRow& level : f.levels) {
    absl::StrAppendFormat(
        &out, "%-12s %10.1f %10.2f %12d %10s\n", level.recompute, level.activation_bytes * 1e-3,
        Gb(level.total_bytes), level.largest_micro_batch,
        level.step_seconds > 0 ? absl::StrFormat("%.1f", level.step_seconds * kMs) : "-");
  }
}

void AddSavings(const Feasibility& f, std::string& out) {
  if (f.savings.empty()) {
    return;
  }
  absl::StrAppendFormat(&out, "\n%-40s %9s %8s %9s\n", "EACH CHANGE ALONE", "SAVES GB", "STEP",
                        "LOSS");
  bool measured = false;
  for (const Saving& saving : f.savings) {
    const std::string step =
        saving.time_ratio > 0 ? absl::StrFormat("x %.2f", saving.time_ratio) : "-";
    absl::StrAppendFormat(&out, "%-40s %9.2f %8s %9s\n", saving.change, Gb(saving.saved_bytes),
                          step, saving.loss.empty() ? "-" : saving.loss);
    measured = measured || absl::EndsWith(saving.loss, "%");
  }
  if (measured) {
    absl::StrAppend(&out, kLossNote);
  }
}

void AddStep(const Feasibility& f, std::string& out) {
  const StepTime& t = f.time;
  absl::StrAppendFormat(&out, "\n%-24s %10s %8s\n", "STEP", "MS", "SHARE");
  for (const StepPart& part : kStepParts) {
    const double seconds = t.*part.seconds;
    if (seconds > 0) {
      absl::StrAppendFormat(&out, "%-24s %10.2f %6.1f %%\n", part.label, seconds * kMs,
                            100 * seconds / t.seconds);
    }
  }
  absl::StrAppendFormat(&out, "%-24s %10.2f\n", "total", t.seconds * kMs);
}

void AddProducts(const Feasibility& f, std::string& out) {
  absl::StrAppendFormat(&out, "\n%-10s %-14s %-10s %8s %8s %8s %7s %9s %8s\n", "PRODUCT", "PASS",
                        "FORMAT", "M", "N", "K", "CALLS", "MS", "TFLOP/S");
  for (const ProductTime& p : f.time.products) {
    absl::StrAppendFormat(&out, "%-10s %-14s %-10s %8.0f %8.0f %8.0f %7.0f %9.3f %8.0f\n",
                          p.work.weight, p.work.pass, std::string(MatrixFormatName(p.work.format)),
                          p.work.m, p.work.n, p.work.k, p.work.calls, p.seconds * kMs,
                          p.work.flops() / p.seconds * 1e-12);
  }
}

void AddRun(const Feasibility& f, const FeasibilityQuery& query, std::string& out) {
  absl::StrAppendFormat(
      &out,
      "\n%s for %s tokens at %.0f tok/s (%.0f %% of the peak of its formats, MFU %.1f %% of the "
      "BF16 rate; goodput %.1f %%: checkpoints, evaluation, a failure each %.0f h of a GPU)\n",
      HumanDuration(absl::Seconds(f.seconds)), FormatCount(f.tokens), f.tok_s, 100 * f.peak_share(),
      100 * f.mfu, 100 * f.goodput, query.mtbf_hours);
  if (f.joules.has_value()) {
    absl::StrAppendFormat(&out, "energy: %s at %.0f W a GPU, %.4g tokens per joule\n",
                          EnergyText(*f.joules), f.time.watts, f.tokens / *f.joules);
  }
  const std::string& currency = query.prices.currency;
  if (f.power_cost.has_value()) {
    absl::StrAppend(&out, "cost of power: ", MoneyText(*f.power_cost, currency), "\n");
  }
  if (f.rent_cost.has_value()) {
    absl::StrAppend(&out, "cost by the rented hour: ", MoneyText(*f.rent_cost, currency), "\n");
  }
  if (f.purchase_cost.has_value()) {
    absl::StrAppendFormat(&out, "cost of a bought GPU over %.0f h of life%s: %s",
                          query.lifetime_hours, query.prices.per_kwh > 0 ? ", with power" : "",
                          MoneyText(*f.purchase_cost, currency));
    if (f.break_even_hours.has_value()) {
      absl::StrAppendFormat(&out, "; cheaper than renting from %.0f h of use on",
                            *f.break_even_hours);
    }
    absl::StrAppend(&out, "\n");
  }
}

}  // namespace

std::string FeasibilityText(const Feasibility& f, const FeasibilityQuery& query, bool verbose) {
  std::string out = absl::StrFormat("%s on %d x %s: %s\n", f.job, f.gpus, f.gpu,
                                    std::string(VerdictName(f.verdict)));
  for (const std::string& reason : f.reasons) {
    absl::StrAppend(&out, "  ", reason, "\n");
  }
  absl::StrAppendFormat(
      &out,
      "%s parameters, micro-batch %d x %d tokens, %d micro-batch%s a step, recipe %s (%s), "
      "recompute %s\n",
      FormatCount(static_cast<double>(f.parameters)), f.micro_batch, f.sequence_length,
      f.micro_batches, f.micro_batches == 1 ? "" : "es", f.recipe, f.execution, f.recompute);
  if (!f.execution_note.empty()) {
    absl::StrAppend(&out, "  ", f.recipe, " is ", f.execution, ": ", f.execution_note, "\n");
  }
  AddMemory(f, out);
  AddLevels(f, out);
  AddSavings(f, out);
  if (f.time.known()) {
    AddStep(f, out);
    if (verbose) {
      AddProducts(f, out);
    }
    AddRun(f, query, out);
  }
  return absl::StrCat(out, "confidence: ", f.confidence, "\n");
}

std::string StateFormatsText() {
  std::string out = absl::StrFormat("%-64s %9s %9s %9s %9s %12s\n", "BYTES A PARAMETER", "WEIGHTS",
                                    "GRADIENTS", "STATES", "SUM", "WITH SCALES");
  for (const ParameterBytes& row : ParameterByteRows()) {
    absl::StrAppendFormat(&out, "%-64s %9.4f %9.4f %9.4f %9.4f %12.4f%s\n", row.name, row.weights,
                          row.gradients, row.states, row.bytes(), row.with_scales(),
                          row.built ? "" : "  not yet");
  }
  return absl::StrCat(
      out,
      "For a large matrix of the layers, in the recipe bf16. State of embeddings, norms and biases "
      "stays in FP32 with int8 and int4;\nwith muon they are AdamW's. \"not yet\": this version "
      "cannot train so. Activations come on top. WITH SCALES also counts the leading directions of "
      "Muon's int4,\nfor the matrix of q, k and v of hearth-112m, 1152 x 768.\n");
}

}  // namespace hearth::spec
