// A model for tests of plans: Llama's blocks, layers of 64 values.
#pragma once

#include "hearth/v1/job_spec.pb.h"

namespace hearth::spec {

inline v1::ModelSpec SmallLlama(int layers, const char* attention_bias, bool tied) {
  v1::ModelSpec model;
  model.set_layers(layers);
  model.set_hidden(64);
  model.set_heads(4);
  model.set_kv_heads(2);
  model.set_head_dim(16);
  model.set_ffn_hidden(160);
  model.set_vocab(1000);
  model.set_norm("rmsnorm");
  model.set_norm_eps(1e-5);
  model.set_position("rope");
  model.set_rope_theta(10000);
  model.set_activation("swiglu");
  model.set_attention_bias(attention_bias);
  model.set_tied(tied);
  model.set_init_std(0.02);
  return model;
}

}  // namespace hearth::spec
