#include "common/spec/feasibility/speed/step_time.h"

#include <algorithm>
#include <cmath>

#include "common/spec/violations/text.h"

namespace hearth::spec {
namespace {

// Bytes of a value of an operand; scales of blocks are below a tenth and not counted.
double OperandBytes(MatrixFormat format) {
  switch (format) {
    case MatrixFormat::kBf16:
      return 2;
    case MatrixFormat::kFp8:
    case MatrixFormat::kFp8Block:
      return 1;
    case MatrixFormat::kFp4Block:
      return 0.5;
  }
  return 2;
}

// That one call reads and writes.
double ProductBytes(const ProductWork& p) {
  return OperandBytes(p.format) * (p.m * p.k + p.k * p.n) + (p.addend ? 4 : 2) * p.m * p.n;
}

// One call: the rate of its shape, but no faster than its operands and result move.
double ProductSeconds(const ProductWork& p, const Calibration& c, double rate) {
  return std::max(2 * p.m * p.n * p.k / rate, ProductBytes(p) / c.copy);
}

// What the calls of a step of n micro-batches write and read of a gradient beyond the results that
// calibrations time (kTimedGradient). Nothing hides it: while a product writes its result, no other
// product runs.
double GradientSeconds(const ProductWork& p, const Calibration& c, double n) {
  if (p.gradient_bytes == 0) {
    return 0;
  }
  const double calls = p.calls * n;
  const double added_to = calls - p.weights;
  constexpr double kTimedBytes = DTypeBits(kTimedGradient) / 8.0;
  return p.m * p.n * (calls * (p.gradient_bytes - kTimedBytes) + added_to * p.gradient_bytes) /
         c.copy;
}

// Kernels that a GPU runs at its power limit would take more than it: the driver lowers the clock
// until the mean over some milliseconds is the limit. What memory-bound kernels and gaps of a step
// leave goes to them. How much they would take at full clock is not measured; steps on an H100,
// which are at the limit, need a quarter more at least.
constexpr double kAtLimit = 0.97;  // of it: what counts as being there
constexpr double kWanted = 1.25;   // of what such kernels take

// The mean of the parts' watts by their time, at most the limit.
double MeanWatts(const StepTime& t, const GpuRow& gpu, const Calibration& c) {
  const auto wanted = [&](double watts) {
    return gpu.power_watts > 0 && watts >= kAtLimit * gpu.power_watts ? kWanted * watts : watts;
  };
  const double busy =
      t.product_seconds + t.attention_seconds + t.memory_seconds + t.update_seconds + t.gap_seconds;
  const double joules =
      wanted(c.product_watts) * (t.product_seconds + t.update_product_seconds) +
      wanted(c.attention_watts) * t.attention_seconds +
      c.memory_watts * (t.memory_seconds + t.update_seconds - t.update_product_seconds) +
      c.gap_watts * t.gap_seconds;
  const double watts = busy > 0 ? joules / busy : 0;
  return gpu.power_watts > 0 ? std::min(watts, gpu.power_watts) : watts;
}

// Adds the products of the optimizer. Its matrices are small, so that memory bounds many of them,
// at the speed of kernels that are bound by memory.
void AddUpdateProducts(const StepWork& work, const Calibration& c, StepTime& t) {
  for (const ProductWork& p : work.update_products) {
    const double rate = ProductRate(c, p.format, p.m, p.n, p.k);
    const double seconds =
        p.calls * std::max(2 * p.m * p.n * p.k / rate, ProductBytes(p) / (c.copy * c.elementwise));
    t.products.push_back({p, seconds});
    t.update_product_seconds += seconds;
  }
}

// Everything else of the optimizer.
double UpdateMemorySeconds(const StepWork& work, const Calibration& c) {
  double seconds = work.update_bytes / (c.copy * c.optimizer);
  for (const CodedUpdate& coded : work.coded) {
    double at_least = 0;
    for (const CodedRate& rate : c.coded) {
      if (rate.bits == coded.bits) {
        at_least = coded.values / rate.values;
      }
    }
    seconds += std::max(coded.bytes / (c.copy * c.optimizer), at_least);
  }
  return seconds;
}

// The part of the exchange that lengthens a step. (N - 1) / N of the gradients go through each link
// to be summed, and as much of the sums, or of new weights, to be handed round. Backward of the
// micro-batch, two thirds of it, runs beside it; nothing runs beside the exchange of whole
// gradients in the update. Divided weights come beside both parts of each micro-batch.
double ExchangeSeconds(const StepWork& work,
                       const GpuRow& gpu,
                       const Calibration& c,
                       const StepSetting& setting,
                       double micro_batch_seconds) {
  const double share = (setting.gpus - 1.0) / setting.gpus;
  const double link = gpu.link_bytes * c.link;
  const auto lengthens = [&](double seconds, double part) {
    const double beside = std::min(seconds, micro_batch_seconds * part);
    return seconds - beside + c.not_hidden * beside;
  };
  constexpr double kForward = 1.0 / 3;
  constexpr double kBackward = 2.0 / 3;
  const double forward = work.forward_weight_bytes * share / link;
  const double sums = (work.gradient_bytes + work.backward_weight_bytes) * share / link;
  const double all = sums + work.handed_round_bytes * share / link;
  const double before = work.sums_each_micro_batch ? setting.micro_batches - 1 : 0;
  return setting.micro_batches * lengthens(forward, kForward) +
         before * lengthens(sums, kBackward) + lengthens(all, kBackward) +
         2 * work.whole_gradient_bytes * share / link;
}

// Share of the link's speed that copies from and to the host's pinned memory reach when both
// directions are busy: measured on PCIe 5.0, on a machine with an H200 (docs/memory.md).
constexpr double kHostShare = 0.74;

// How much the copies from and to the host's memory lengthen a step. Both directions run at the
// same time, beside the kernels of the update.
double OffloadSeconds(const StepWork& work, const GpuRow& gpu, double beside) {
  return work.host_bytes > 0
             ? std::max(0.0, work.host_bytes / (gpu.host_link_bytes * kHostShare) - beside)
             : 0;
}

// The same of what layers keep there: it goes one way in each part of a micro-batch, beside the
// layers' kernels.
double KeptSeconds(const StepWork& work,
                   const GpuRow& gpu,
                   const StepSetting& setting,
                   double micro_batch_seconds) {
  if (work.kept_bytes == 0) {
    return 0;
  }
  const double way = work.kept_bytes / (gpu.host_link_bytes * kHostShare);
  return setting.micro_batches * (std::max(0.0, way - work.forward_share * micro_batch_seconds) +
                                  std::max(0.0, way - work.backward_share * micro_batch_seconds));
}

std::string Lacks(const StepWork& work,
                  const GpuRow& gpu,
                  const StepSetting& setting,
                  double copy) {
  if (!(copy > 0)) {
    return Text(gpu.name, " has no memory bandwidth in configs/gpus.yaml");
  }
  if (setting.gpus > 1 && !(gpu.link_bytes > 0)) {
    return Text(gpu.name, " has no link between GPUs in configs/gpus.yaml");
  }
  if (work.host_bytes + work.kept_bytes > 0 && !(gpu.host_link_bytes > 0)) {
    return Text(gpu.name, " has no link to its host in configs/gpus.yaml");
  }
  return "";
}

}  // namespace

StepTime TimeOf(const StepWork& work,
                const GpuRow& gpu,
                const Calibration& c,
                const StepSetting& setting) {
  StepTime t;
  t.unknown = Lacks(work, gpu, setting, c.copy);
  const double n = setting.micro_batches;
  for (const ProductWork& product : work.products) {
    const double rate = ProductRate(c, product.format, product.m, product.n, product.k);
    if (!(rate > 0)) {
      t.unknown = Text(gpu.name, " has no ", MatrixFormatName(product.format),
                       " rate in configs/gpus.yaml");
    }
    // Before anything is divided by a rate that is 0.
    if (!t.known()) {
      return {.unknown = t.unknown};
    }
    t.products.push_back({product, product.calls * ProductSeconds(product, c, rate) +
                                       GradientSeconds(product, c, n) / n});
    const double seconds = t.products.back().seconds * n;
    t.product_seconds += seconds;
    t.stretch_seconds += seconds * (c.stretch[static_cast<int>(product.format)] - 1);
  }
  // Copies count each byte once read and once written; so do the rows of the blocks.
  for (const PassWork& pass : work.passes) {
    t.memory_seconds += pass.bytes / (c.copy * c.elementwise) * n;
    if (pass.forward_flops > 0) {
      const AttentionRate& rate = AttentionRateOf(c, work.head_dim, work.sequence_length);
      if (!(rate.forward > 0) || !(rate.backward > 0)) {
        return {.unknown = Text(gpu.name, " has no bf16 rate in configs/gpus.yaml")};
      }
      t.attention_seconds +=
          (pass.forward_flops / rate.forward + pass.backward_flops / rate.backward) * n;
    }
  }
  AddUpdateProducts(work, c, t);
  const double kernels = UpdateMemorySeconds(work, c);
  t.update_seconds = kernels + t.update_product_seconds;
  t.offload_seconds = OffloadSeconds(work, gpu, kernels);
  t.gap_seconds = (work.launches * n + work.update_launches) * c.launch_seconds;
  const double others = t.attention_seconds + t.memory_seconds + t.update_seconds;
  t.stretch_seconds += others * (c.stretch_other - 1);
  double alone = t.product_seconds + others + t.stretch_seconds + t.gap_seconds;
  if (setting.emulated) {
    t.emulated_seconds = alone * (c.emulated - 1);
    alone += t.emulated_seconds;
  }
  const double micro_batch = (alone - t.update_seconds) / n;
  t.offload_seconds += KeptSeconds(work, gpu, setting, micro_batch);
  if (setting.gpus > 1) {
    t.lockstep_seconds = alone * c.lockstep / std::sqrt(n);
    t.exchange_seconds = ExchangeSeconds(work, gpu, c, setting, micro_batch);
  }
  t.seconds = alone + t.lockstep_seconds + t.exchange_seconds + t.offload_seconds;
  t.watts = MeanWatts(t, gpu, c);
  return t;
}

}  // namespace hearth::spec
