// What a GPU really reaches: measured figures where there are some, else shares of its data sheet.
// The files of configs/calibration are built into the programs and explain the figures.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/spec/gpus/gpus.h"

namespace hearth::spec {

// The type of the results of a file's products that make weights' gradients. They write it, and
// do not add to what is there.
inline constexpr DType kTimedGradient = DType::kF32;

// c [m, n], contracted over k.
struct GemmPoint {
  double m = 0;
  double n = 0;
  double k = 0;
  double flops = 0;  // FLOP/s
};

struct AttentionRate {
  double head_dim = 0;
  double sequence = 0;  // tokens
  double forward = 0;   // FLOP/s, half of the square counted
  double backward = 0;
};

// A whole job that was measured.
struct MeasuredRun {
  std::string preset;
  std::string recipe;
  std::string lm_head;
  int64_t micro_batch = 0;
  int64_t sequence_length = 0;
  int64_t micro_batches = 0;  // a step, of all GPUs
  int gpus = 1;
  double tok_s = 0;
  double watts = 0;    // of a GPU; 0 = not measured
  bool tuned = false;  // the calibration was fitted to it
};

// How fast the update of state in codes of so many bits can be, however few bytes it moves.
struct CodedRate {
  double bits = 0;
  double values = 0;  // decoded and encoded, a second
};

struct Calibration {  // NOLINT(bugprone-reserved-identifier,readability-identifier-naming)
  bool measured = false;
  std::string source;
  std::vector<GemmPoint> gemm[kMatrixFormatCount];     // measured products; none: `products` counts
  double products[kMatrixFormatCount] = {0, 0, 0, 0};  // FLOP/s of a large product; 0 = not known
  std::vector<AttentionRate> attention;                // >= 1
  double copy = 0;               // bytes/s read and written by a kernel that copies
  double elementwise = 0;        // share of it that kernels bound by memory reach
  double optimizer = 0;          // and the optimizer
  std::vector<CodedRate> coded;  // none: not known, bytes alone count
  double launch_seconds = 0;
  // Time of kernels in a step, divided by their time alone: the clock falls at the power limit.
  double stretch[kMatrixFormatCount] = {1, 1, 1, 1};  // of products
  double stretch_other = 1;
  double emulated = 1;  // the same for recipes whose products are emulated
  // Watts of a GPU while such kernels run. All 0 = not known.
  double product_watts = 0;
  double attention_watts = 0;
  double memory_watts = 0;
  double gap_watts = 0;
  double link = 0;        // share of the link that a reduction reaches
  double not_hidden = 0;  // share of it that lengthens a step though backward runs beside it
  double lockstep = 0;    // what beginning steps together costs, without accumulation
  std::vector<MeasuredRun> runs;
};

// The one of this GPU in configs/calibration, else made from its row and data-sheet.yaml. Lives for
// ever.
const Calibration& CalibrationFor(const GpuRow& gpu);

// A file's `copy_by`: how `copy` was measured. This word: by the kernel that copies.
inline constexpr std::string_view kCopyByKernel = "kernel";

// A file as CalibrationText writes it. `file` names it in errors; `gpu` gets the name it is for.
// kInvalidArgument lists all faults.
absl::StatusOr<Calibration> ParseCalibration(std::string_view text,
                                             const std::string& file,
                                             std::string& gpu);

// FLOP/s of a product of this shape: mean of the measured ones, the nearest in the logarithms of
// the three sizes counting most. 0 = not known.
double ProductRate(
    const Calibration& calibration, MatrixFormat format, double m, double n, double k);

// The row of the nearest head size, and among these of the nearest length of sequences.
const AttentionRate& AttentionRateOf(const Calibration& calibration,
                                     int64_t head_dim,
                                     int64_t sequence_length);

}  // namespace hearth::spec
