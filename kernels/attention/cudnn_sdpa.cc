// The graphs below are those that cuDNN's fused attention engines recognise (numbers of the
// operations, their order and which tensors are virtual matter): softmax spelt out, K and V given
// transposed, gradients through reshapes, dQ summed in fp32 scratch of ours.
#include "kernels/attention/cudnn_sdpa.h"

#if __has_include(<cudnn_graph.h>)
#include <cstdlib>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/system.h"
#include "kernels/attention/cudnn_backend.h"

namespace hearth::kernels {
namespace {

using cudnn::Api;
using cudnn::Descriptor;
using cudnn::Dims;
using cudnn::GraphBuilder;
using cudnn::MatmulSizes;
using cudnn::Tensor;

// -inf as the mask's value and fp32 scratch that cuDNN clears itself came with older 9.x; 9.10 is
// the first for which this graph is known to be right.
constexpr int64_t kOldestVersion = 91000;

enum Uid : int64_t {
  kQ = 1,
  kK,
  kV,
  kOut,
  kLse,
  kDOut,
  kDQ,
  kDK,
  kDV,
  kScale,
  kOne,
  kMasked,
  kPadded,  // host scalars
  kDelta,
  kDQSum,  // scratch
  kStarts,
  kQLengths,  // slots
  kKvLengths,
  kQOffsets,
  kKOffsets,
  kVOffsets,
  kOutOffsets,
  kLseOffsets,
};

constexpr size_t Align256(size_t bytes) {
  return (bytes + 255) / 256 * 256;
}

// Strides of the operands: views of the fused rows, no copies. With slots `dims.batch` counts them.
struct Layout {
  explicit Layout(const SdpaProblem& problem)
      : dims(problem.dims),
        width((dims.heads + 2 * dims.kv_heads) * dims.head_dim),
        out_width(dims.heads * dims.head_dim) {
    dims.batch = problem.slots > 0 ? problem.slots : dims.batch;
  }

  Dims HeadDims(int64_t heads) const { return {dims.batch, heads, dims.sequence, dims.head_dim}; }
  Dims HeadStrides(int64_t row) const { return {dims.sequence * row, dims.head_dim, row, 1}; }
  Dims Scores() const { return {dims.batch, dims.heads, dims.sequence, dims.sequence}; }
  Dims RowStats() const { return {dims.batch, dims.heads, dims.sequence, 1}; }
  // Contiguous.
  static Dims Packed(const Dims& d) { return {d[1] * d[2] * d[3], d[2] * d[3], d[3], 1}; }
  // Row statistics, of which the innermost two strides are 1.
  Dims RowStatsStrides() const { return {dims.heads * dims.sequence, dims.sequence, 1, 1}; }
  static Dims Transposed(const Dims& d) { return {d[0], d[1], d[3], d[2]}; }

  AttentionDims dims;
  int64_t width;
  int64_t out_width;
};

// What says where slots lie and how long they are; null handles without slots. K and V have tensors
// of their own for the same numbers, as in the graphs of NVIDIA's cudnn-frontend.
struct Slots {
  Slots(GraphBuilder& g, const SdpaProblem& problem) {
    if (problem.slots == 0) {
      return;
    }
    const auto add = [&](Uid uid, int64_t count) {
      return g.Real(uid, CUDNN_DATA_INT32, {count, 1, 1, 1}, {1, 1, 1, 1});
    };
    q_lengths = add(kQLengths, problem.slots);
    kv_lengths = add(kKvLengths, problem.slots);
    q = add(kQOffsets, problem.slots + 1).handle;
    k = add(kKOffsets, problem.slots + 1).handle;
    v = add(kVOffsets, problem.slots + 1).handle;
    out = add(kOutOffsets, problem.slots + 1).handle;
    lse = add(kLseOffsets, problem.slots + 1).handle;
  }
  // Products of [queries, D] and [D, keys], of [queries, keys] and [keys, D], and of [keys,
  // queries] and [queries, D].
  MatmulSizes Scores() const { return {q_lengths.handle, kv_lengths.handle, nullptr, false}; }
  MatmulSizes OfQueries() const { return {q_lengths.handle, nullptr, kv_lengths.handle, false}; }
  MatmulSizes OfKeys() const { return {kv_lengths.handle, nullptr, q_lengths.handle, false}; }

  Tensor q_lengths;
  Tensor kv_lengths;
  cudnnBackendDescriptor_t q = nullptr;
  cudnnBackendDescriptor_t k = nullptr;
  cudnnBackendDescriptor_t v = nullptr;
  cudnnBackendDescriptor_t out = nullptr;
  cudnnBackendDescriptor_t lse = nullptr;
};

// Scores beyond a slot's length become kMasked.
Tensor Padded(GraphBuilder& g, const Tensor& scores, const Slots& slots) {
  const auto boolean = [&] { return g.VirtualLike(scores, CUDNN_DATA_BOOLEAN); };
  const Tensor row = g.VirtualLike(scores, CUDNN_DATA_INT32);
  const Tensor column = g.VirtualLike(scores, CUDNN_DATA_INT32);
  const Tensor row_inside = boolean();
  const Tensor column_inside = boolean();
  const Tensor inside = boolean();
  const Tensor out = g.VirtualLike(scores);
  g.Index(scores, 2, row);
  g.Index(scores, 3, column);
  g.Pointwise2(CUDNN_POINTWISE_CMP_LT, row, slots.q_lengths, row_inside, CUDNN_DATA_BOOLEAN);
  g.Pointwise2(CUDNN_POINTWISE_CMP_LT, column, slots.kv_lengths, column_inside, CUDNN_DATA_BOOLEAN);
  g.Pointwise2(CUDNN_POINTWISE_LOGICAL_AND, row_inside, column_inside, inside, CUDNN_DATA_BOOLEAN);
  g.Select(scores, g.Scalar(kPadded), inside, out);
  return out;
}

// Scores of pairs that do not see each other become kMasked. Engines for Hopper take the second
// comparison into the fused kernel as well; those for other GPUs only forward.
Tensor Masked(GraphBuilder& g, const Layout& l, const Tensor& scores, bool documents) {
  const Tensor row = g.VirtualLike(scores, CUDNN_DATA_INT32);
  const Tensor column = g.VirtualLike(scores, CUDNN_DATA_INT32);
  const Tensor seen = g.VirtualLike(scores, CUDNN_DATA_BOOLEAN);
  const Tensor out = g.VirtualLike(scores);
  g.Index(scores, 2, row);
  g.Index(scores, 3, column);
  g.Pointwise2(CUDNN_POINTWISE_CMP_GE, row, column, seen, CUDNN_DATA_BOOLEAN);
  const Tensor masked = g.Scalar(kMasked);
  g.Select(scores, masked, seen, out);
  if (!documents) {
    return out;
  }
  const int64_t sequence = l.dims.sequence;
  const Tensor starts =
      g.Real(kStarts, CUDNN_DATA_INT32, {l.dims.batch, 1, sequence, 1}, {sequence, sequence, 1, 1});
  const Tensor same = g.VirtualLike(scores, CUDNN_DATA_BOOLEAN);
  const Tensor of_document = g.VirtualLike(scores);
  g.Pointwise2(CUDNN_POINTWISE_CMP_GE, column, starts, same, CUDNN_DATA_BOOLEAN);
  g.Select(out, masked, same, of_document);
  return of_document;
}

void ForwardGraph(GraphBuilder& g, const Layout& l, const SdpaProblem& problem) {
  const Dims q = l.HeadDims(l.dims.heads);
  const Dims kv = l.HeadDims(l.dims.kv_heads);
  const Dims rows = l.HeadStrides(l.width);
  const Slots slots(g, problem);
  const Tensor query = g.Real(kQ, CUDNN_DATA_BFLOAT16, q, rows, slots.q);
  const Tensor key =
      g.Real(kK, CUDNN_DATA_BFLOAT16, Layout::Transposed(kv), Layout::Transposed(rows), slots.k);
  const Tensor value = g.Real(kV, CUDNN_DATA_BFLOAT16, kv, rows, slots.v);
  const Tensor out = g.Real(kOut, CUDNN_DATA_BFLOAT16, q, l.HeadStrides(l.out_width), slots.out);
  const auto row_stats = [&] {
    return g.Virtual(CUDNN_DATA_FLOAT, l.RowStats(), l.RowStatsStrides());
  };

  const Tensor scores = g.Virtual(CUDNN_DATA_FLOAT, l.Scores(), Layout::Packed(l.Scores()));
  MatmulSizes sizes = slots.Scores();
  sizes.pads = problem.slots > 0;
  g.Matmul(query, key, scores, sizes);
  const Tensor scaled = g.VirtualLike(scores);
  g.Pointwise2(CUDNN_POINTWISE_MUL, scores, g.Scalar(kScale), scaled);
  const Tensor inside = problem.slots > 0 ? Padded(g, scaled, slots) : scaled;
  const Tensor masked = Masked(g, l, inside, problem.documents);
  const Tensor max = row_stats();
  g.Reduce(CUDNN_REDUCE_TENSOR_MAX, masked, max);
  const Tensor shifted = g.VirtualLike(scores);
  g.Pointwise2(CUDNN_POINTWISE_SUB, masked, max, shifted);
  const Tensor powers = g.VirtualLike(scores);
  g.Pointwise1(CUDNN_POINTWISE_EXP, shifted, powers);
  const Tensor sum = row_stats();
  g.Reduce(CUDNN_REDUCE_TENSOR_ADD, powers, sum);
  const Tensor log_sum = row_stats();
  g.Pointwise1(CUDNN_POINTWISE_LOG, sum, log_sum);
  const Tensor lse = problem.keep_lse ? g.Real(kLse, CUDNN_DATA_FLOAT, l.RowStats(),
                                               l.RowStatsStrides(), slots.lse)
                                      : row_stats();
  g.Pointwise2(CUDNN_POINTWISE_ADD, max, log_sum, lse);
  const Tensor probabilities = g.VirtualLike(scores, CUDNN_DATA_BFLOAT16);
  g.Pointwise2(CUDNN_POINTWISE_DIV, powers, sum, probabilities);
  g.Matmul(probabilities, value, out, slots.OfQueries());
}

// x^T y [keys, D] for each query head into `out` [.., kv_heads, keys, D], summed over the query
// heads that share a key/value head. x is [queries, keys].
void KeyGradient(GraphBuilder& g,
                 const Layout& l,
                 const Slots& slots,
                 const Tensor& x,
                 const Tensor& y,
                 const Tensor& out) {
  const Tensor transposed =
      g.Virtual(CUDNN_DATA_BFLOAT16, Layout::Transposed(x.dims), Layout::Transposed(x.strides));
  g.Reshape(x, transposed);
  if (l.dims.heads == l.dims.kv_heads) {
    g.Matmul(transposed, y, out, slots.OfKeys());
    return;
  }
  const Dims full = l.HeadDims(l.dims.heads);
  const Tensor every_head = g.Virtual(CUDNN_DATA_BFLOAT16, full, Layout::Packed(full));
  g.Matmul(transposed, y, every_head, slots.OfKeys());
  g.Reduce(CUDNN_REDUCE_TENSOR_ADD, every_head, out);
}

// dQ = dS k
void QueryGradient(GraphBuilder& g,
                   const Layout& l,
                   const SdpaProblem& problem,
                   const Slots& slots,
                   const Tensor& ds,
                   const Tensor& key) {
  const Dims q = l.HeadDims(l.dims.heads);
  const Dims rows = l.HeadStrides(l.width);
  const Tensor plain_key = g.Virtual(CUDNN_DATA_FLOAT, l.HeadDims(l.dims.kv_heads), rows, slots.k);
  g.Reshape(key, plain_key);
  const Tensor dq = g.Real(kDQ, CUDNN_DATA_BFLOAT16, q, rows, slots.q);
  if (problem.deterministic) {
    // cuDNN takes this graph as one that stores dS in its scratch.
    g.Matmul(ds, plain_key, dq, slots.OfQueries());
    return;
  }
  // Blocks of keys add their parts to fp32 sums, in any order.
  const Tensor dq_sum =
      g.Real(kDQSum, CUDNN_DATA_FLOAT, q, problem.slots > 0 ? rows : Layout::Packed(q), slots.q);
  g.Matmul(ds, plain_key, dq_sum, slots.OfQueries());
  g.Pointwise1(CUDNN_POINTWISE_IDENTITY, dq_sum, dq);
}

void BackwardGraph(GraphBuilder& g, const Layout& l, const SdpaProblem& problem) {
  const Dims q = l.HeadDims(l.dims.heads);
  const Dims kv = l.HeadDims(l.dims.kv_heads);
  const Dims rows = l.HeadStrides(l.width);
  const Dims out_rows = l.HeadStrides(l.out_width);
  const Slots slots(g, problem);
  const Tensor query = g.Real(kQ, CUDNN_DATA_BFLOAT16, q, rows, slots.q);
  const Tensor key =
      g.Real(kK, CUDNN_DATA_BFLOAT16, Layout::Transposed(kv), Layout::Transposed(rows), slots.k);
  const Tensor value =
      g.Real(kV, CUDNN_DATA_BFLOAT16, Layout::Transposed(kv), Layout::Transposed(rows), slots.v);
  const Tensor out = g.Real(kOut, CUDNN_DATA_BFLOAT16, q, out_rows, slots.out);
  const Tensor d_out = g.Real(kDOut, CUDNN_DATA_BFLOAT16, q, out_rows, slots.out);
  const Tensor lse = g.Real(kLse, CUDNN_DATA_FLOAT, l.RowStats(), l.RowStatsStrides(), slots.lse);
  const Tensor scale = g.Scalar(kScale);

  // delta = rowsum(d_out * out)
  const Tensor products = g.Virtual(CUDNN_DATA_FLOAT, q, Layout::Packed(q));
  g.Pointwise2(CUDNN_POINTWISE_MUL, d_out, out, products);
  const Tensor sums = g.Virtual(CUDNN_DATA_FLOAT, l.RowStats(), l.RowStatsStrides());
  g.Reduce(CUDNN_REDUCE_TENSOR_ADD, products, sums);
  const Tensor delta =
      g.Real(kDelta, CUDNN_DATA_FLOAT, l.RowStats(), l.RowStatsStrides(), slots.lse);
  g.Pointwise2(CUDNN_POINTWISE_MUL, sums, g.Scalar(kOne), delta);

  // P = exp(scale q k^T - lse) below the diagonal, dV = P^T d_out
  const Tensor scores = g.Virtual(CUDNN_DATA_FLOAT, l.Scores(), Layout::Packed(l.Scores()));
  g.Matmul(query, key, scores, slots.Scores());
  const Tensor scaled = g.VirtualLike(scores);
  g.Pointwise2(CUDNN_POINTWISE_MUL, scores, scale, scaled);
  const Tensor shifted = g.VirtualLike(scores);
  g.Pointwise2(CUDNN_POINTWISE_SUB, scaled, lse, shifted);
  const Tensor inside = problem.slots > 0 ? Padded(g, shifted, slots) : shifted;
  const Tensor masked = Masked(g, l, inside, problem.documents);
  const Tensor p = g.VirtualLike(scores);
  g.Pointwise1(CUDNN_POINTWISE_EXP, masked, p);
  KeyGradient(g, l, slots, p, d_out, g.Real(kDV, CUDNN_DATA_BFLOAT16, kv, rows, slots.v));

  // dS = P (d_out v^T - delta) scale, dK = dS^T q
  const Tensor dp = g.VirtualLike(scores);
  g.Matmul(d_out, value, dp, slots.Scores());
  const Tensor centred = g.VirtualLike(scores);
  g.Pointwise2(CUDNN_POINTWISE_SUB, dp, delta, centred);
  const Tensor weighted = g.VirtualLike(scores);
  g.Pointwise2(CUDNN_POINTWISE_MUL, centred, p, weighted);
  const Tensor ds = g.VirtualLike(scores);
  g.Pointwise2(CUDNN_POINTWISE_MUL, weighted, scale, ds);
  KeyGradient(g, l, slots, ds, query, g.Real(kDK, CUDNN_DATA_BFLOAT16, kv, rows, slots.k));

  QueryGradient(g, l, problem, slots, ds, key);
}

std::string LibraryName() {
  const char* given = GetEnv("HEARTH_CUDNN");
  if (given == nullptr || given[0] == '\0') {
    return "libcudnn.so.9";
  }
  const std::string name = given;
  return absl::StrContains(name, ".so") ? name : absl::StrCat(name, "/libcudnn.so.9");
}

// Where plans are for.
struct Target {
  cudnnHandle_t handle = nullptr;  // the current GPU, or
  Descriptor properties;           // those of another one
};

struct PlanState {
  SdpaProblem problem;
  // The plan refers to all of these.
  std::vector<Descriptor> tensors_and_operations;
  Descriptor graph;
  Descriptor config;
  Descriptor plan;
  int64_t engine = -1;
  bool nondeterministic = false;
  // cuDNN's scratch, then delta and the sums of dQ (backward).
  size_t cudnn_bytes = 0;
  size_t delta_bytes = 0;
  size_t dq_bytes = 0;
};

absl::StatusOr<std::vector<Descriptor>> Configs(const Api& api,
                                                const Descriptor& graph,
                                                const Target& target,
                                                cudnnBackendHeurMode_t mode) {
  Descriptor heuristics(api, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.Set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph.get())
      .Set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  if (target.properties.get() != nullptr) {
    heuristics.Set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, target.properties.get());
  }
  HEARTH_RETURN_IF_ERROR(heuristics.Finalize().status());
  // Asked twice: for the number, and then into as many descriptors as that, which the caller makes.
  int64_t count = 0;
  HEARTH_RETURN_IF_ERROR(
      api.Status(api.GetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                  CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr),
                 "number of engine configurations"));
  std::vector<Descriptor> configs;
  std::vector<cudnnBackendDescriptor_t> handles;
  for (int64_t i = 0; i < count; ++i) {
    configs.emplace_back(api, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    HEARTH_RETURN_IF_ERROR(configs.back().status());
    handles.push_back(configs.back().get());
  }
  int64_t written = 0;
  if (count > 0) {
    HEARTH_RETURN_IF_ERROR(
        api.Status(api.GetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                    CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &written, handles.data()),
                   "engine configurations"));
  }
  while (static_cast<int64_t>(configs.size()) > written) {
    configs.pop_back();
  }
  return configs;
}

// The number of the configuration's engine and whether it warns of differing bits.
absl::Status ReadEngine(const Api& api, PlanState& state) {
  Descriptor engine(api, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  HEARTH_RETURN_IF_ERROR(engine.status());
  cudnnBackendDescriptor_t handle = engine.get();
  int64_t count = 0;
  HEARTH_RETURN_IF_ERROR(
      api.Status(api.GetAttribute(state.config.get(), CUDNN_ATTR_ENGINECFG_ENGINE,
                                  CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &handle),
                 "engine"));
  HEARTH_RETURN_IF_ERROR(api.Status(api.GetAttribute(engine.get(), CUDNN_ATTR_ENGINE_GLOBAL_INDEX,
                                                     CUDNN_TYPE_INT64, 1, &count, &state.engine),
                                    "engine's number"));
  cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
  HEARTH_RETURN_IF_ERROR(api.Status(
      api.GetAttribute(engine.get(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                       CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes),
      "engine's notes"));
  state.nondeterministic = false;
  for (int64_t i = 0; i < count && i < CUDNN_NUMERICAL_NOTE_TYPE_COUNT; ++i) {
    state.nondeterministic |= notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
  }
  return absl::OkStatus();
}

// Compiles state.config's plan.
absl::Status Compile(const Api& api, cudnnHandle_t handle, PlanState& state) {
  HEARTH_RETURN_IF_ERROR(ReadEngine(api, state));
  if (state.problem.deterministic && state.nondeterministic) {
    return absl::UnimplementedError(absl::StrCat("engine ", state.engine, " is not deterministic"));
  }
  Descriptor plan(api, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  plan.Set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, state.config.get())
      .Set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
  HEARTH_RETURN_IF_ERROR(plan.Finalize().status());
  int64_t count = 0;
  int64_t bytes = 0;
  HEARTH_RETURN_IF_ERROR(
      api.Status(api.GetAttribute(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                  CUDNN_TYPE_INT64, 1, &count, &bytes),
                 "workspace size"));
  state.cudnn_bytes = static_cast<size_t>(bytes);
  state.plan = std::move(plan);
  return absl::OkStatus();
}

// What Slots() has made tensors for, but lse's.
template <typename Add>
void AddSlots(const SdpaPointers& pointers, const Add& add) {
  for (const Uid lengths : {kQLengths, kKvLengths}) {
    add(lengths, pointers.lengths);
  }
  for (const Uid offsets : {kQOffsets, kKOffsets, kVOffsets}) {
    add(offsets, pointers.qkv_offsets);
  }
  add(kOutOffsets, pointers.out_offsets);
}

constexpr cudnnBackendHeurMode_t kModes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};

// The first configuration that compiles, the heuristics' best first.
absl::Status Choose(const Api& api, const Target& target, PlanState& state) {
  std::string errors;
  const auto note = [&errors](const absl::Status& status) {
    absl::StrAppend(&errors, errors.empty() ? ": " : "; ", status.message());
  };
  for (const cudnnBackendHeurMode_t mode : kModes) {
    absl::StatusOr<std::vector<Descriptor>> configs = Configs(api, state.graph, target, mode);
    if (!configs.ok()) {
      note(configs.status());
      continue;
    }
    for (Descriptor& config : *configs) {
      state.config = std::move(config);
      const absl::Status status = Compile(api, target.handle, state);
      if (status.ok()) {
        return status;
      }
      note(status);
    }
  }
  return absl::UnimplementedError(absl::StrCat("no engine of cuDNN takes it", errors));
}

// The finalised graph of state.problem.
absl::Status MakeGraph(const Api& api, cudnnHandle_t handle, PlanState& state) {
  GraphBuilder builder(api);
  const AttentionDims& d = state.problem.dims;
  const Layout layout(state.problem);
  if (state.problem.backward) {
    BackwardGraph(builder, layout, state.problem);
    const int64_t rows = d.batch * d.sequence;
    // Slots are summed where dQ has them: in rows as wide as the fused ones.
    const int64_t dq_width = state.problem.slots > 0 ? layout.width : layout.out_width;
    state.delta_bytes = static_cast<size_t>(rows * d.heads) * sizeof(float);
    state.dq_bytes =
        state.problem.deterministic ? 0 : static_cast<size_t>(rows * dq_width) * sizeof(float);
  } else {
    ForwardGraph(builder, layout, state.problem);
  }
  HEARTH_ASSIGN_OR_RETURN(state.graph, builder.Finish(handle));
  state.tensors_and_operations = builder.TakeDescriptors();
  return absl::OkStatus();
}

}  // namespace

struct Cudnn::Impl {
  ~Impl() {
    if (handle != nullptr) {
      api.Destroy(handle);
    }
  }
  // Made at the first plan: it costs time and memory of the GPU.
  absl::StatusOr<cudnnHandle_t> Handle() {
    if (handle == nullptr) {
      HEARTH_RETURN_IF_ERROR(api.Status(api.Create(&handle), "cudnnCreate"));
    }
    return handle;
  }

  std::string path;
  Api api;
  int64_t version = 0;
  cudnnHandle_t handle = nullptr;
};

struct SdpaPlan::Impl {
  PlanState state;
};

Cudnn::Cudnn(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Cudnn::~Cudnn() = default;
int64_t Cudnn::version() const {
  return impl_->version;
}
const std::string& Cudnn::path() const {
  return impl_->path;
}

SdpaPlan::SdpaPlan(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SdpaPlan::~SdpaPlan() = default;
size_t SdpaPlan::workspace_bytes() const {
  const PlanState& s = impl_->state;
  return Align256(s.cudnn_bytes) + Align256(s.delta_bytes) + Align256(s.dq_bytes);
}
int64_t SdpaPlan::engine() const {
  return impl_->state.engine;
}
absl::StatusOr<std::unique_ptr<Cudnn>> Cudnn::Load() {
  HEARTH_ASSIGN_OR_RETURN(const Library library, Library::Open({LibraryName()}));
  auto impl = std::make_unique<Impl>();
  HEARTH_ASSIGN_OR_RETURN(impl->api, Api::Load(library));
  impl->path = library.path();
  impl->version = static_cast<int64_t>(impl->api.GetVersion());
  if (impl->version < kOldestVersion) {
    return absl::UnavailableError(
        absl::StrCat(library.path(), " is cuDNN ", impl->version, "; 9.10 or later is needed"));
  }
  return std::unique_ptr<Cudnn>(new Cudnn(std::move(impl)));
}

absl::StatusOr<std::unique_ptr<SdpaPlan>> Cudnn::Build(const SdpaProblem& problem) {
  Target target;
  HEARTH_ASSIGN_OR_RETURN(target.handle, impl_->Handle());
  auto plan = std::make_unique<SdpaPlan::Impl>();
  plan->state.problem = problem;
  HEARTH_RETURN_IF_ERROR(MakeGraph(impl_->api, target.handle, plan->state));
  HEARTH_RETURN_IF_ERROR(Choose(impl_->api, target, plan->state));
  return std::unique_ptr<SdpaPlan>(new SdpaPlan(std::move(plan)));
}

absl::StatusOr<std::vector<int64_t>> Cudnn::Engines(const SdpaProblem& problem,
                                                    const std::string& device_json) {
  const Api& api = impl_->api;
  Target target;
  target.properties = Descriptor(api, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  target.properties
      .Set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
           static_cast<int64_t>(device_json.size()) + 1, device_json.c_str())
      .Finalize();
  HEARTH_RETURN_IF_ERROR(target.properties.status());
  PlanState state;
  state.problem = problem;
  HEARTH_RETURN_IF_ERROR(MakeGraph(api, nullptr, state));
  std::vector<int64_t> engines;
  for (const cudnnBackendHeurMode_t mode : kModes) {
    HEARTH_ASSIGN_OR_RETURN(std::vector<Descriptor> configs,
                            Configs(api, state.graph, target, mode));
    for (Descriptor& config : configs) {
      state.config = std::move(config);
      HEARTH_RETURN_IF_ERROR(ReadEngine(api, state));
      if (!problem.deterministic || !state.nondeterministic) {
        engines.push_back(state.engine);
      }
    }
  }
  return engines;
}

absl::Status Cudnn::Run(const SdpaPlan& plan,
                        const SdpaPointers& pointers,
                        void* stream,
                        void* workspace) {
  const Api& api = impl_->api;
  const PlanState& state = plan.impl_->state;
  const AttentionDims& d = state.problem.dims;
  // Read by the host when the kernels are launched.
  float scale = pointers.scale;
  float one = 1.0F;
  float masked = -std::numeric_limits<float>::infinity();
  const auto part = [&](void* fused, int64_t heads_before) -> void* {
    return static_cast<uint16_t*>(fused) + heads_before * d.head_dim;
  };
  std::vector<int64_t> ids = {kQ, kK, kV, kOut, kScale, kMasked};
  std::vector<void*> data = {pointers.qkv,
                             part(pointers.qkv, d.heads),
                             part(pointers.qkv, d.heads + d.kv_heads),
                             pointers.out,
                             &scale,
                             &masked};
  const auto add = [&](int64_t id, void* pointer) {
    ids.push_back(id);
    data.push_back(pointer);
  };
  if (state.problem.backward || state.problem.keep_lse) {
    add(kLse, pointers.lse);
  }
  if (state.problem.documents) {
    add(kStarts, pointers.starts);
  }
  if (state.problem.slots > 0) {
    AddSlots(pointers, add);
    add(kPadded, &masked);
    if (state.problem.backward || state.problem.keep_lse) {
      add(kLseOffsets, pointers.lse_offsets);
    }
  }
  if (state.problem.backward) {
    // Behind cuDNN's own scratch, in the order in which workspace_bytes() counts.
    char* scratch = static_cast<char*>(workspace) + Align256(state.cudnn_bytes);
    add(kDOut, pointers.d_out);
    add(kDQ, pointers.d_qkv);
    add(kDK, part(pointers.d_qkv, d.heads));
    add(kDV, part(pointers.d_qkv, d.heads + d.kv_heads));
    add(kOne, &one);
    add(kDelta, scratch);
    if (state.dq_bytes > 0) {
      add(kDQSum, scratch + Align256(state.delta_bytes));
    }
  }
  Descriptor pack(api, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.Set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, static_cast<int64_t>(ids.size()),
           ids.data())
      .Set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
           static_cast<int64_t>(data.size()), data.data())
      .Set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace)
      .Finalize();
  HEARTH_RETURN_IF_ERROR(pack.status());
  HEARTH_RETURN_IF_ERROR(api.Status(api.SetStream(impl_->handle, static_cast<cudaStream_t>(stream)),
                                    "cudnnSetStream"));
  return api.Status(api.Execute(impl_->handle, state.plan.get(), pack.get()),
                    "cudnnBackendExecute");
}

}  // namespace hearth::kernels

#else  // A toolkit without cuDNN's headers.

namespace hearth::kernels {

struct Cudnn::Impl {};
struct SdpaPlan::Impl {};
Cudnn::~Cudnn() = default;
SdpaPlan::~SdpaPlan() = default;
int64_t Cudnn::version() const {
  return 0;
}
const std::string& Cudnn::path() const {
  static const std::string* const none = new std::string;
  return *none;
}
size_t SdpaPlan::workspace_bytes() const {
  return 0;
}
int64_t SdpaPlan::engine() const {
  return -1;
}
absl::StatusOr<std::unique_ptr<Cudnn>> Cudnn::Load() {
  return absl::UnavailableError("built without cuDNN's headers");
}
absl::StatusOr<std::unique_ptr<SdpaPlan>> Cudnn::Build(const SdpaProblem&) {
  return absl::UnimplementedError("built without cuDNN's headers");
}
absl::StatusOr<std::vector<int64_t>> Cudnn::Engines(const SdpaProblem&, const std::string&) {
  return absl::UnimplementedError("built without cuDNN's headers");
}
absl::Status Cudnn::Run(const SdpaPlan&, const SdpaPointers&, void*, void*) {
  return absl::UnimplementedError("built without cuDNN's headers");
}

}  // namespace hearth::kernels
#endif
