#include "kernels/attention/cudnn.h"

#include <cmath>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "kernels/attention/cudnn_sdpa.h"
#include "kernels/attention/document_slots.h"

namespace hearth::kernels {
namespace {

// Below this length the kernel of our own is no slower and a plan is not worth its second.
constexpr int64_t kShortest = 64;

enum class Kind { kForward, kForwardWithLse, kBackward };
// How a call's documents are told apart; not at all where each sequence is one.
struct Documents {
  bool compared = false;  // by a second comparison of each score, with starts
  int64_t slots = 0;      // as sequences of their own
  auto operator<=>(const Documents&) const = default;
};
using Key = std::tuple<Kind, Documents, int64_t, int64_t, int64_t, int64_t, int64_t>;

Documents DocumentsOf(const AttentionArgs& args) {
  // Each sequence has at least one.
  const bool whole = args.starts.rank == 0 || args.documents == args.dims.batch;
  return whole ? Documents{} : Documents{args.documents == 0, args.documents};
}

// Until 9.14 nobody has tried slots here.
constexpr int64_t kOldestWithSlots = 91400;
constexpr int64_t kMostElements = int64_t{1} << 31;

bool Aligned16(const TensorView& view) {
  return reinterpret_cast<uintptr_t>(view.data) % 16 == 0;
}

absl::Status Decline(absl::string_view why) {
  return absl::UnimplementedError(absl::StrCat("cuDNN's attention: ", why));
}

// A backward pass of fixed order stores the gradients of the scores, in bf16, of as many sequences
// at once as fit into this. Fewer are slower: on an H100, hearth-112m (18 sequences, 1.7 GiB) takes
// 70.1 ms a step, 72.9 ms with 512 MiB and 80.3 ms with one sequence at a time, as long as with the
// kernel of our own.
constexpr int64_t kMostScores = int64_t{2} << 30;

int64_t ScoresBytes(const AttentionDims& dims, int64_t batch) {
  return batch * dims.heads * dims.sequence * dims.sequence * 2;
}

int64_t SequencesAtOnce(const AttentionDims& dims) {
  int64_t batch = dims.batch;
  while (batch > 1 && (dims.batch % batch != 0 || ScoresBytes(dims, batch) > kMostScores)) {
    --batch;
  }
  return batch;
}

float ScaleOf(double scale, const AttentionDims& dims) {
  return static_cast<float>(scale != 0.0 ? scale
                                         : 1.0 / std::sqrt(static_cast<double>(dims.head_dim)));
}

}  // namespace

struct AttentionPlans::Impl {
  struct Entry {
    absl::Status status;  // why there is no plan
    std::unique_ptr<SdpaPlan> plan;
    int64_t batch = 0;  // sequences in a run of the plan; divides that of the call
    int64_t slots = 0;

    size_t workspace_bytes() const {
      return plan->workspace_bytes() + (slots > 0 ? cuda::DocumentSlotsBytes(slots) : 0);
    }
  };

  // What can be said before a plan is built.
  absl::Status Applies(Kind kind, const AttentionDims& dims) const;
  absl::Status AppliesToSlots(Kind kind, const AttentionDims& dims, int64_t slots) const;
  absl::StatusOr<const Entry*> Find(Kind kind, const AttentionArgs& args);
  // By the views' rank, not their data: memory may be laid out after this is asked.
  absl::StatusOr<const Entry*> Find(const AttentionForwardArgs& args);
  absl::StatusOr<const Entry*> Find(const AttentionBackwardArgs& args);
  Entry Build(Kind kind, const AttentionDims& dims, const Documents& documents);
  // Fills the tables of slots behind the plan's scratch, if the call has slots.
  static absl::Status PlaceDocuments(const Exec& exec,
                                     const AttentionArgs& args,
                                     const Entry& entry,
                                     SdpaPointers& pointers);

  GpuProperties gpu;
  bool deterministic = false;
  std::unique_ptr<Cudnn> cudnn;
  std::string error;
  std::map<int64_t, std::string> refused;  // Refuse
  std::map<Key, Entry> plans;
};

absl::Status AttentionPlans::Impl::Applies(Kind kind, const AttentionDims& dims) const {
  if (cudnn == nullptr) {
    return Decline(error);
  }
  // cuDNN 9.18.1 is the first whose sm_120 engines are known to be right.
  if (gpu.major == 12 && cudnn->version() < 91801) {
    return Decline("this GPU needs cuDNN 9.18.1");
  }
  // Until 9.15.0 keys beyond the last full tile of 128 could be read.
  if (dims.sequence % 128 != 0 && cudnn->version() <= 91500) {
    return Decline("a sequence length that is no multiple of 128 needs cuDNN 9.15.1");
  }
  const bool stores_scores = deterministic && kind == Kind::kBackward;
  if (stores_scores && gpu.major != 9) {
    return Decline("a backward pass of fixed order is known only on Hopper");
  }
  if (stores_scores && ScoresBytes(dims, 1) > kMostScores) {
    return Decline("a backward pass of fixed order would store too many scores");
  }
  // Forward engines take heads of up to 256 elements, backward ones 128, on Hopper 256.
  const int64_t widest = kind == Kind::kBackward && gpu.major != 9 ? 128 : 256;
  if (dims.head_dim % 8 != 0 || dims.head_dim > widest || dims.sequence < kShortest) {
    return Decline("shape");
  }
  return absl::OkStatus();
}

absl::Status AttentionPlans::Impl::AppliesToSlots(Kind kind,
                                                  const AttentionDims& dims,
                                                  int64_t slots) const {
  if (cudnn->version() < kOldestWithSlots) {
    return Decline("documents as sequences of their own need cuDNN 9.14");
  }
  if (gpu.major == 8 && cudnn->version() < 91801) {
    return Decline("documents as sequences of their own need cuDNN 9.18.1 on this GPU");
  }
  // A pass of fixed order stores scores for each slot as if it were as long as a sample.
  if (deterministic && kind == Kind::kBackward) {
    return Decline("documents as sequences of their own have no backward pass of fixed order");
  }
  // Sums of dQ that are packed as dQ is are known to be wrong elsewhere (NVIDIA's cudnn-frontend
  // does without them there).
  if (kind == Kind::kBackward && ((gpu.major != 9 && gpu.major != 10) || dims.head_dim % 16 != 0)) {
    return Decline("documents as sequences of their own have no backward pass here");
  }
  if (slots > cuda::kMostDocumentSlots) {
    return Decline("too many documents");
  }
  const int64_t width = (dims.heads + 2 * dims.kv_heads) * dims.head_dim;
  if (dims.batch * dims.sequence * width >= kMostElements) {
    return Decline("documents as sequences of their own lie within 2^31 elements");
  }
  return absl::OkStatus();
}

AttentionPlans::Impl::Entry AttentionPlans::Impl::Build(Kind kind,
                                                        const AttentionDims& dims,
                                                        const Documents& documents) {
  SdpaProblem problem;
  problem.dims = dims;
  problem.documents = documents.compared;
  problem.slots = documents.slots;
  problem.backward = kind == Kind::kBackward;
  problem.keep_lse = kind == Kind::kForwardWithLse;
  problem.deterministic = deterministic;
  const bool stores_scores = deterministic && problem.backward;
  if (stores_scores) {
    problem.dims.batch = SequencesAtOnce(dims);
  }
  absl::StatusOr<std::unique_ptr<SdpaPlan>> plan = cudnn->Build(problem);
  if (!plan.ok()) {
    return {Decline(plan.status().message()), nullptr, 0, 0};
  }
  // The fused engines need at most 12 bytes for an element of q; a chain of kernels that stores the
  // scores would need more for sequences of a length that matters. With slots they need up to twice
  // as much (common/spec/plan/op_scratch.cc counts it), or too many slots were asked for.
  const int64_t elements = dims.batch * dims.heads * dims.sequence * dims.head_dim;
  constexpr size_t kSlack = size_t{64} << 20;
  if (!stores_scores && (*plan)->workspace_bytes() > static_cast<size_t>(elements) * 24 + kSlack) {
    return {Decline(absl::StrCat("its engine ", (*plan)->engine(), " wants ",
                                 (*plan)->workspace_bytes(), " bytes of scratch")),
            nullptr, 0, 0};
  }
  return {absl::OkStatus(), *std::move(plan), problem.dims.batch, documents.slots};
}

absl::StatusOr<const AttentionPlans::Impl::Entry*> AttentionPlans::Impl::Find(
    Kind kind, const AttentionArgs& args) {
  const AttentionDims& dims = args.dims;
  if (args.qkv.dtype != DType::kBF16) {
    return Decline("bf16 only");
  }
  if (!Aligned16(args.qkv) || !Aligned16(args.out) || !Aligned16(args.lse) ||
      !Aligned16(args.starts)) {
    return Decline("operands must be 16-byte aligned");
  }
  if (const auto found = refused.find(args.documents); found != refused.end()) {
    return Decline(found->second);
  }
  HEARTH_RETURN_IF_ERROR(Applies(kind, dims));
  const Documents documents = DocumentsOf(args);
  HEARTH_RETURN_IF_ERROR(documents.slots > 0 ? AppliesToSlots(kind, dims, documents.slots)
                                             : absl::OkStatus());
  const Key key = {kind,       documents,     dims.batch,   dims.sequence,
                   dims.heads, dims.kv_heads, dims.head_dim};
  auto found = plans.find(key);
  if (found == plans.end()) {
    // A shape that no engine takes is kept as well: finding that out costs a second.
    found = plans.emplace(key, Build(kind, dims, documents)).first;
  }
  HEARTH_RETURN_IF_ERROR(found->second.status);
  return &found->second;
}

absl::StatusOr<const AttentionPlans::Impl::Entry*> AttentionPlans::Impl::Find(
    const AttentionForwardArgs& args) {
  return Find(args.lse.rank > 0 ? Kind::kForwardWithLse : Kind::kForward, args);
}

absl::StatusOr<const AttentionPlans::Impl::Entry*> AttentionPlans::Impl::Find(
    const AttentionBackwardArgs& args) {
  if (!Aligned16(args.d_out) || !Aligned16(args.d_qkv)) {
    return Decline("operands must be 16-byte aligned");
  }
  return Find(Kind::kBackward, args);
}

absl::Status AttentionPlans::Impl::PlaceDocuments(const Exec& exec,
                                                  const AttentionArgs& args,
                                                  const Entry& entry,
                                                  SdpaPointers& pointers) {
  if (entry.slots == 0) {
    return absl::OkStatus();
  }
  void* const tables = static_cast<char*>(exec.workspace.data) + entry.plan->workspace_bytes();
  const cuda::DocumentSlots slots = cuda::DocumentSlotsIn(tables, entry.slots);
  pointers.lengths = slots.lengths;
  pointers.qkv_offsets = slots.qkv;
  pointers.out_offsets = slots.out;
  pointers.lse_offsets = slots.lse;
  return cuda::FindDocuments(exec, args.dims, args.starts.as<int32_t>(), entry.slots, slots);
}

AttentionPlans::AttentionPlans(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
AttentionPlans::~AttentionPlans() = default;

absl::StatusOr<std::unique_ptr<AttentionPlans>> AttentionPlans::New(const GpuProperties& gpu,
                                                                    const CudaOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->gpu = gpu;
  impl->deterministic = options.deterministic;
  absl::StatusOr<std::unique_ptr<Cudnn>> cudnn = Cudnn::Load();
  if (cudnn.ok()) {
    impl->cudnn = *std::move(cudnn);
  } else {
    impl->error = std::string(cudnn.status().message());
  }
  return std::unique_ptr<AttentionPlans>(new AttentionPlans(std::move(impl)));
}

absl::Status AttentionPlans::Forward(const Exec& exec, const AttentionForwardArgs& args) {
  if (args.lse.empty() && args.lse.rank > 0) {
    return absl::InvalidArgumentError("cuDNN's attention: lse has a shape but no data");
  }
  HEARTH_ASSIGN_OR_RETURN(const Impl::Entry* const entry, impl_->Find(args));
  HEARTH_RETURN_IF_ERROR(RequireWorkspace(exec, entry->workspace_bytes(), "cuDNN's attention"));
  SdpaPointers pointers;
  pointers.qkv = args.qkv.data;
  pointers.out = args.out.data;
  pointers.lse = args.lse.data;
  pointers.starts = args.starts.data;
  pointers.scale = ScaleOf(args.scale, args.dims);
  HEARTH_RETURN_IF_ERROR(Impl::PlaceDocuments(exec, args, *entry, pointers));
  return impl_->cudnn->Run(*entry->plan, pointers, exec.stream, exec.workspace.data);
}

absl::Status AttentionPlans::Backward(const Exec& exec, const AttentionBackwardArgs& args) {
  HEARTH_ASSIGN_OR_RETURN(const Impl::Entry* const entry, impl_->Find(args));
  HEARTH_RETURN_IF_ERROR(RequireWorkspace(exec, entry->workspace_bytes(), "cuDNN's attention"));
  const AttentionDims& d = args.dims;
  const int64_t rows = entry->batch * d.sequence;
  const auto part = [](const TensorView& view, int64_t elements, int64_t bytes) -> void* {
    return static_cast<char*>(view.data) + elements * bytes;
  };
  // A plan of fixed order covers as many sequences as kMostScores allows; other plans cover all.
  for (int64_t first = 0; first < d.batch * d.sequence; first += rows) {
    const int64_t fused = first * (d.heads + 2 * d.kv_heads) * d.head_dim;
    const int64_t out = first * d.heads * d.head_dim;
    SdpaPointers pointers;
    pointers.qkv = part(args.qkv, fused, 2);
    pointers.out = part(args.out, out, 2);
    pointers.lse = part(args.lse, first * d.heads, sizeof(float));
    pointers.starts = part(args.starts, first, sizeof(int32_t));
    pointers.d_out = part(args.d_out, out, 2);
    pointers.d_qkv = part(args.d_qkv, fused, 2);
    pointers.scale = ScaleOf(args.scale, d);
    HEARTH_RETURN_IF_ERROR(Impl::PlaceDocuments(exec, args, *entry, pointers));
    HEARTH_RETURN_IF_ERROR(
        impl_->cudnn->Run(*entry->plan, pointers, exec.stream, exec.workspace.data));
  }
  return absl::OkStatus();
}

size_t AttentionPlans::ForwardWorkspaceBytes(const AttentionForwardArgs& args) {
  const absl::StatusOr<const Impl::Entry*> entry = impl_->Find(args);
  return entry.ok() ? (*entry)->workspace_bytes() : 0;
}

size_t AttentionPlans::BackwardWorkspaceBytes(const AttentionBackwardArgs& args) {
  const absl::StatusOr<const Impl::Entry*> entry = impl_->Find(args);
  return entry.ok() ? (*entry)->workspace_bytes() : 0;
}

bool AttentionPlans::Takes(const AttentionForwardArgs& args) {
  return impl_->Find(args).ok();
}

bool AttentionPlans::Takes(const AttentionBackwardArgs& args) {
  return impl_->Find(args).ok();
}

void AttentionPlans::Refuse(int64_t documents, std::string why) {
  impl_->refused.erase(documents);
  if (!why.empty()) {
    impl_->refused[documents] = std::move(why);
  }
}

std::string AttentionPlans::version() const {
  if (impl_->cudnn == nullptr) {
    return "";
  }
  const int64_t v = impl_->cudnn->version();
  return absl::StrFormat("%d.%d.%d", v / 10000, v / 100 % 100, v % 100);
}

std::string AttentionPlans::cudnn_error() const {
  return impl_->error;
}

}  // namespace hearth::kernels
