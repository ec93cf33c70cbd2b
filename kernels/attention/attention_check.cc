// CheckAttention of a build with CUDA.
#include "kernels/attention/attention_check.h"

#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "kernels/attention/cudnn.h"
#include "kernels/attention/own.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/device.h"
#include "kernels/draw_normal/draw_normal.h"
#include "kernels/formats/row_difference.h"

namespace hearth::kernels {
namespace {

absl::Status Draw(const Exec& exec, const TensorView& y, uint32_t tensor) {
  DrawNormalArgs draw;
  draw.y = y;
  draw.key = {17, RngPurpose::kTest, 0, 0, tensor};
  return DrawNormal(exec, draw);
}

absl::StatusOr<std::vector<uint16_t>> Download(const Exec& exec, const TensorView& from) {
  std::vector<uint16_t> codes(static_cast<size_t>(from.numel()));
  HEARTH_RETURN_IF_ERROR(Copy(exec, codes.data(), from.data, codes.size() * sizeof(uint16_t)));
  HEARTH_RETURN_IF_ERROR(Synchronize(exec));
  return codes;
}

struct Results {
  std::vector<uint16_t> out;
  std::vector<uint16_t> d_qkv;
};

absl::StatusOr<Results> RunBoth(const Exec& exec,
                                const AttentionForwardArgs& forward,
                                const AttentionBackwardArgs& backward) {
  Results results;
  HEARTH_RETURN_IF_ERROR(AttentionForward(exec, forward));
  HEARTH_ASSIGN_OR_RETURN(results.out, Download(exec, forward.out));
  HEARTH_RETURN_IF_ERROR(AttentionBackward(exec, backward));
  HEARTH_ASSIGN_OR_RETURN(results.d_qkv, Download(exec, backward.d_qkv));
  return results;
}

}  // namespace

absl::StatusOr<AttentionEngines> CheckAttention(const Exec& exec,
                                                const AttentionForwardArgs& forward,
                                                const AttentionBackwardArgs& backward,
                                                double tolerance) {
  AttentionEngines engines;
  if (exec.device != Device::kCuda) {
    return engines;
  }
  AttentionPlans& plans = exec.cuda->attention();
  const std::string library = exec.cuda->attention_version();
  engines.forward = cuda::RunsCudnn(exec, forward) ? library : "own";
  engines.backward = cuda::RunsCudnn(exec, backward) ? library : "own";
  if (engines.own()) {
    return engines;
  }
  HEARTH_RETURN_IF_ERROR(Draw(exec, forward.qkv, 1));
  HEARTH_RETURN_IF_ERROR(Draw(exec, backward.d_out, 2));
  const absl::StatusOr<Results> got = RunBoth(exec, forward, backward);
  plans.Refuse(forward.documents, "compared with our own kernels now");
  HEARTH_ASSIGN_OR_RETURN(const Results want, RunBoth(exec, forward, backward));
  if (!got.ok()) {
    engines.refused = std::string(got.status().message());
  } else {
    const double out = LargestRowDifference(got->out, want.out, forward.out.cols());
    const double gradient = LargestRowDifference(got->d_qkv, want.d_qkv, backward.d_qkv.cols());
    if (!(out <= tolerance && gradient <= tolerance)) {
      engines.refused = absl::StrFormat(
          "a row of its output differs by %.3g, of its gradient by %.3g; up to %.3g is rounding",
          out, gradient, tolerance);
    }
  }
  if (!engines.refused.empty()) {
    engines.refused = absl::StrCat(library, ": ", engines.refused);
    engines.forward = engines.backward = "own";
  }
  plans.Refuse(forward.documents, engines.refused);
  return engines;
}

}  // namespace hearth::kernels
