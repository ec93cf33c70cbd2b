#include "worker/trainer/comm/copy_collective.h"

#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/status.h"
#include "kernels/sum_parts/sum_parts.h"
#include "worker/trainer/comm/peer_memory.h"
#include "worker/trainer/comm/tensor_checks.h"

namespace hearth::trainer {
namespace {

using kernels::Exec;
using kernels::TensorView;

// Moments of an operation at which all ranks wait for one another. An operation ends with kFree;
// so no rank is more than one moment ahead of another, and one word for each pair of ranks and
// moment serves all operations.
enum Moment { kReady, kSummed, kFree, kMoments };
constexpr size_t kWordStride = 64;  // a cache line each
// Pieces begin on this many elements, so that copies and sums go by whole vectors.
constexpr int64_t kPieceAlign = 128;

struct Piece {
  int64_t begin = 0;
  int64_t count = 0;
};

// The driver's calls that make a stream signal and wait.
struct StreamWords {
  decltype(&cuStreamBatchMemOp) batch = nullptr;

  static absl::StatusOr<StreamWords> Load() {
    StreamWords words;
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    const cudaError_t error = cudaGetDriverEntryPointByVersion("cuStreamBatchMemOp", &entry, 12000,
                                                               cudaEnableDefault, &result);
    if (error != cudaSuccess || result != cudaDriverEntryPointSuccess || entry == nullptr) {
      cudaGetLastError();
      return absl::FailedPreconditionError("the driver has no cuStreamBatchMemOp");
    }
    words.batch = reinterpret_cast<decltype(words.batch)>(entry);
    return words;
  }
};

class CopyCollective : public Collective {
 public:
  CopyCollective(std::unique_ptr<Collective> base, kernels::CudaContext& cuda)
      : base_(std::move(base)), cuda_(cuda) {}

  int rank() const override { return base_->rank(); }
  int world_size() const override { return base_->world_size(); }
  std::string_view transport() const override {
    return shared_bytes_ > 0 ? "nccl+copy" : base_->transport();
  }

  absl::Status AllReduceSum(absl::Span<float> data) override { return base_->AllReduceSum(data); }
  absl::Status AllReduceSum(absl::Span<double> data) override { return base_->AllReduceSum(data); }
  absl::Status AllReduceMax(absl::Span<int32_t> data) override { return base_->AllReduceMax(data); }
  absl::Status AllReduceMax(absl::Span<uint64_t> data) override {
    return base_->AllReduceMax(data);
  }
  absl::Status Broadcast(absl::Span<uint8_t> data, int root) override {
    return base_->Broadcast(data, root);
  }
  absl::Status Barrier() override { return base_->Barrier(); }

  absl::Status Share(const SharedMemory& memory) override;
  absl::Status AllReduceSum(const Exec& exec, const TensorView& data) override;
  absl::Status AllReduceMax(const Exec& exec, const TensorView& data) override {
    return base_->AllReduceMax(exec, data);
  }
  absl::Status ReduceScatterSum(const Exec& exec, const TensorView& data) override;
  absl::Status AllGather(const Exec& exec, const TensorView& data) override;
  absl::Status GroupBegin() override { return base_->GroupBegin(); }
  absl::Status GroupEnd() override { return base_->GroupEnd(); }
  absl::Status Health() override { return base_->Health(); }

 private:
  bool Copies(const TensorView& data) const;
  // Of a tensor of `count` elements, the piece that `rank` owns.
  Piece PieceOf(int64_t count, int rank) const;
  // Where `rank` has what is this rank's `data`.
  const void* At(int rank, const void* data) const;
  CUdeviceptr Word(Moment moment, int from, int to) const;
  absl::Status Meet(const Exec& exec, Moment moment);
  absl::Status Batch(const Exec& exec, std::vector<CUstreamBatchMemOpParams>& operations);
  // Piece `piece` of the peers' tensors into the scratch memory.
  absl::Status PullParts(const Exec& exec, const TensorView& data, const Piece& piece);
  absl::Status SumInto(const Exec& exec, const TensorView& data, const Piece& piece);

  const std::unique_ptr<Collective> base_;
  kernels::CudaContext& cuda_;
  SharedMemory memory_;
  size_t shared_bytes_ = 0;  // 0: nothing is shared
  PeerMemory peers_;
  SharedWords words_;
  StreamWords stream_words_;
};

TensorView Slice(const TensorView& data, const Piece& piece) {
  return {static_cast<void*>(data.as<uint8_t>() + kernels::DTypeBytes(data.dtype, piece.begin)),
          data.dtype,
          {piece.count}};
}

absl::Status CopyCollective::Share(const SharedMemory& memory) {
  HEARTH_RETURN_IF_ERROR(base_->Share(memory));
  if (world_size() > kernels::kMaxSumParts) {
    return absl::OkStatus();
  }
  const auto set_up = [&]() -> absl::Status {
    HEARTH_ASSIGN_OR_RETURN(stream_words_, StreamWords::Load());
    HEARTH_ASSIGN_OR_RETURN(
        words_, SharedWords::Map(*base_, kWordStride * kMoments *
                                             static_cast<size_t>(world_size() * world_size())));
    HEARTH_ASSIGN_OR_RETURN(
        peers_, PeerMemory::Open(*base_, cuda_.gpu().ordinal, memory.base, memory.bytes));
    return absl::OkStatus();
  };
  const absl::Status status = set_up();
  if (absl::IsFailedPrecondition(status)) {  // on every rank
    return absl::OkStatus();
  }
  HEARTH_RETURN_IF_ERROR(status);
  memory_ = memory;
  shared_bytes_ = memory.bytes;
  return absl::OkStatus();
}

// The same on every rank: tensors have the same place and size on all of them.
bool CopyCollective::Copies(const TensorView& data) const {
  if (shared_bytes_ == 0 || data.bytes() < kLeastCopiedBytes) {
    return false;
  }
  const auto* const first = data.as<uint8_t>();
  const auto* const base = static_cast<const uint8_t*>(memory_.base);
  const int64_t largest =
      std::max(PieceOf(data.numel(), 0).count, PieceOf(data.numel(), world_size() - 1).count);
  return first >= base && first + data.bytes() <= base + shared_bytes_ &&
         kernels::DTypeBytes(data.dtype, largest * (world_size() - 1)) <= memory_.scratch_bytes;
}

Piece CopyCollective::PieceOf(int64_t count, int rank) const {
  const int64_t share = (count / world_size() + kPieceAlign - 1) / kPieceAlign * kPieceAlign;
  const int64_t begin = std::min(count, share * rank);
  const int64_t end = rank + 1 == world_size() ? count : std::min(count, begin + share);
  return {begin, end - begin};
}

const void* CopyCollective::At(int rank, const void* data) const {
  return peers_.base(rank) +
         (static_cast<const uint8_t*>(data) - static_cast<const uint8_t*>(memory_.base));
}

CUdeviceptr CopyCollective::Word(Moment moment, int from, int to) const {
  const int index = (static_cast<int>(moment) * world_size() + from) * world_size() + to;
  return reinterpret_cast<CUdeviceptr>(words_.device()) + static_cast<size_t>(index) * kWordStride;
}

absl::Status CopyCollective::Batch(const Exec& exec,
                                   std::vector<CUstreamBatchMemOpParams>& operations) {
  const CUresult result =
      stream_words_.batch(static_cast<CUstream>(exec.stream),
                          static_cast<unsigned>(operations.size()), operations.data(), 0);
  if (result != CUDA_SUCCESS) {
    return absl::InternalError(absl::StrCat("rank ", rank(),
                                            ": stream memory operations: CUDA driver error ",
                                            static_cast<int>(result)));
  }
  return absl::OkStatus();
}

// Tells every peer, waits for every peer, and clears what they wrote: recorded calls have the same
// values in every replay.
absl::Status CopyCollective::Meet(const Exec& exec, Moment moment) {
  std::vector<CUstreamBatchMemOpParams> operations;
  const auto write = [&operations](CUdeviceptr word, uint32_t value, unsigned flags) {
    CUstreamBatchMemOpParams op = {};
    op.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    op.writeValue.address = word;
    op.writeValue.value = value;
    op.writeValue.flags = flags;
    operations.push_back(op);
  };
  for (int peer = 0; peer < world_size(); ++peer) {
    if (peer != rank()) {
      write(Word(moment, rank(), peer), 1, CU_STREAM_WRITE_VALUE_DEFAULT);
    }
  }
  for (int peer = 0; peer < world_size(); ++peer) {
    if (peer == rank()) {
      continue;
    }
    CUstreamBatchMemOpParams op = {};
    op.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    op.waitValue.address = Word(moment, peer, rank());
    op.waitValue.value = 1;
    op.waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
    operations.push_back(op);
    write(Word(moment, peer, rank()), 0, CU_STREAM_WRITE_VALUE_DEFAULT);
  }
  return Batch(exec, operations);
}

absl::Status CopyCollective::PullParts(const Exec& exec,
                                       const TensorView& data,
                                       const Piece& piece) {
  const TensorView own = Slice(data, piece);
  for (int turn = 1; turn < world_size(); ++turn) {  // no two ranks begin with the same peer
    const int peer = (rank() + turn) % world_size();
    auto* const to =
        static_cast<uint8_t*>(memory_.scratch) + static_cast<size_t>(turn - 1) * own.bytes();
    HEARTH_RETURN_IF_ERROR(kernels::Copy(exec, to, At(peer, own.data), own.bytes()));
  }
  return absl::OkStatus();
}

absl::Status CopyCollective::SumInto(const Exec& exec, const TensorView& data, const Piece& piece) {
  const TensorView own = Slice(data, piece);
  TensorView parts[kernels::kMaxSumParts];
  for (int turn = 0; turn < world_size(); ++turn) {
    const int peer = (rank() + turn) % world_size();
    auto* const at = turn == 0 ? own.as<uint8_t>()
                               : static_cast<uint8_t*>(memory_.scratch) +
                                     static_cast<size_t>(turn - 1) * own.bytes();
    parts[peer] = TensorView(static_cast<void*>(at), data.dtype, {piece.count});
  }
  kernels::SumPartsArgs args;
  args.parts = absl::MakeConstSpan(parts, static_cast<size_t>(world_size()));
  args.out = own;
  return kernels::SumParts(exec, args);
}

absl::Status CopyCollective::AllReduceSum(const Exec& exec, const TensorView& data) {
  if (!Copies(data)) {
    return base_->AllReduceSum(exec, data);
  }
  HEARTH_RETURN_IF_ERROR(RequireSummable(exec, data, "all-reduce"));
  const Piece own = PieceOf(data.numel(), rank());
  HEARTH_RETURN_IF_ERROR(Meet(exec, kReady));
  HEARTH_RETURN_IF_ERROR(PullParts(exec, data, own));
  HEARTH_RETURN_IF_ERROR(SumInto(exec, data, own));
  HEARTH_RETURN_IF_ERROR(Meet(exec, kSummed));
  for (int turn = 1; turn < world_size(); ++turn) {
    const int peer = (rank() + turn) % world_size();
    const TensorView theirs = Slice(data, PieceOf(data.numel(), peer));
    HEARTH_RETURN_IF_ERROR(kernels::Copy(exec, theirs.data, At(peer, theirs.data), theirs.bytes()));
  }
  return Meet(exec, kFree);
}

absl::Status CopyCollective::ReduceScatterSum(const Exec& exec, const TensorView& data) {
  if (!Copies(data)) {
    return base_->ReduceScatterSum(exec, data);
  }
  HEARTH_RETURN_IF_ERROR(RequireSummable(exec, data, "reduce-scatter"));
  HEARTH_RETURN_IF_ERROR(RequirePieces(data, world_size(), "reduce-scatter"));
  const int64_t share = data.numel() / world_size();
  const Piece own = {share * rank(), share};
  HEARTH_RETURN_IF_ERROR(Meet(exec, kReady));
  HEARTH_RETURN_IF_ERROR(PullParts(exec, data, own));
  HEARTH_RETURN_IF_ERROR(Meet(exec, kFree));
  return SumInto(exec, data, own);
}

absl::Status CopyCollective::AllGather(const Exec& exec, const TensorView& data) {
  if (!Copies(data)) {
    return base_->AllGather(exec, data);
  }
  HEARTH_RETURN_IF_ERROR(RequirePieces(data, world_size(), "all-gather"));
  const size_t share = data.bytes() / static_cast<size_t>(world_size());
  HEARTH_RETURN_IF_ERROR(Meet(exec, kReady));
  for (int turn = 1; turn < world_size(); ++turn) {
    const int peer = (rank() + turn) % world_size();
    auto* const theirs = data.as<uint8_t>() + static_cast<size_t>(peer) * share;
    HEARTH_RETURN_IF_ERROR(kernels::Copy(exec, theirs, At(peer, theirs), share));
  }
  return Meet(exec, kFree);
}

}  // namespace

std::unique_ptr<Collective> NewCopyCollective(std::unique_ptr<Collective> base,
                                              kernels::CudaContext& cuda) {
  return std::make_unique<CopyCollective>(std::move(base), cuda);
}

}  // namespace hearth::trainer
