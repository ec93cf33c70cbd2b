#include "worker/trainer/model/parameter_store.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/spec/training_plan.h"
#include "kernels/core/rng.h"
#include "kernels/round/round.h"

namespace hearth::trainer {

using kernels::DType;
using kernels::TensorView;

namespace {

std::vector<TensorView> Cut(const Arena& arena,
                            const std::string& buffer,
                            const std::vector<spec::Parameter>& table,
                            const std::vector<int64_t>& offsets) {
  std::vector<TensorView> views;
  const TensorView flat = arena.Floats(buffer, {offsets.back()});
  for (size_t i = 0; i < table.size(); ++i) {
    TensorView view;
    view.data = flat.as<uint8_t>() + DTypeBytes(flat.dtype, offsets[i]);
    view.dtype = flat.dtype;
    view.rank = static_cast<int>(table[i].shape.size());
    std::copy(table[i].shape.begin(), table[i].shape.end(), view.shape.begin());
    views.push_back(view);
  }
  return views;
}

template <typename T>
void Fill(const spec::Parameter& parameter, uint64_t seed, uint32_t index, const TensorView& out) {
  T* data = out.as<T>();
  const int64_t logical = parameter.logical_elements();
  std::fill(data, data + parameter.elements(), T{0});
  switch (parameter.init) {
    case spec::Init::kZeros:
      break;
    case spec::Init::kOnes:
      std::fill(data, data + logical, T{1});
      break;
    case spec::Init::kNormal: {
      const kernels::RngKey key{seed, kernels::RngPurpose::kInit, 0, 0, index};
      kernels::FillNormal(key, 0, 0.0, parameter.init_std, data, logical);
      break;
    }
  }
}

}  // namespace

ParameterStore::ParameterStore(const std::vector<spec::Parameter>& table,
                               const Arena& arena,
                               const Numerics& numerics,
                               const spec::OptimizerRow* optimizer)
    : table_(table), numerics_(numerics) {
  const std::vector<int64_t> offsets = spec::TensorOffsets(table);
  weights_ = Cut(arena, "parameters", table, offsets);
  masters_ = arena.Has("masters") ? Cut(arena, "masters", table, offsets) : weights_;
  if (optimizer == nullptr) {
    return;
  }
  gradients_ = Cut(arena, "gradients", table, offsets);
  flat_gradients_ = arena.Floats("gradients", {offsets.back()});
  for (const spec::StateSpec& state : optimizer->state_specs(table.front())) {
    states_.push_back(Cut(arena, absl::StrCat("optimizer.", state.name), table, offsets));
  }
}

TensorView ParameterStore::FindWeight(spec::Slot slot, int layer, bool is_bias) const {
  const int i = spec::FindParameter(table_, slot, layer, is_bias);
  return i < 0 ? TensorView() : weight(i);
}

TensorView ParameterStore::FindGradient(spec::Slot slot, int layer, bool is_bias) const {
  const int i = spec::FindParameter(table_, slot, layer, is_bias);
  return i < 0 || gradients_.empty() ? TensorView() : gradient(i);
}

absl::Status ParameterStore::Initialise(const kernels::Exec& exec, uint64_t seed) const {
  for (int i = 0; i < size(); ++i) {
    const spec::Parameter& parameter = table_[static_cast<size_t>(i)];
    if (numerics_.storage == DType::kF64) {
      Fill<double>(parameter, seed, static_cast<uint32_t>(i), master(i));
    } else {
      Fill<float>(parameter, seed, static_cast<uint32_t>(i), master(i));
    }
  }
  return RefreshWeights(exec);
}

absl::Status ParameterStore::RefreshWeights(const kernels::Exec& exec) const {
  for (int i = 0; i < size(); ++i) {
    kernels::RoundToArgs round;
    round.x = master(i);
    round.y = weight(i);
    round.to = numerics_.weight;
    HEARTH_RETURN_IF_ERROR(kernels::RoundTo(exec, round));
  }
  return absl::OkStatus();
}

}  // namespace hearth::trainer
