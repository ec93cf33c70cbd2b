// A sub-block between its two ends. At the first a norm reads the residual stream, and a projection
// the norm; at the last a projection writes what the stream gets, and dropout drops some of it.
// What stands between the projections is the block's own.
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

class ResidualBlock : public SubBlock {
 public:
  const std::vector<int>& Params() const override { return params_; }
  // Scratch of the ends alone.
  size_t WorkspaceBytes(const kernels::Exec& exec) const override;
  absl::Status Forward(const kernels::Exec& exec, const Pass& pass, Stream& stream) override {
    return Run(exec, pass, stream, levels_.NormForms(in_.x(), pass));
  }
  const Operand* OutputGradient() const override { return d_delta_.empty() ? &out_.dy() : nullptr; }
  absl::Status Backward(const kernels::Exec& exec,
                        const Pass& pass,
                        const kernels::TensorView& d_stream,
                        const Operand* next) override;

 protected:
  struct Slots {
    spec::Slot norm;
    spec::Slot in;                         // the projection that reads the norm
    spec::Slot out;                        // the one that writes for the stream
    std::vector<spec::Slot> between = {};  // weights of the block's own, if the model has them
  };

  ResidualBlock(const ModelContext& context,
                const spec::PlacedBlock& placed,
                const spec::NormedBuffers& ids,
                const Slots& slots);

  // From the norm's output, or `input` in its place, to what out() reads, in the forms that it
  // reads.
  virtual absl::Status Inner(const kernels::Exec& exec,
                             const Pass& pass,
                             const FusedNormInput& input) = 0;
  // From d_delta, the gradient of out()'s output, to that of in()'s output in all forms that its
  // products read; with the gradient of out()'s weight. Returns the plain form.
  virtual absl::StatusOr<kernels::TensorView> InnerBackward(const kernels::Exec& exec,
                                                            const Pass& pass,
                                                            const kernels::TensorView& d_delta) = 0;

  const Linear& in() const { return in_; }
  const Linear& out() const { return out_; }
  bool training() const { return training_; }
  // The level of a pass, and whether it is quantised.
  spec::Recompute Level(const Pass& pass) const { return levels_.Of(in_.x(), pass); }
  bool Quantised(const Pass& pass) const { return in_.x().Quantised(pass); }
  // The stream before the block as Restore finds it: below kBlock it was not made again, and the
  // block kept its own input.
  Stream Restored(const Pass& pass, const Stream& stream) const;

  // All of Forward, with these forms of the norm's output. Leaves the sum to the next norm, which
  // adds on its way through the rows; or, where products apply norms, the last product adds.
  absl::Status Run(const kernels::Exec& exec, const Pass& pass, Stream& stream, Forms forms);
  // The norm, in these forms.
  absl::Status Normalise(const kernels::Exec& exec,
                         const Pass& pass,
                         const Stream& stream,
                         Forms forms);

 private:
  // The stream as in() reads it, if its product applies the norm: in passes of few tokens of which
  // nothing is kept, where launches of short kernels dominate. Else empty.
  FusedNormInput InputForFusedNorm(const kernels::Exec& exec,
                                   const Pass& pass,
                                   const Stream& stream) const;

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
  std::vector<int> params_;
};

}  // namespace hearth::trainer
