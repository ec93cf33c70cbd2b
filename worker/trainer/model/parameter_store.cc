#include "worker/trainer/model/parameter_store.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/spec/training_plan.h"
#include "kernels/core/rng.h"
#include "kernels/cuda/device.h"
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

// Elements [begin, end) of the initial value, which is a function of the element alone.
template <typename T>
void Fill(const spec::Parameter& parameter,
          uint64_t seed,
          uint32_t index,
          int64_t begin,
          int64_t end,
          T* data) {
  const int64_t logical = std::clamp(parameter.logical_elements(), begin, end);
  std::fill(data + logical, data + end, T{0});
  switch (parameter.init) {
    case spec::Init::kZeros:
      std::fill(data + begin, data + logical, T{0});
      break;
    case spec::Init::kOnes:
      std::fill(data + begin, data + logical, T{1});
      break;
    case spec::Init::kNormal: {
      const kernels::RngKey key{seed, kernels::RngPurpose::kInit, 0, 0, index};
      kernels::FillNormal(key, static_cast<uint64_t>(begin), 0.0, parameter.init_std, data + begin,
                          logical - begin);
      break;
    }
  }
}

// All of it, on as many threads as `exec` has.
template <typename T>
void FillAll(const kernels::Exec& exec,
             const spec::Parameter& parameter,
             uint64_t seed,
             uint32_t index,
             T* data) {
  constexpr int64_t kPiece = int64_t{1} << 16;
  const int64_t elements = parameter.elements();
  const int64_t pieces = (elements + kPiece - 1) / kPiece;
#pragma omp parallel for schedule(static) num_threads(exec.threads)
  for (int64_t piece = 0; piece < pieces; ++piece) {
    Fill(parameter, seed, index, piece * kPiece, std::min(elements, (piece + 1) * kPiece), data);
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
  std::vector<float> host;
  for (int i = 0; i < size(); ++i) {
    const spec::Parameter& parameter = table_[static_cast<size_t>(i)];
    const auto index = static_cast<uint32_t>(i);
    if (exec.device == kernels::Device::kCpu && numerics_.storage == DType::kF64) {
      FillAll(exec, parameter, seed, index, master(i).as<double>());
    } else if (exec.device == kernels::Device::kCpu) {
      FillAll(exec, parameter, seed, index, master(i).as<float>());
    } else {
      host.resize(static_cast<size_t>(parameter.elements()));
      FillAll(exec, parameter, seed, index, host.data());
      HEARTH_RETURN_IF_ERROR(Write(exec, master(i), host.data()));
    }
  }
  return RefreshWeights(exec);
}

absl::Status ParameterStore::Write(const kernels::Exec& exec,
                                   const TensorView& tensor,
                                   const float* values) const {
  const void* from = values;
  std::vector<uint8_t> narrow;
  if (tensor.dtype != DType::kF32) {
    // Conversion on the host: the other side of the copy is the tensor itself.
    narrow.resize(tensor.bytes());
    kernels::RoundToArgs round;
    round.x = TensorView(values, DType::kF32, {tensor.numel()});
    round.y = TensorView(static_cast<void*>(narrow.data()), tensor.dtype, {tensor.numel()});
    round.to = tensor.dtype;
    kernels::Exec host;
    HEARTH_RETURN_IF_ERROR(kernels::RoundTo(host, round));
    from = narrow.data();
  }
  HEARTH_RETURN_IF_ERROR(kernels::Copy(exec, tensor.data, from, tensor.bytes()));
  return kernels::Synchronize(exec);
}

absl::Status ParameterStore::Read(const kernels::Exec& exec,
                                  const TensorView& tensor,
                                  float* values) const {
  if (tensor.dtype == DType::kF32) {
    HEARTH_RETURN_IF_ERROR(kernels::Copy(exec, values, tensor.data, tensor.bytes()));
    return kernels::Synchronize(exec);
  }
  std::vector<uint8_t> narrow(tensor.bytes());
  HEARTH_RETURN_IF_ERROR(kernels::Copy(exec, narrow.data(), tensor.data, tensor.bytes()));
  HEARTH_RETURN_IF_ERROR(kernels::Synchronize(exec));
  kernels::WidenArgs widen;
  widen.x = TensorView(static_cast<void*>(narrow.data()), tensor.dtype, {tensor.numel()});
  widen.y = TensorView(static_cast<void*>(values), DType::kF32, {tensor.numel()});
  kernels::Exec host;
  return kernels::Widen(host, widen);
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
