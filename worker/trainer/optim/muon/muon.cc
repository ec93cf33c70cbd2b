#include "kernels/muon/muon.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/cuda/device.h"
#include "kernels/newton_schulz/newton_schulz.h"
#include "worker/trainer/optim/muon/leading.h"
#include "worker/trainer/optim/muon/owners.h"
#include "worker/trainer/optim/optimizer.h"

namespace hearth::trainer {
namespace {

using kernels::TensorView;

// A matrix of the model in the whole gradient of its tensor.
TensorView GradientOf(const TensorView& gradient, const spec::LogicalMatrix& matrix) {
  TensorView view = Slice(gradient, matrix.row_offset * matrix.cols, matrix.rows * matrix.cols);
  view.rank = 2;
  view.shape = {matrix.rows, matrix.cols, 0, 0};
  return view;
}

// The momentum comes first; if it is in blocks, its scales are the state behind its codes.
kernels::StateBlocks BlocksOf(const spec::Parameter& parameter, const StorePiece& piece) {
  const spec::ParameterState& momentum = parameter.states[0];
  return momentum.in_blocks() ? kernels::StateBlocks{momentum.codec, piece.states[1].as<float>()}
                              : kernels::StateBlocks{};
}

std::vector<int> Owners(const std::vector<TensorView>& matrices, int shards) {
  std::vector<int64_t> costs;
  for (const TensorView& matrix : matrices) {
    costs.push_back(OrthogonalCost(matrix.rows(), matrix.cols()));
  }
  return OwnersByCost(costs, shards);
}

// Muon for the matrices inside the model, AdamW for all else. On whole tensors:
//   momentum and look ahead, into the gradient; Newton-Schulz, in place; the update
// Ranks that divide the masters have pieces of tensors: between the first two they gather whole
// gradients, each computes its own matrices, and after the second each gets the pieces that it
// updates, as sums to which one rank adds the matrix and the others zeros. So it goes group by
// group of those gradients that there is room for together.
class Muon : public Optimizer {
 public:
  explicit Muon(const OptimizerContext& context)
      : device_(context.device),
        divided_(context.shards > 1),
        momentum_pieces_(
            *context.parameters,
            context.offload,
            {.state = &IsOwnState, .of = &spec::IsHiddenMatrix, .group = context.group}),
        master_pieces_(*context.parameters,
                       context.offload,
                       {.masters = true, .of = &spec::IsHiddenMatrix, .group = context.group}),
        rounding_(RoundingOf(context)),
        row_(kernels::FindNewtonSchulz(context.spec->newton_schulz())) {
    HEARTH_CHECK(row_ != nullptr, "optimizer.newton_schulz names a row");
    OptimizerContext rest = context;
    rest.of = &spec::IsNotHiddenMatrix;
    rest_ = MakeAdamW(rest);
    for (const OffloadWindow& window : momentum_pieces_.windows()) {
      AddMomenta(context, window);
    }
    for (const OffloadWindow& window : master_pieces_.windows()) {
      updates_.push_back(UpdatesOf(context, window));
    }
    BindMatrices(context);
    momentum_.mu = context.spec->momentum();
    leading_.mu = momentum_.mu;
    update_.round_working = context.numerics.weight;
    // It acts on weights that are their own masters and leaves fp32 masters alone.
    update_.stochastic_rounding = context.parameters->some_weights_are_masters();
    update_.seed = context.seed;
  }

  absl::Status Step(const kernels::Exec& exec, const UpdateArgs& update) override {
    if (divided_ && update.whole == nullptr) {
      return absl::InternalError("muon: divided, and nobody exchanges whole gradients");
    }
    // First: the exchange leaves anything in the gradients of other tensors.
    HEARTH_RETURN_IF_ERROR(rest_->Step(exec, update));
    momentum_.grad_scale = update.grad_scale;
    momentum_.skip = update.skip;
    leading_.grad_scale = update.grad_scale;
    leading_.skip = update.skip;
    // On the pieces, before the gather: momentum works element by element, and each rank keeps it
    // for its pieces alone. One with leading directions apart is of whole matrices, which then no
    // rank divides.
    HEARTH_RETURN_IF_ERROR(
        momentum_pieces_.Run(exec, [&](size_t window) { return AdvanceMomenta(exec, window); }));
    for (const Group& group : groups_) {
      HEARTH_RETURN_IF_ERROR(Orthogonalise(exec, group, update.whole));
    }
    update_.inputs = update.inputs;
    update_.skip = update.skip;
    const auto step = [&](size_t window) {
      update_.tensors = updates_[window];
      return kernels::MuonUpdate(exec, update_);
    };
    return master_pieces_.Run(exec, step, At(update, rounding_));
  }

  size_t WorkspaceBytes() const override {
    size_t bytes = rest_->WorkspaceBytes();
    for (const std::vector<kernels::MuonLeadingMatrix>& window : leading_momenta_) {
      bytes = std::max(bytes, kernels::MuonLeadingWorkspaceBytes(device_, window));
    }
    for (const Group& group : groups_) {
      for (const Shape& shape : group.shapes) {
        const TensorView& first = shape.matrices.front();
        bytes = std::max(bytes, kernels::NewtonSchulzWorkspaceBytes(
                                    device_, first.dtype, first.rows(), first.cols(),
                                    static_cast<int64_t>(shape.matrices.size())));
      }
    }
    return bytes;
  }

  bool NeedsWhole(const spec::Parameter& parameter) const override {
    return spec::IsHiddenMatrix(parameter);
  }

  void Scalars(int64_t step, absl::Span<double> scalars) const override {
    rest_->Scalars(step, scalars);
  }

 private:
  // Matrices of one shape, except for which side is the longer one.
  struct Shape {
    int64_t shorter = 0;
    std::vector<TensorView> matrices;
  };

  // Matrices whose whole gradients are in memory together.
  struct Group {
    int number = 0;                  // WholeGradients'
    std::vector<TensorView> all;     // only while it is bound
    std::vector<Shape> shapes;       // what this rank computes
    std::vector<TensorView> others;  // matrices of other ranks
  };

  absl::Status AdvanceMomenta(const kernels::Exec& exec, size_t window) {
    momentum_.tensors = momenta_[window];
    leading_.matrices = leading_momenta_[window];
    HEARTH_RETURN_IF_ERROR(kernels::MuonMomentum(exec, momentum_));
    return kernels::MuonLeading(exec, leading_);
  }

  absl::Status Orthogonalise(const kernels::Exec& exec,
                             const Group& group,
                             WholeGradients* whole) const {
    if (divided_) {
      HEARTH_RETURN_IF_ERROR(whole->Gather(exec, group.number));
    }
    for (const Shape& shape : group.shapes) {
      HEARTH_RETURN_IF_ERROR(kernels::NewtonSchulz(exec, {shape.matrices, row_}));
    }
    if (!divided_) {
      return absl::OkStatus();
    }
    // Zeros where other ranks have the matrix: the sum is then the matrix itself, and exact.
    for (const TensorView& matrix : group.others) {
      HEARTH_RETURN_IF_ERROR(kernels::Zero(exec, matrix.data, matrix.bytes()));
    }
    return whole->SumPieces(exec, group.number);
  }

  using Momenta = std::vector<kernels::MuonMomentumTensor>;
  using Updates = std::vector<kernels::MuonUpdateTensor>;

  void AddMomenta(const OptimizerContext& context, const OffloadWindow& window) {
    Momenta& momenta = momenta_.emplace_back();
    std::vector<kernels::MuonLeadingMatrix>& leading = leading_momenta_.emplace_back();
    const std::vector<spec::Parameter>& table = context.parameters->table();
    for (const StorePiece& piece : window.pieces) {
      const spec::Parameter& parameter = table[static_cast<size_t>(piece.place.parameter)];
      if (!parameter.states[0].needs_whole()) {
        momenta.push_back({piece.states[0], piece.gradient, BlocksOf(parameter, piece)});
        continue;
      }
      for (const kernels::MuonLeadingMatrix& matrix : LeadingMatrices(table, piece)) {
        leading.push_back(matrix);
      }
    }
  }

  // What this rank updates. A piece may lie in several matrices, each with its own rate.
  static Updates UpdatesOf(const OptimizerContext& context, const OffloadWindow& window) {
    Updates updates;
    for (const StorePiece& piece : window.pieces) {
      const spec::Parameter& parameter =
          context.parameters->table()[static_cast<size_t>(piece.place.parameter)];
      const spec::GroupOptions group = spec::ResolveGroupOptions(*context.spec, parameter.group);
      for (const spec::LogicalMatrix& matrix : parameter.matrices) {
        const int64_t first = matrix.row_offset * matrix.cols - piece.place.first_element;
        const int64_t begin = std::max<int64_t>(0, first);
        const int64_t end = std::min(piece.place.elements, first + matrix.rows * matrix.cols);
        if (begin >= end) {
          continue;
        }
        kernels::MuonUpdateTensor& tensor = updates.emplace_back();
        tensor.master = Slice(piece.master, begin, end - begin);
        tensor.o = Slice(piece.gradient, begin, end - begin);
        // The largest magnitude of weights in blocks is known once they are encoded.
        const bool in_blocks = !piece.blocks.empty();
        tensor.working = in_blocks ? TensorView() : Slice(piece.weight, begin, end - begin);
        tensor.rate = kernels::MuonRate(matrix.rows, matrix.cols);
        tensor.lr_scale = group.lr_scale;
        tensor.weight_decay = group.weight_decay;
        tensor.amax = in_blocks ? nullptr : context.quant->WeightAmaxOf(piece.place.parameter);
        tensor.index = static_cast<uint32_t>(piece.place.parameter);
        tensor.first_element = static_cast<uint64_t>(piece.place.first_element + begin);
      }
    }
    return updates;
  }

  // What this rank orthogonalises.
  void BindMatrices(const OptimizerContext& context) {
    const ParameterStore& store = *context.parameters;
    for (int i = 0; i < store.size(); ++i) {
      const spec::Parameter& parameter = store.table()[static_cast<size_t>(i)];
      for (const spec::LogicalMatrix& matrix : parameter.matrices) {
        if (spec::IsHiddenMatrix(parameter) && context.Updates(i)) {
          GroupOf(store.WholeGroup(i)).all.push_back(GradientOf(store.gradient(i), matrix));
        }
      }
    }
    for (Group& group : groups_) {
      const std::vector<TensorView> all = std::exchange(group.all, {});
      // Ranks wait for one another after each group, so each is shared out evenly by itself.
      const std::vector<int> owners = Owners(all, context.shards);
      for (size_t i = 0; i < all.size(); ++i) {
        if (owners[i] == context.rank || !divided_) {
          ShapeOf(all[i], group.shapes).matrices.push_back(all[i]);
        } else {
          group.others.push_back(all[i]);
        }
      }
    }
  }

  Group& GroupOf(int number) {
    for (Group& group : groups_) {
      if (group.number == number) {
        return group;
      }
    }
    Group& added = groups_.emplace_back();
    added.number = number;
    return added;
  }

  static Shape& ShapeOf(const TensorView& matrix, std::vector<Shape>& shapes) {
    const int64_t shorter = std::min(matrix.rows(), matrix.cols());
    for (Shape& shape : shapes) {
      const TensorView& first = shape.matrices.front();
      if (shape.shorter == shorter && first.numel() == matrix.numel() &&
          first.dtype == matrix.dtype) {
        return shape;
      }
    }
    shapes.push_back({shorter, {}});
    return shapes.back();
  }

  const kernels::Device device_;
  const bool divided_;
  const StreamedPieces momentum_pieces_;
  const StreamedPieces master_pieces_;
  const BlockRounding rounding_;
  const kernels::NewtonSchulzRow* row_;
  std::unique_ptr<Optimizer> rest_;
  // By window of momentum_pieces_.
  std::vector<Momenta> momenta_;
  std::vector<std::vector<kernels::MuonLeadingMatrix>> leading_momenta_;
  std::vector<Updates> updates_;  // by window of master_pieces_
  kernels::MuonMomentumArgs momentum_;
  kernels::MuonLeadingArgs leading_;
  kernels::MuonUpdateArgs update_;
  std::vector<Group> groups_;
};

}  // namespace

std::unique_ptr<Optimizer> MakeMuon(const OptimizerContext& context) {
  return std::make_unique<Muon>(context);
}

}  // namespace hearth::trainer
