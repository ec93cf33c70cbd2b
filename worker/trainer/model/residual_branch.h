// The two ends of a sub-block. At the first a norm reads the residual stream, and a projection the
// norm; at the last a projection writes what the stream gets, and dropout drops some of it.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/spec/plan/blocks/block_table.h"
#include "common/spec/plan/blocks/normed_buffers.h"
#include "kernels/dropout/dropout.h"
#include "worker/trainer/model/linear.h"
#include "worker/trainer/model/norm_layer.h"
#include "worker/trainer/model/sub_block.h"

namespace hearth::trainer {

class ResidualBranch {
 public:
  struct Slots {
    spec::Slot norm;
    spec::Slot in;   // the projection that reads the norm
    spec::Slot out;  // the one that writes for the stream
  };

  ResidualBranch(const ModelContext& context,
                 const spec::PlacedBlock& placed,
                 const spec::NormedBuffers& ids,
                 const Slots& slots);

  const Linear& in() const { return in_; }
  const Linear& out() const { return out_; }
  // The level of a pass, and whether it is quantised.
  spec::Recompute Level(const Pass& pass) const { return levels_.Of(in_.x(), pass); }
  bool Quantised(const Pass& pass) const { return in_.x().Quantised(pass); }
  // What forward makes of the norm's output.
  Forms NormForms(const Pass& pass) const { return levels_.NormForms(in_.x(), pass); }
  // The stream before the block as Restore finds it: below kBlock it was not made again, and the
  // block kept its own input.
  Stream Restored(const Pass& pass, const Stream& stream) const;

  // The norm, in these forms.
  absl::Status Normalise(const kernels::Exec& exec,
                         const Pass& pass,
                         const Stream& stream,
                         Forms forms);
  // The last projection and dropout. Leaves the sum to the next norm, which adds on its way through
  // the rows.
  absl::Status Leave(const kernels::Exec& exec, const Pass& pass, Stream& stream);
  // From the gradient of the stream to that of the last projection's output, in all forms that its
  // products read.
  absl::StatusOr<kernels::TensorView> LeaveBackward(const kernels::Exec& exec,
                                                    const Pass& pass,
                                                    const kernels::TensorView& d_stream);
  // From the gradient of the first projection's output, whose plain form is `d_projected`, to the
  // stream's and `next` (SubBlock::Backward).
  absl::Status NormaliseBackward(const kernels::Exec& exec,
                                 const Pass& pass,
                                 const kernels::TensorView& d_projected,
                                 const kernels::TensorView& d_stream,
                                 const Operand* next);
  // SubBlock::OutputGradient.
  const Operand* OutputGradient() const { return d_delta_.empty() ? &out_.dy() : nullptr; }

  size_t WorkspaceBytes(const kernels::Exec& exec) const;
  // The parameters of the first end, and of the last.
  void AppendFirst(const ModelContext& context, std::vector<int>& params) const;
  void AppendLast(const ModelContext& context, std::vector<int>& params) const;

 private:
  RecomputeLevels levels_;
  bool training_;
  kernels::TensorView input_;
  kernels::TensorView delta_;
  kernels::TensorView d_normed_;
  kernels::TensorView d_delta_;  // empty without dropout
  NormLayer norm_;
  Linear in_;
  Linear out_;
  kernels::DropoutArgs dropout_;
};

}  // namespace hearth::trainer
