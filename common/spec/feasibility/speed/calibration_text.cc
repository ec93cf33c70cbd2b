#include "common/spec/feasibility/speed/calibration_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace hearth::spec {
namespace {

double Tera(double flops) {
  return flops * 1e-12;
}

std::string Name(int format) {
  return std::string(MatrixFormatName(static_cast<MatrixFormat>(format)));
}

// Shares and times that a step's kernels have in common.
void AppendShared(const Calibration& c, std::string& text) {
  absl::StrAppendFormat(&text, "elementwise: %.4g\noptimizer: %.4g\nemulated: %.4g\n",
                        c.elementwise, c.optimizer, c.emulated);
  absl::StrAppendFormat(&text, "parallel: {link: %.4g, not_hidden: %.4g, lockstep: %.4g}\n", c.link,
                        c.not_hidden, c.lockstep);
  std::vector<std::string> stretch = {absl::StrFormat("other: %.4g", c.stretch_other)};
  for (int f = 0; f < kMatrixFormatCount; ++f) {
    if (c.stretch[f] != 1) {
      stretch.push_back(absl::StrFormat("%s: %.4g", MatrixFormatName(static_cast<MatrixFormat>(f)),
                                        c.stretch[f]));
    }
  }
  absl::StrAppend(&text, "stretch: {", absl::StrJoin(stretch, ", "), "}\n");
  if (!c.coded.empty()) {
    const auto row = [](std::string* out, const CodedRate& rate) {
      absl::StrAppendFormat(out, "[%g, %.4g]", rate.bits, rate.values * 1e-9);
    };
    absl::StrAppend(&text, "# bits, 10^9 values of optimizer state a second\ncoded_state: [",
                    absl::StrJoin(c.coded, ", ", row), "]\n");
  }
}

void AppendRuns(const Calibration& c, std::string& text) {
  if (c.runs.empty()) {
    return;
  }
  absl::StrAppend(&text, "runs:\n");
  for (const MeasuredRun& run : c.runs) {
    absl::StrAppendFormat(&text, "  - {job: [%s, %s, %s, %d, %d, %d, %d], tok_s: %.0f", run.preset,
                          run.recipe, run.lm_head, run.micro_batch, run.sequence_length,
                          run.micro_batches, run.gpus, run.tok_s);
    if (run.watts > 0) {
      absl::StrAppendFormat(&text, ", watts: %.0f", run.watts);
    }
    absl::StrAppend(&text, run.tuned ? ", tuned: 1}\n" : "}\n");
  }
}

void AppendProducts(const Calibration& c, std::string& text) {
  absl::StrAppend(&text, "# m, n, k, TFLOP/s\ngemm:\n");
  for (int f = 0; f < kMatrixFormatCount; ++f) {
    if (c.gemm[f].empty()) {
      continue;
    }
    absl::StrAppendFormat(&text, "  %s:\n", Name(f));
    for (const GemmPoint& p : c.gemm[f]) {
      absl::StrAppendFormat(&text, "    - [%.0f, %.0f, %.0f, %.1f]\n", p.m, p.n, p.k,
                            Tera(p.flops));
    }
  }
}

}  // namespace

std::string CalibrationText(const Calibration& c,
                            std::string_view gpu,
                            const std::vector<std::string>& notes) {
  std::string text;
  for (const std::string& note : notes) {
    absl::StrAppend(&text, "# ", note, "\n");
  }
  absl::StrAppendFormat(&text, "gpu: %s\nsource: %s\n", std::string(gpu), c.source);
  AppendShared(c, text);
  absl::StrAppendFormat(&text, "copy_by: %s\ncopy_gbs: %.0f\nlaunch_us: %.2f\n",
                        std::string(kCopyByKernel), c.copy * 1e-9, c.launch_seconds * 1e6);
  const auto attention = [](std::string* out, const AttentionRate& rate) {
    absl::StrAppendFormat(out, "[%.0f, %.0f, %.1f, %.1f]", rate.head_dim, rate.sequence,
                          Tera(rate.forward), Tera(rate.backward));
  };
  absl::StrAppend(&text, "# head_dim, sequence, forward, backward in TFLOP/s\nattention: [",
                  absl::StrJoin(c.attention, ", ", attention), "]\n");
  absl::StrAppendFormat(&text,
                        "watts: {products: %.0f, attention: %.0f, memory: %.0f, gaps: %.0f}\n",
                        c.product_watts, c.attention_watts, c.memory_watts, c.gap_watts);
  AppendRuns(c, text);
  AppendProducts(c, text);
  return text;
}

}  // namespace hearth::spec
