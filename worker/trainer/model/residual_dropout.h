// Dropout of what a sub-block, or the embedding, adds to the residual stream.
#pragma once

#include "absl/status/status.h"
#include "kernels/dropout/dropout.h"
#include "worker/trainer/model/sub_block.h"

namespace hearth::trainer {

// `tensor`: the number of the block that drops (spec::StepTimeline), whose random numbers are its
// own.
inline kernels::DropoutArgs ResidualDropout(const ModelContext& context, int tensor) {
  kernels::DropoutArgs args;
  args.p = context.shape().spec.dropout();
  args.key.purpose = kernels::RngPurpose::kDropout;
  args.key.tensor = static_cast<uint32_t>(tensor);
  args.round_y = context.numerics.activation;
  return args;
}

inline void KeyDropout(const Pass& pass, kernels::DropoutArgs& args) {
  args.key.seed = pass.seed;
  args.key.step = pass.step;
  args.key.micro_batch = pass.micro_batch;
  args.position = pass.position;
}

// In place on `values`; nothing where the pass or the model has no dropout.
inline absl::Status DropForward(const kernels::Exec& exec,
                                const Pass& pass,
                                kernels::DropoutArgs& args,
                                const kernels::TensorView& values) {
  if (!pass.dropout || args.p == 0) {
    return absl::OkStatus();
  }
  KeyDropout(pass, args);
  args.x = args.y = values;
  return kernels::DropoutForward(exec, args);
}

// On entry `gradient` is that of the dropped values; on return that of the values before dropout,
// in `scratch` where there is dropout, else unchanged.
inline absl::Status DropBackward(const kernels::Exec& exec,
                                 const Pass& pass,
                                 kernels::DropoutArgs& args,
                                 const kernels::TensorView& scratch,
                                 kernels::TensorView& gradient) {
  if (!pass.dropout || args.p == 0) {
    return absl::OkStatus();
  }
  KeyDropout(pass, args);
  args.x = gradient;
  args.y = scratch;
  gradient = scratch;
  return kernels::DropoutBackward(exec, args);
}

}  // namespace hearth::trainer
