// The smallest job that resolves; for tests.
#pragma once

#include "hearth/v1/job.pb.h"

namespace hearth::coordinator {

inline v1::JobSpec TinySpec() {
  v1::JobSpec spec;
  spec.set_name("tiny");
  v1::ModelSpec& model = *spec.mutable_model();
  model.set_layers(2);
  model.set_hidden(32);
  model.set_heads(2);
  model.set_ffn_hidden(64);
  spec.mutable_data()->add_train()->set_path("/data/train");
  spec.mutable_data()->set_sequence_length(16);
  spec.mutable_batch()->set_micro_batch_size(2);
  spec.mutable_train()->set_steps(3);
  return spec;
}

}  // namespace hearth::coordinator
