// Views of every parameter and of what belongs to it, in the order of the parameter table.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "common/spec/model/parameter.h"
#include "common/spec/plan/gradient_buckets.h"
#include "common/spec/plan/weight_units.h"
#include "kernels/core/exec.h"
#include "kernels/core/tensor.h"
#include "worker/trainer/model/arena.h"
#include "worker/trainer/model/upload.h"
#include "worker/trainer/precision/numerics.h"

namespace hearth::trainer {

// How ranks divide what belongs to parameters; as the plan of the arena has it.
struct StoreShards {
  int rank = 0;  // not read of one shard, which has everything
  int shards = 1;
  // Not read where one shard keeps whole gradients. With slots: gradients are divided too, or the
  // arena has no room for their sums (TrainingPlanOptions::by_bucket).
  std::vector<spec::GradientBucket> buckets;
  // Empty: weights are whole on every rank, and none are in blocks.
  spec::WeightUnits units = {};
};

// What this rank updates of one tensor, flat. `states` as Parameter::states, each with the elements
// that it has for the piece (ParameterState::Count); without training there are none, and the
// gradient is empty.
struct StorePiece {
  spec::ShardPiece place;
  kernels::TensorView master;
  // Within the whole weights, or with divided ones the rank's part.
  kernels::TensorView weight;
  kernels::TensorView gradient;
  std::vector<kernels::TensorView> states;
  // Weights in blocks (weights.store): the piece's blocks, kU8, likewise. The piece then has
  // neither master nor weight: updates decode it (optim/streamed_pieces.h), and passes read
  // weight(i), to which a WeightSource decodes it.
  kernels::TensorView blocks = {};
  // They lie in the host's memory (offload). A GPU reads and writes them there too, at the speed of
  // its link to the host; updates stream them (optim/streamed_pieces.h).
  bool master_on_host = false;
  bool states_on_host = false;
};

// Weights are whole on every rank; with several shards a rank has masters and optimizer state only
// of its pieces, and with divided gradients the sums of those alone. gradient(i) is then where
// backward makes it, in memory that its bucket shares with others: whoever lets backward begin a
// bucket says when that memory is free (GradientExchange; BucketPass, with which the slots are all
// there is of gradients as backward makes them). With divided weights a rank has those of its
// pieces, and weight(i) is where a pass reads it, in memory that its unit shares with others: a
// WeightSource brings it there.
//
// Owns nothing: arena and table outlive it. On a GPU each buffer has its own format. On the CPU
// only optimizer state has one; the others are of the storage type, and narrower formats are values
// rounded to them.
class ParameterStore {
 public:
  // Without training: only weights (evaluation, sampling).
  ParameterStore(const std::vector<spec::Parameter>& table,
                 const Arena& arena,
                 const Numerics& numerics,
                 bool training,
                 const StoreShards& shards = {});

  const std::vector<spec::Parameter>& table() const { return table_; }
  int size() const { return static_cast<int>(table_.size()); }

  const kernels::TensorView& weight(int i) const { return weights_[static_cast<size_t>(i)]; }
  // The weight itself if the parameter has no master of its own. Only for one shard, and not of a
  // weight in blocks.
  const kernels::TensorView& master(int i) const;
  const kernels::TensorView& gradient(int i) const { return gradients_[static_cast<size_t>(i)]; }
  bool sharded() const { return shards_ > 1; }
  int shards() const { return shards_; }
  // The narrow weight itself is updated (optimizer.master: none).
  bool weight_is_master(int i) const {
    const spec::Parameter& parameter = table_[static_cast<size_t>(i)];
    return !parameter.stored() && !parameter.has_master() && parameter.storage != spec::DType::kF32;
  }
  // Some weights are in blocks (weights.store).
  bool weights_stored() const { return !flat_blocks_.empty(); }
  // All blocks of weight i; empty for others, and where they are divided.
  const kernels::TensorView& blocks(int i) const { return blocks_[static_cast<size_t>(i)]; }
  // The fp32 memory into which an update decodes blocks, a part at a time.
  const kernels::TensorView& decoded() const { return decoded_; }
  // Whether any parameter has no master but its narrow weight.
  bool some_weights_are_masters() const;
  // Parameters of one group have their whole gradients in memory together. With slots a group is a
  // bucket, by its number; otherwise all parameters are in group 0.
  int WholeGroup(int i) const { return groups_of_[static_cast<size_t>(i)]; }
  // What this rank updates, in the order of the table; of one shard every tensor whole.
  const std::vector<StorePiece>& pieces() const { return pieces_; }

  // All gradients, a tensor for each of spec::GradientGroups, alignment gaps (zeros) included.
  // Empty without training and with slots.
  const std::vector<kernels::TensorView>& flat_gradients() const { return flat_gradients_; }
  const std::vector<spec::GradientGroup>& gradient_groups() const { return groups_; }
  // A rank keeps the sums of its part of them.
  bool gradients_divided() const { return divided_; }
  // They are made in slots that buckets use in turn: divided ones, and all where the update goes by
  // bucket.
  bool gradients_in_slots() const { return !slots_.empty(); }
  // The gradients of elements [begin, begin + elements) of flat_weights(), which lie in one group,
  // and with several shards in one bucket; as backward makes them.
  kernels::TensorView GradientRange(int64_t begin, int64_t elements) const;
  // The sums that this rank updates with, gaps (zeros) included: a view for each bucket; of one
  // shard that keeps whole gradients flat_gradients().
  const std::vector<kernels::TensorView>& owned_gradients() const { return owned_gradients_; }
  // All weights that are not in blocks, or with divided ones this rank's part of them, one bucket's
  // behind the other's.
  const kernels::TensorView& flat_weights() const { return flat_weights_; }
  // Whole weights: those of a bucket as they are kept, in the recipe's format or as blocks.
  kernels::TensorView BucketWeights(const spec::GradientBucket& bucket) const {
    return Kept(bucket.begin, bucket.elements());
  }
  bool weights_divided() const { return units_.divided(); }
  const spec::WeightUnits& units() const { return units_; }
  // A part of a unit: with divided weights a bucket, else a weight in blocks. `whole` is where
  // passes read it in the unit's slot, elements [begin, begin + whole.numel()) of the undivided
  // weights. `arrived` is what Unpack makes it of: the blocks (`codec`), or the same weights in the
  // slot of arrival, or `whole` itself. `own` is what this rank keeps of a divided `arrived`.
  struct UnitPart {
    int64_t begin = 0;
    kernels::TensorView own;
    kernels::TensorView arrived;
    kernels::TensorView whole;
    formats::WeightCodec codec = formats::WeightCodec::kNone;
  };
  const std::vector<UnitPart>& UnitParts(int unit) const {
    return parts_[static_cast<size_t>(unit)];
  }
  // Makes a unit whole of what has arrived. On a GPU done when the stream gets there.
  absl::Status Unpack(const kernels::Exec& exec, int unit) const;
  const std::vector<kernels::TensorView>& gradients() const { return gradients_; }

  // The row of a weight that the model has.
  const spec::Parameter& Find(spec::Slot slot, int layer) const;
  // weight, or an empty view when the model has no such tensor.
  kernels::TensorView FindWeight(spec::Slot slot, int layer, bool is_bias = false) const;
  kernels::TensorView FindGradient(spec::Slot slot, int layer, bool is_bias = false) const;

  // Initial masters and weights as the table says: they depend only on (seed, parameter, element),
  // with the same bits on every device. On a GPU done when the stream gets there.
  absl::Status Initialise(const kernels::Exec& exec, uint64_t seed) const;
  // Parameter i's master and weight, as far as this rank has them, from fp32 values (elements() of
  // them, padding included). On a GPU done when the stream gets there.
  absl::Status WriteParameter(const kernels::Exec& exec,
                              Upload& upload,
                              int i,
                              const Upload::Values& values) const;
  // weight = master rounded to the working format, of this rank's pieces.
  absl::Status RefreshWeights(const kernels::Exec& exec) const;
  // Between host memory and a tensor or piece of the run, fp32 on the host side (numel() values).
  // Waits for the stream.
  absl::Status Write(const kernels::Exec& exec,
                     const kernels::TensorView& tensor,
                     const float* values) const;
  absl::Status Read(const kernels::Exec& exec,
                    const kernels::TensorView& tensor,
                    float* values) const;

 private:
  void BindWeights(const Arena& arena, const std::vector<int64_t>& offsets);
  void BindStoredUnits(const Arena& arena, const std::vector<int64_t>& offsets);
  void BindDividedUnits(const Arena& arena, const std::vector<int64_t>& offsets);
  // What this rank keeps of `elements` weights, as they are kept. `begin` is their place in the
  // undivided buffers, or with divided weights in the rank's own.
  kernels::TensorView Kept(int64_t begin, int64_t elements) const;
  // Initial values of what this rank keeps as whole tensors beside its pieces.
  absl::Status DrawWhole(const kernels::Exec& exec, int i, uint64_t seed) const;
  // Parameter i in blocks, as far as this rank has it, from fp32 values, rounded to nearest under
  // new scales.
  absl::Status WriteBlocks(const kernels::Exec& exec,
                           Upload& upload,
                           int i,
                           const Upload::Values& values) const;
  absl::Status DrawBlocks(const kernels::Exec& exec, int i, uint64_t seed) const;
  // Calls `fill(values, first)` for parts of what this rank has of parameter i, in blocks, and
  // encodes what it has put into `values`, a part of decoded().
  template <typename Fill>
  absl::Status EncodeParts(const kernels::Exec& exec, int i, const Fill& fill) const;
  // Number of the bucket that has the element of the undivided buffers; of several shards.
  int BucketOf(int64_t offset) const;
  // weight = master of one piece.
  absl::Status RefreshWeight(const kernels::Exec& exec, const StorePiece& piece) const;
  // The piece of parameter i; null: this rank has none.
  const StorePiece* PieceOf(int i) const;
  void BindMasters(const Arena& arena, const std::vector<spec::MasterBuffer>& buffers);
  void BindGradients(const Arena& arena, const std::vector<int64_t>& offsets);
  // What this rank owns of the gradients of `bucket`.
  kernels::TensorView OwnedGradients(const spec::GradientBucket& bucket) const;
  kernels::TensorView PieceGradient(const spec::ShardPiece& place) const;
  void CutStates(const Arena& arena, const std::vector<spec::StateBuffer>& buffers);

  const std::vector<spec::Parameter>& table_;
  Numerics numerics_;
  int rank_ = 0;
  int shards_ = 1;
  bool divided_ = false;                       // the gradients
  std::vector<spec::GradientBucket> buckets_;  // of more than one shard, or with slots
  std::vector<int> groups_of_;                 // by parameter
  spec::WeightUnits units_;                    // of weights that are divided or in blocks
  std::vector<std::vector<UnitPart>> parts_;   // by unit
  std::vector<kernels::TensorView> weights_;
  std::vector<kernels::TensorView> blocks_;  // by parameter
  kernels::TensorView decoded_;
  std::vector<kernels::TensorView> masters_;  // of one shard
  std::vector<kernels::TensorView> gradients_;
  std::vector<StorePiece> pieces_;
  kernels::TensorView flat_weights_;
  kernels::TensorView flat_blocks_;
  std::vector<spec::GradientGroup> groups_;
  std::vector<kernels::TensorView> flat_gradients_;  // by group
  std::vector<kernels::TensorView> sums_;            // by group, if divided: this rank's part
  std::vector<kernels::TensorView> slots_;           // in which buckets are made
  std::vector<kernels::TensorView> owned_gradients_;
};

}  // namespace hearth::trainer
