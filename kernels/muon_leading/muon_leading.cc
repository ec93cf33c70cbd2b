#include "kernels/muon_leading/muon_leading.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace hearth::kernels {
namespace {

constexpr char kOp[] = "muon_leading";
constexpr size_t kMostTogether = 16;  // their slots fit into a kernel's parameters

size_t Aligned(size_t bytes) {
  return (bytes + 63) / 64 * 64;
}

absl::Status RequireAligned(const TensorView& view, size_t bytes, const char* name) {
  if (reinterpret_cast<uintptr_t>(view.data) % bytes == 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(kOp, ": ", name, " is not at ", bytes, " bytes"));
}

absl::Status Check(const MuonLeadingMatrix& matrix) {
  HEARTH_RETURN_IF_ERROR(RequireFloating(matrix.grad, kOp, "grad"));
  const int64_t rows = matrix.grad.rows();
  const int64_t cols = matrix.grad.cols();
  if (rows < 1 || cols < 1 || cols % formats::kLeadingBlock != 0) {
    return absl::InvalidArgumentError(absl::StrCat(kOp, ": ", DebugString(matrix.grad),
                                                   " has no rows of whole blocks of ",
                                                   formats::kLeadingBlock));
  }
  const struct {
    const TensorView& view;
    DType dtype;
    int64_t count;
    size_t alignment;
    const char* name;
  } parts[] = {{matrix.codes, DType::kU8, rows * cols / 2, 8, "codes"},
               {matrix.scales, DType::kU8, rows * cols / formats::kLeadingBlock, 1, "scales"},
               {matrix.left, DType::kBF16, rows * formats::kLeadingRank, 16, "left"},
               {matrix.right, DType::kBF16, cols * formats::kLeadingRank, 16, "right"},
               {matrix.unit, DType::kF32, 1, sizeof(float), "unit"},
               {matrix.grad, matrix.grad.dtype, rows * cols, 16, "grad"}};
  for (const auto& part : parts) {
    HEARTH_RETURN_IF_ERROR(RequireCount(part.view, part.dtype, part.count, kOp, part.name));
    HEARTH_RETURN_IF_ERROR(RequireAligned(part.view, part.alignment, part.name));
  }
  return absl::OkStatus();
}

// Bytes of T.
size_t ElementBytes(Device device, const MuonLeadingMatrix& matrix) {
  return device == Device::kCpu && matrix.grad.dtype == DType::kF64 ? sizeof(double)
                                                                    : sizeof(float);
}

size_t BytesOf(Device device, const MuonLeadingMatrix& matrix) {
  return MuonLeadingMatrixBytes(ElementBytes(device, matrix), matrix.grad.rows(),
                                matrix.grad.cols());
}

}  // namespace

MuonLeadingScratch ScratchOf(size_t element_bytes, int64_t rows, int64_t cols) {
  MuonLeadingScratch scratch;
  const auto take = [&](int64_t elements) {
    const size_t at = scratch.bytes;
    scratch.bytes += Aligned(static_cast<size_t>(elements) * element_bytes);
    return at;
  };
  scratch.momentum = take(rows * cols);
  scratch.product = take(rows * formats::kLeadingRank);
  scratch.largest = take(rows);
  scratch.right = take(cols * formats::kLeadingRank);
  scratch.dropped = take(1);
  return scratch;
}

size_t MuonLeadingMatrixBytes(size_t element_bytes, int64_t rows, int64_t cols) {
  return ScratchOf(element_bytes, rows, cols).bytes;
}

size_t MuonLeadingBatch(Device device, absl::Span<const MuonLeadingMatrix> matrices) {
  size_t bytes = 0;
  for (size_t i = 0; i < matrices.size(); ++i) {
    bytes += BytesOf(device, matrices[i]);
    const bool alone = device == Device::kCpu || i == kMostTogether;
    if (i > 0 && (alone || bytes > kMuonLeadingScratchBytes)) {
      return i;
    }
  }
  return matrices.size();
}

size_t MuonLeadingWorkspaceBytes(Device device, absl::Span<const MuonLeadingMatrix> matrices) {
  size_t most = 0;
  while (!matrices.empty()) {
    const size_t count = MuonLeadingBatch(device, matrices);
    size_t bytes = 0;
    for (const MuonLeadingMatrix& matrix : matrices.first(count)) {
      bytes += BytesOf(device, matrix);
    }
    most = std::max(most, bytes);
    matrices.remove_prefix(count);
  }
  return most;
}

absl::Status CanImplement(const MuonLeadingArgs& args) {
  if (!(args.mu >= 0.0 && args.mu < 1.0)) {
    return absl::InvalidArgumentError(absl::StrCat(kOp, ": mu ", args.mu, " must be in [0, 1)"));
  }
  for (const MuonLeadingMatrix& matrix : args.matrices) {
    HEARTH_RETURN_IF_ERROR(Check(matrix));
  }
  return absl::OkStatus();
}

absl::Status MuonLeading(const Exec& exec, const MuonLeadingArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  for (const MuonLeadingMatrix& matrix : args.matrices) {
    HEARTH_RETURN_IF_ERROR(RequireStorage(exec, matrix.grad.dtype, kOp));
  }
  HEARTH_RETURN_IF_ERROR(
      RequireWorkspace(exec, MuonLeadingWorkspaceBytes(exec.device, args.matrices), kOp));
  return RunOnDevice<cpu::MuonLeading, cuda::MuonLeading>(exec, kOp, args);
}

}  // namespace hearth::kernels
