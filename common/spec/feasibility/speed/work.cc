#include "common/spec/feasibility/speed/work.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/formats/reduce_formats.h"
#include "common/spec/model/linear_name.h"
#include "common/spec/optimizer/average_state.h"
#include "common/spec/optimizer/optimizer_table.h"
#include "common/spec/optimizer/orthogonal_work.h"
#include "common/spec/plan/blocks/block.h"
#include "common/spec/plan/blocks/block_plan.h"
#include "common/spec/plan/blocks/block_table.h"
#include "common/spec/plan/blocks/head_block.h"
#include "common/spec/plan/gradient_buckets.h"
#include "common/spec/plan/op_scratch.h"
#include "common/spec/plan/weight_units.h"

namespace hearth::spec {
namespace {

// Kernels of a layer and outside of the layers, both passes: hearth-112m's graphs on an H200 have
// 473 nodes in BF16 and 488 in FP8.
constexpr struct {
  double layer = 38;
  double quantised_layer = 40;
  double outside = 17;
} kLaunches;
constexpr double kBf16Bytes = 2;
// Where updates go bucket by bucket each launches its own: the bucket's gaps, its norm and what is
// made of that, the update; with codes also their making and their decoding.
constexpr double kBucketLaunches = 4;
constexpr double kCodeLaunches = 2;
// E4M3 and its part of a scale.
constexpr double kCodedGradientBytes = 1 + 1.0 / formats::kReduceBlock;
// An update computes a state of whole matrices in fp32 in scratch memory (kernels/muon_leading):
// made, read for R, read and written for the rest, read for the codes.
constexpr double kWholeStatePasses = 5;

double Bytes(DType dtype) {
  return DTypeBits(dtype) / 8.0;
}

class WorkBuilder {
 public:
  WorkBuilder(const TrainingPlanOptions& options, MatrixFormat quantised)
      : o_(options), scope_(options), quantised_(quantised) {}

  StepWork Build() {
    for (const PlacedBlock& placed : BlocksOf(o_.shape)) {
      for (const GemmSites& site : placed.block->sites(o_.shape)) {
        AddSite(site, placed.layer, placed.block == &kHeadBlock);
      }
      for (const PassRow& row : placed.block->passes(scope_)) {
        AddPass(row);
      }
    }
    const auto layers = static_cast<double>(o_.shape.layers);
    work_.launches = layers * (scope_.quantised ? kLaunches.quantised_layer : kLaunches.layer) +
                     kLaunches.outside;
    work_.head_dim = o_.shape.head_dim;
    work_.sequence_length = o_.sequence_length;
    work_.kept_bytes = static_cast<double>(AwayBytes(scope_));
    const double flops = forward_flops_ + backward_flops_ + outer_flops_;
    work_.forward_share = forward_flops_ / flops;
    work_.backward_share = backward_flops_ / flops;
    AddUpdate();
    return std::move(work_);
  }

 private:
  void AddProduct(const std::string& weight,
                  const char* pass,
                  MatrixFormat format,
                  const double (&size)[3],
                  double calls,
                  double gradient_bytes = 0) {
    for (ProductWork& p : work_.products) {
      if (p.weight == weight && p.pass == pass && p.format == format && p.m == size[0] &&
          p.n == size[1] && p.k == size[2]) {
        p.calls += calls;
        p.weights += 1;
        return;
      }
    }
    work_.products.push_back({.weight = weight,
                              .pass = pass,
                              .format = format,
                              .m = size[0],
                              .n = size[1],
                              .k = size[2],
                              .calls = calls,
                              .gradient_bytes = gradient_bytes});
  }

  void AddSite(const GemmSites& site, int layer, bool head) {
    const Parameter& weight =
        (*o_.table)[static_cast<size_t>(FindParameter(*o_.table, site.weight, layer))];
    const MatrixFormat format = o_.precision.Quantises(weight) ? quantised_ : MatrixFormat::kBf16;
    const std::string name = LinearName(weight);
    const auto out = static_cast<double>(weight.shape[0]);
    const auto in = static_cast<double>(weight.shape[1]);
    auto rows = static_cast<double>(scope_.tokens);
    double calls = 1;
    if (head) {  // a chunk of logits at a time
      calls = static_cast<double>(HeadCalls(o_));
      rows /= calls;
    }
    AddProduct(name, "forward", format, {rows, out, in}, calls);
    AddProduct(name, "dgrad", format, {rows, in, out}, calls);
    AddProduct(name, "wgrad", format, {out, in, rows}, calls, Bytes(weight.gradient));
    const bool again = site.again_from.has_value() && o_.recompute >= *site.again_from;
    if (again) {
      AddProduct(name, "forward again", format, {rows, out, in}, calls);
    }
    const double flops = 2 * rows * out * in * calls;
    (layer < 0 ? outer_flops_ : forward_flops_) += flops;
    (layer < 0 ? outer_flops_ : backward_flops_) += (again ? 3 : 2) * flops;
  }

  void AddPass(const PassRow& row) {
    const auto tokens = static_cast<double>(scope_.tokens);
    const double again = row.again_from.has_value() && o_.recompute >= *row.again_from ? 2 : 1;
    const std::string name(row.name);
    auto it = std::find_if(work_.passes.begin(), work_.passes.end(),
                           [&](const PassWork& p) { return p.name == name; });
    if (it == work_.passes.end()) {
      it = work_.passes.insert(it, {.name = name});
    }
    it->bytes += tokens * (again * row.forward_bytes + row.backward_bytes);
    it->forward_flops += tokens * again * row.forward_flops;
    it->backward_flops += tokens * row.backward_flops;
    // Attention is in the layers alone.
    forward_flops_ += tokens * row.forward_flops;
    backward_flops_ += tokens * ((again - 1) * row.forward_flops + row.backward_flops);
  }

  // The norm of gradients reads them; where they wait in codes, coding reads them and decoding
  // writes them. The optimizer reads them, reads and writes masters and states, and writes the
  // weights, which are then quantised along both dimensions.
  void AddUpdate() {
    work_.sums_each_micro_batch = o_.divide_gradients;
    if (o_.by_bucket()) {
      work_.update_launches += static_cast<double>(PlanBuckets(o_).size()) *
                               (kBucketLaunches + (o_.coded ? kCodeLaunches : 0));
    }
    AddGathers();
    const double orthogonal_share = AddOrthogonal();
    for (const Parameter& p : *o_.table) {
      const auto elements = static_cast<double>(p.elements());
      work_.host_bytes += elements * HostBytes(p) / o_.shards;
      double bytes = 2 * Bytes(p.gradient) + MasterBytes(p);
      if (p.has_master()) {
        bytes += Bytes(p.storage);
      }
      if (o_.coded) {
        bytes += 2 * (Bytes(p.gradient) + kCodedGradientBytes);
      }
      double coded_states = 0;
      int bits = 0;
      for (const ParameterState& state : p.states) {
        bytes += 2 * Bytes(state.dtype) / state.per;
        if (state.in_blocks() && !state.beside_codes()) {
          bytes += state.needs_whole() ? kWholeStatePasses * Bytes(DType::kF32) : 0;
          ++coded_states;
          bits = std::max(bits, formats::RowOf(state.codec).bits);
        }
      }
      // With a divided optimizer a rank updates its part, and gathers the weights (counted as
      // exchange).
      bytes /= o_.shards;
      if (IsOrthogonalised(p)) {
        // The gradient makes room for the momentum's look ahead and for its orthogonal factor; the
        // iteration reads it twice and writes it, and copies it to BF16 and back.
        bytes += 2 * Bytes(p.gradient) / o_.shards;
        bytes += (3 * Bytes(p.gradient) + 2 * kBf16Bytes) * orthogonal_share;
        work_.whole_gradient_bytes += o_.shards > 1 ? elements * Bytes(p.gradient) : 0;
      }
      if (o_.precision.Quantises(p) && !o_.divide_weights && !p.stored()) {
        bytes += QuantiseBytes(p);
      }
      work_.gradient_bytes += elements * o_.reduce->PartBytes();
      const double weight = o_.divide_weights ? 0 : KeptBytes(p);
      work_.handed_round_bytes += elements * (o_.shards > 1 ? weight : o_.reduce->SumBytes());
      if (bits == 0) {
        work_.update_bytes += elements * bytes;
      } else {
        AddCoded(bits, elements * coded_states / o_.shards, elements * bytes);
      }
    }
  }

  // What an update moves of a master, an element. Blocks are decoded to fp32, updated there, and
  // encoded again.
  static double MasterBytes(const Parameter& p) {
    return p.stored() ? 2 * StoredBytes(p) + 4 * Bytes(DType::kF32) : 2 * Bytes(p.master);
  }
  static double StoredBytes(const Parameter& p) {
    return static_cast<double>(p.stored_bytes()) / static_cast<double>(p.elements());
  }
  double KeptBytes(const Parameter& p) const {
    return p.stored() ? StoredBytes(p) : Bytes(p.storage);
  }

  // For each element of a parameter.
  double HostBytes(const Parameter& p) const {
    double bytes = 0;
    if (p.has_master() && o_.offload.Has(BufferClass::kMasters)) {
      bytes += (HasAverageState(p) ? 2 : 1) * Bytes(p.master);  // the average reads them again
    }
    for (const ParameterState& state : p.states) {
      bytes += o_.offload.Has(BufferClass::kOptimizer) ? Bytes(state.dtype) / state.per : 0;
    }
    return bytes;
  }

  // What quantising a weight along both dimensions reads and writes, an element.
  double QuantiseBytes(const Parameter& p) const {
    return Bytes(p.storage) + 2 * Bytes(o_.precision.recipe->fprop.b.dtype);
  }

  // Divided weights are gathered in each pass, and quantised as they arrive: all in forward, and
  // in backward all but those that are still in their slots. Weights in blocks are decoded then,
  // also where they are whole.
  void AddGathers() {
    AddDecoding();
    if (!o_.divide_weights) {
      return;
    }
    const Gathered gathered =
        GatheredBytes(PlanWeightUnits(o_), Bytes(o_.recipe->parameters.storage));
    work_.forward_weight_bytes = static_cast<double>(gathered.forward);
    work_.backward_weight_bytes = static_cast<double>(gathered.backward);
    PassWork quantise = {.name = "weights"};
    for (const Parameter& p : *o_.table) {
      if (o_.precision.Quantises(p) && !p.stored()) {
        quantise.bytes += 2 * static_cast<double>(p.elements()) * QuantiseBytes(p);
      }
    }
    if (quantise.bytes > 0) {
      work_.passes.push_back(quantise);
    }
  }

  // Each pass decodes weights in blocks twice, except for the last layer.
  void AddDecoding() {
    PassWork decode = {.name = "blocks"};
    for (const Parameter& p : *o_.table) {
      if (!p.stored()) {
        continue;
      }
      const double again = o_.precision.Quantises(p) ? QuantiseBytes(p) : 0;
      const double times = p.layer + 1 == o_.shape.layers ? 1 : 2;
      work_.launches += times;
      work_.update_launches += 2;  // decoded and encoded
      decode.bytes +=
          times * static_cast<double>(p.elements()) * (StoredBytes(p) + Bytes(p.storage) + again);
    }
    if (decode.bytes > 0) {
      work_.passes.push_back(decode);
    }
  }

  void AddCoded(int bits, double values, double bytes) {
    const auto it = std::find_if(work_.coded.begin(), work_.coded.end(),
                                 [&](const CodedUpdate& row) { return row.bits == bits; });
    CodedUpdate& row = it != work_.coded.end() ? *it : work_.coded.emplace_back();
    row = {bits, row.values + values, row.bytes + bytes};
  }

  // Products of the matrices that the slowest rank orthogonalises. Returns its share of all: whole
  // matrices are divided among ranks, as evenly as they can be.
  double AddOrthogonal() {
    const auto shapes = OrthogonalShapes(*o_.table);
    double all = 0;
    double largest = 0;
    for (const auto& [shape, count] : shapes) {
      const auto m = static_cast<double>(shape.first);
      const double cost = m * m * static_cast<double>(shape.second);
      all += cost * static_cast<double>(count);
      largest = std::max(largest, cost);
    }
    const double share = all > 0 ? std::max(1.0 / o_.shards, largest / all) : 0;
    for (const auto& [shape, count] : shapes) {
      const auto [m, n] = shape;
      const double matrices = share * static_cast<double>(count);
      const double batches =
          std::ceil(matrices / static_cast<double>(OrthogonalBatch(m, n, count)));
      work_.update_launches += batches * OrthogonalCopies(m, n);
      for (const OrthogonalProduct& p : OrthogonalProducts(m, n)) {
        const auto calls = static_cast<double>(p.calls);
        work_.update_launches += batches * calls;
        work_.update_products.push_back({.weight = absl::StrCat(m, "x", n),
                                         .pass = "update",
                                         .m = static_cast<double>(p.m),
                                         .n = static_cast<double>(p.n),
                                         .k = static_cast<double>(p.k),
                                         .calls = calls * matrices,
                                         .addend = p.addend});
      }
    }
    return share;
  }

  const TrainingPlanOptions& o_;
  const BlockScope scope_;
  const MatrixFormat quantised_;
  StepWork work_;
  // Operations of a micro-batch's products, of the layers and outside of them.
  double forward_flops_ = 0;
  double backward_flops_ = 0;
  double outer_flops_ = 0;
};

}  // namespace

StepWork WorkOf(const TrainingPlanOptions& options, MatrixFormat quantised) {
  return WorkBuilder(options, quantised).Build();
}

}  // namespace hearth::spec
