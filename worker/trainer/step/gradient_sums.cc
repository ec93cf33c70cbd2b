#include "worker/trainer/step/gradient_sums.h"

#include "common/base/status_macros.h"
#include "common/formats/reduce_formats.h"
#include "kernels/round/round.h"
#include "worker/trainer/step/block_sums.h"
#include "worker/trainer/step/engine.h"

namespace hearth::trainer {

using kernels::DType;
using kernels::TensorView;

namespace {

absl::Status Convert(const kernels::Exec& exec, const TensorView& from, const TensorView& to) {
  if (kernels::DTypeBytes(to.dtype, 1) > kernels::DTypeBytes(from.dtype, 1)) {
    kernels::WidenArgs widen;
    widen.x = from;
    widen.y = to;
    return kernels::Widen(exec, widen);
  }
  kernels::RoundToArgs round;
  round.x = from;
  round.y = to;
  round.to = to.dtype;
  return kernels::RoundTo(exec, round);
}

// The transport adds the values that it carries.
class TransportSums : public GradientSums {
 public:
  TransportSums(const Engine& engine, Collective& comm)
      : format_(engine.reduce_format()),
        staging_(engine.reduction().sums),
        round_to_bf16_(!engine.on_gpu() && format_.part == DType::kBF16),
        comm_(comm) {}

  absl::Status AllReduce(const kernels::Exec& exec, const TensorView& data) override {
    return Sum(exec, data, 0, data.numel(), &Collective::AllReduceSum);
  }
  absl::Status ReduceScatter(const kernels::Exec& exec, const TensorView& data) override {
    const int64_t part = data.numel() / comm_.world_size();
    return Sum(exec, data, comm_.rank() * part, part, &Collective::ReduceScatterSum);
  }

  int64_t PartBytes(int64_t elements) const override {
    return kernels::DTypeBytes(format_.part, elements);
  }
  int64_t SumBytes(int64_t elements) const override {
    return kernels::DTypeBytes(format_.sum, elements);
  }

 private:
  // `reduce` leaves the sums in `count` elements from `begin` on.
  absl::Status Sum(const kernels::Exec& exec,
                   const TensorView& data,
                   int64_t begin,
                   int64_t count,
                   absl::Status (Collective::*reduce)(const kernels::Exec&, const TensorView&)) {
    const TensorView sums = Slice(data, begin, count);
    // Reduced in another format than they are kept in: through the staging buffer, from which only
    // the sums come back.
    if (!staging_.empty() && staging_.dtype != data.dtype) {
      const TensorView staged = Slice(staging_, 0, data.numel());
      HEARTH_RETURN_IF_ERROR(Convert(exec, data, staged));
      HEARTH_RETURN_IF_ERROR((comm_.*reduce)(exec, staged));
      return Convert(exec, Slice(staged, begin, count), sums);
    }
    HEARTH_RETURN_IF_ERROR(RoundInPlace(exec, data));
    HEARTH_RETURN_IF_ERROR((comm_.*reduce)(exec, data));
    return RoundInPlace(exec, sums);
  }

  // The CPU holds every format in wide storage, so both what is sent and the sum are rounded.
  absl::Status RoundInPlace(const kernels::Exec& exec, const TensorView& data) const {
    if (!round_to_bf16_) {
      return absl::OkStatus();
    }
    kernels::RoundToArgs round;
    round.x = round.y = data;
    round.to = DType::kBF16;
    return kernels::RoundTo(exec, round);
  }

  const formats::ReduceFormatRow& format_;
  // In the format in which the transport sums, as large as the largest bucket that is accumulated
  // in another one; empty: all are reduced in place.
  const TensorView staging_;
  const bool round_to_bf16_;
  Collective& comm_;
};

}  // namespace

std::unique_ptr<GradientSums> NewGradientSums(const Engine& engine, Collective& comm) {
  const formats::ReduceFormatRow& format = engine.reduce_format();
  if (format.block > 0) {
    return std::make_unique<BlockSums>(format, engine.reduction(), comm);
  }
  return std::make_unique<TransportSums>(engine, comm);
}

}  // namespace hearth::trainer
