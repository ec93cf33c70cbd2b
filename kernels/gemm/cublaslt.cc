#include "kernels/gemm/cublaslt.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/base/status_macros.h"
#include "common/base/system.h"
#include "kernels/core/block_quant.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/gemm/cublaslt_library.h"
#include "kernels/gemm/gemm_key.h"
#include "kernels/gemm/plan_table.h"

namespace hearth::kernels {
namespace {

// The search for a key's plan.
constexpr struct {
  int candidates = 32;
  int samples = 5;
  // At least this long, or so many times the fastest launch.
  double microseconds = 60e3;
  double launches = 40;
  // A candidate slower than the best by this factor is dropped after one launch.
  double hopeless = 1.5;
} kSearch;
constexpr uintptr_t kWorkspaceAlignment = 256;
constexpr int kUnitScale = 127;  // the UE8M0 code of 1

cudaDataType_t CudaType(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return CUDA_R_16BF;
    case DType::kE4M3:
      return CUDA_R_8F_E4M3;
    case DType::kE5M2:
      return CUDA_R_8F_E5M2;
    case DType::kE2M1:
      return CUDA_R_4F_E2M1;
    default:
      return CUDA_R_32F;
  }
}

// The part of exec.workspace that cuBLASLt gets.
Workspace LibraryWorkspace(const Exec& exec) {
  const uintptr_t begin = reinterpret_cast<uintptr_t>(exec.workspace.data);
  const uintptr_t aligned =
      (begin + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
  const size_t lost = aligned - begin;
  if (begin == 0 || exec.workspace.bytes <= lost) {
    return {};
  }
  return {static_cast<char*>(exec.workspace.data) + lost,
          std::min(exec.workspace.bytes - lost, cuda::kGemmWorkspaceBytes)};
}

struct Plan {
  explicit Plan(const CublasLt& lt) : objects(lt) {}

  MatmulObjects objects;
  cublasLtMatmulAlgo_t algorithm = {};
  size_t workspace_bytes = 0;
  bool epilogue_bias = false;
  bool settled = false;  // no search would better it
  // What the descriptor holds.
  const void* scale_a = nullptr;
  const void* scale_b = nullptr;
  const void* bias = nullptr;
};

// Memory for the trials of a product that accumulates.
class Scratch {
 public:
  ~Scratch() { cudaFree(data_); }
  // False if there is no memory.
  bool Allocate(size_t bytes) {
    if (cudaMalloc(&data_, bytes) == cudaSuccess) {
      return true;
    }
    cudaGetLastError();
    data_ = nullptr;
    return false;
  }
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

// The measured clock of a search.
class StopWatch {
 public:
  double microseconds() const {
    // tidy: allow(banned): kernels know no Clock; only the choice of a plan hangs on it
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin_)
        .count();
  }

 private:
  // tidy: allow(banned): as above
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace

struct GemmPlans::Impl {
  CublasLt lt = {};
  cublasLtHandle_t handle = nullptr;
  GpuProperties gpu;
  CudaOptions options;
  bool log = false;
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  NativeBlocks native_blocks;
  ProductCheck* product_check = nullptr;
  std::vector<uint8_t*> unit_scales;  // the last is the largest
  size_t unit_scale_bytes = 0;        // of the last
  PlanTable table;
  double searched_microseconds = 0.0;  // over all keys
  int untuned = 0;
  std::map<GemmKey, std::unique_ptr<Plan>> plans;

  ~Impl();
  absl::StatusOr<std::unique_ptr<Plan>> NewPlan(const GemmKey& key, const GemmArgs& args);
  absl::StatusOr<std::unique_ptr<Plan>> Prepare(const Exec& exec,
                                                const GemmKey& key,
                                                const GemmArgs& args,
                                                bool capturing);
  absl::Status SetPointers(Plan& plan, const GemmArgs& args);
  absl::Status RunPlan(const Exec& exec, const GemmKey& key, const GemmArgs& args, Plan& plan);
  bool Restore(const GemmKey& key, size_t workspace_bytes, Plan& plan);
  absl::StatusOr<std::vector<cublasLtMatmulHeuristicResult_t>> Heuristics(const GemmKey& key,
                                                                          const GemmArgs& args,
                                                                          size_t workspace_bytes,
                                                                          Plan& plan);
  absl::Status Search(const Exec& exec,
                      const GemmKey& key,
                      const GemmArgs& args,
                      const std::vector<cublasLtMatmulHeuristicResult_t>& candidates,
                      Plan& plan);
  absl::StatusOr<double> Measure(const Exec& exec,
                                 const Plan& plan,
                                 const GemmArgs& args,
                                 void* c,
                                 const cublasLtMatmulHeuristicResult_t& candidate,
                                 double hopeless);
  absl::Status Launch(const Exec& exec,
                      const Plan& plan,
                      const GemmArgs& args,
                      void* c,
                      const cublasLtMatmulAlgo_t& algorithm,
                      size_t workspace_bytes);
  bool TuningIsOver(double microseconds) const {
    return searched_microseconds + microseconds >= options.tuning_seconds * 1e6;
  }
  void TakeFirst(const GemmKey& key, Plan& plan);
  // Keeps a plan for the file. `microseconds`: when it was timed.
  void Record(const GemmKey& key, const Plan& plan, double microseconds);
};

GemmPlans::Impl::~Impl() {
  plans.clear();
  if (handle != nullptr) {
    lt.Destroy(handle);
  }
  for (cudaEvent_t event : {begin, end}) {
    if (event != nullptr) {
      cudaEventDestroy(event);
    }
  }
  for (uint8_t* scales : unit_scales) {
    cudaFree(scales);
  }
}

absl::StatusOr<std::unique_ptr<Plan>> GemmPlans::Impl::NewPlan(const GemmKey& key,
                                                               const GemmArgs& args) {
  const GemmExtents& e = key.extents;
  auto plan = std::make_unique<Plan>(lt);
  MatmulObjects& objects = plan->objects;
  // cuBLASLt counts by columns, in which a row-major matrix is its own transpose. c^T = op(b)^T
  // op(a)^T: with a and b, and m and n, exchanged nothing has to be copied.
  HEARTH_RETURN_IF_ERROR(objects.CreateDesc(key.transpose_b, key.transpose_a));
  HEARTH_RETURN_IF_ERROR(objects.CreateLayouts(
      {CudaType(key.b), args.b.cols(), args.b.rows(), e.ldb},
      {CudaType(key.a), args.a.cols(), args.a.rows(), e.lda}, {CudaType(key.c), e.n, e.m, e.ldc}));
  if (key.batch > 1) {
    HEARTH_RETURN_IF_ERROR(objects.SetBatch(static_cast<int32_t>(key.batch), key.stride_b,
                                            key.stride_a, key.stride_c));
  }
  if (key.fast) {
    HEARTH_RETURN_IF_ERROR(objects.Set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t{1}));
  }
  if (key.blocks) {
    const cublasLtMatmulMatrixScale_t mode = key.layout == BlockLayout::kNvfp4
                                                 ? CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3
                                                 : CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0;
    HEARTH_RETURN_IF_ERROR(objects.Set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, mode));
    HEARTH_RETURN_IF_ERROR(objects.Set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, mode));
  }
  if (key.scalars) {
    const cublasLtPointerMode_t mode = CUBLASLT_POINTER_MODE_DEVICE;
    HEARTH_RETURN_IF_ERROR(objects.Set(CUBLASLT_MATMUL_DESC_POINTER_MODE, mode));
  }
  if (key.bias) {
    plan->epilogue_bias = true;
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    const cudaDataType_t type = CUDA_R_16BF;
    HEARTH_RETURN_IF_ERROR(objects.Set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue));
    HEARTH_RETURN_IF_ERROR(objects.Set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type));
  }
  HEARTH_RETURN_IF_ERROR(SetPointers(*plan, args));
  return plan;
}

absl::Status GemmPlans::Impl::SetPointers(Plan& plan, const GemmArgs& args) {
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const void* value,
                       const void*& held) {
    if (value == held) {
      return absl::OkStatus();
    }
    held = value;
    return plan.objects.Set(attribute, value);
  };
  const bool blocks = args.block_scales_a != nullptr;
  const void* const scales_a =
      blocks ? static_cast<const void*>(args.block_scales_a) : args.scale_a;
  const void* const scales_b =
      blocks ? static_cast<const void*>(args.block_scales_b) : args.scale_b;
  HEARTH_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, scales_b, plan.scale_b));
  HEARTH_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, scales_a, plan.scale_a));
  return plan.epilogue_bias ? set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, args.bias.data, plan.bias)
                            : absl::OkStatus();
}

// The stored plan of `key`, if cuBLASLt still takes it.
bool GemmPlans::Impl::Restore(const GemmKey& key, size_t workspace_bytes, Plan& plan) {
  const std::string text = GemmKeyText(key, options.deterministic);
  const TunedPlan* const stored = table.Find(text);
  if (stored == nullptr) {
    return false;
  }
  cublasLtMatmulAlgo_t algorithm;
  static_assert(sizeof(algorithm) == sizeof(stored->algorithm));
  std::memcpy(&algorithm, stored->algorithm.data(), sizeof(algorithm));
  const MatmulObjects& o = plan.objects;
  cublasLtMatmulHeuristicResult_t checked = {};
  if (lt.AlgoCheck(handle, o.desc, o.a, o.b, o.c, o.c, &algorithm, &checked) !=
          CUBLAS_STATUS_SUCCESS ||
      checked.workspaceSize > workspace_bytes) {
    return false;
  }
  plan.algorithm = algorithm;
  plan.workspace_bytes = checked.workspaceSize;
  plan.settled = true;
  table.Use(text);
  return true;
}

absl::StatusOr<std::vector<cublasLtMatmulHeuristicResult_t>> GemmPlans::Impl::Heuristics(
    const GemmKey& key, const GemmArgs& args, size_t workspace_bytes, Plan& plan) {
  cublasLtMatmulPreference_t preference = nullptr;
  HEARTH_RETURN_IF_ERROR(
      lt.Status(lt.PreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate"));
  // Split sums only where they are added in fp32, and in a fixed order if that is asked for.
  const uint32_t in_place = options.deterministic || key.c == DType::kBF16
                                ? 0
                                : static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_INPLACE);
  const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE | in_place;
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    return lt.PreferenceSetAttribute(preference, attribute, &value, sizeof(value));
  };
  const uint64_t limit = workspace_bytes;
  std::vector<cublasLtMatmulHeuristicResult_t> results(kSearch.candidates);
  int count = 0;
  const MatmulObjects& o = plan.objects;
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  for (const cublasStatus_t step :
       {set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, limit),
        set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, schemes),
        set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.align_b),
        set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.align_a),
        set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.align_c),
        set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.align_c),
        lt.AlgoGetHeuristic(handle, o.desc, o.a, o.b, o.c, o.c, preference, kSearch.candidates,
                            results.data(), &count)}) {
    status = status == CUBLAS_STATUS_SUCCESS ? step : status;
  }
  lt.PreferenceDestroy(preference);
  results.resize(static_cast<size_t>(status == CUBLAS_STATUS_SUCCESS ? count : 0));
  results.erase(std::remove_if(results.begin(), results.end(),
                               [&](const cublasLtMatmulHeuristicResult_t& result) {
                                 return result.state != CUBLAS_STATUS_SUCCESS ||
                                        result.workspaceSize > workspace_bytes;
                               }),
                results.end());
  if (!results.empty()) {
    return results;
  }
  return absl::UnimplementedError(absl::StrCat(
      ProductText(args, options.deterministic, workspace_bytes), ": cuBLASLt has no algorithm (",
      lt.GetStatusName(status == CUBLAS_STATUS_SUCCESS ? CUBLAS_STATUS_NOT_SUPPORTED : status),
      ")"));
}

absl::Status GemmPlans::Impl::Launch(const Exec& exec,
                                     const Plan& plan,
                                     const GemmArgs& args,
                                     void* c,
                                     const cublasLtMatmulAlgo_t& algorithm,
                                     size_t workspace_bytes) {
  const float host[] = {static_cast<float>(args.alpha), static_cast<float>(args.beta)};
  const float* const scalars = args.scalars != nullptr ? args.scalars : host;
  const MatmulObjects& o = plan.objects;
  const Workspace workspace = LibraryWorkspace(exec);
  return lt.Status(lt.Matmul(handle, o.desc, scalars, args.b.data, o.a, args.a.data, o.b,
                             scalars + 1, args.addend.empty() ? c : args.addend.data, o.c, c, o.c,
                             &algorithm, workspace_bytes == 0 ? nullptr : workspace.data,
                             workspace_bytes, static_cast<cudaStream_t>(exec.stream)),
                   "cublasLtMatmul");
}

// Microseconds of a launch: the median of some samples, each of enough launches to be measured; of
// one launch if that takes `hopeless` or more.
absl::StatusOr<double> GemmPlans::Impl::Measure(const Exec& exec,
                                                const Plan& plan,
                                                const GemmArgs& args,
                                                void* c,
                                                const cublasLtMatmulHeuristicResult_t& candidate,
                                                double hopeless) {
  const cudaStream_t stream = static_cast<cudaStream_t>(exec.stream);
  const auto sample = [&](int launches) -> absl::StatusOr<double> {
    HEARTH_CUDA_RETURN_IF_ERROR(cudaEventRecord(begin, stream));
    for (int i = 0; i < launches; ++i) {
      HEARTH_RETURN_IF_ERROR(Launch(exec, plan, args, c, candidate.algo, candidate.workspaceSize));
    }
    HEARTH_CUDA_RETURN_IF_ERROR(cudaEventRecord(end, stream));
    HEARTH_CUDA_RETURN_IF_ERROR(cudaEventSynchronize(end));
    float milliseconds = 0.0F;
    HEARTH_CUDA_RETURN_IF_ERROR(cudaEventElapsedTime(&milliseconds, begin, end));
    return 1e3 * double{milliseconds} / launches;
  };
  // The first launch loads the kernel: its time says nothing.
  HEARTH_ASSIGN_OR_RETURN(const double loading, sample(1));
  static_cast<void>(loading);
  HEARTH_ASSIGN_OR_RETURN(const double once, sample(1));
  if (once >= hopeless) {
    return once;
  }
  const int launches = std::clamp(static_cast<int>(150.0 / std::max(once, 1.0)), 1, 10);
  std::vector<double> samples;
  for (int i = 0; i < (once > 1000.0 ? 2 : kSearch.samples); ++i) {
    HEARTH_ASSIGN_OR_RETURN(const double microseconds, sample(launches));
    samples.push_back(microseconds);
  }
  std::sort(samples.begin(), samples.end());
  return samples[(samples.size() - 1) / 2];
}

// Times the candidates; the plan gets the fastest. Leaves c as it was if it is accumulated into.
absl::Status GemmPlans::Impl::Search(const Exec& exec,
                                     const GemmKey& key,
                                     const GemmArgs& args,
                                     const std::vector<cublasLtMatmulHeuristicResult_t>& candidates,
                                     Plan& plan) {
  const cudaStream_t stream = static_cast<cudaStream_t>(exec.stream);
  const StopWatch watch;
  void* c = args.c.data;
  Scratch scratch;
  // Each trial would add into c. With an addend, or beta 0, a launch overwrites c, and the product
  // itself comes after the trials.
  if (key.accumulate && !key.addend) {
    const GemmExtents& e = key.extents;
    const size_t bytes =
        DTypeBytes(key.c, (key.batch - 1) * key.stride_c + (e.m - 1) * e.ldc + e.n);
    if (!scratch.Allocate(bytes)) {
      plan.settled = true;  // not again at each call
      if (log) {
        absl::FPrintF(stderr, "gemm %s: no %d bytes to try candidates with, cuBLASLt's first\n",
                      GemmKeyText(key, options.deterministic), bytes);
      }
      return absl::OkStatus();
    }
    c = scratch.data();
    HEARTH_CUDA_RETURN_IF_ERROR(cudaMemsetAsync(c, 0, bytes, stream));
  }
  double best = 0.0;
  size_t tried = 0;
  for (const cublasLtMatmulHeuristicResult_t& candidate : candidates) {
    const double hopeless = best > 0.0 ? kSearch.hopeless * best : 1e30;
    const absl::StatusOr<double> measured = Measure(exec, plan, args, c, candidate, hopeless);
    ++tried;
    if (!measured.ok()) {
      cudaGetLastError();  // a refused launch is not the next op's error
    }
    if (measured.ok() && (best == 0.0 || *measured < best)) {
      best = *measured;
      plan.algorithm = candidate.algo;
      plan.workspace_bytes = candidate.workspaceSize;
    }
    const double spent = watch.microseconds();
    if (best > 0.0 &&
        (spent > std::max(kSearch.microseconds, kSearch.launches * best) || TuningIsOver(spent))) {
      break;
    }
  }
  // A fault of a trial would show here and in every later call.
  HEARTH_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream));
  plan.settled = true;
  searched_microseconds += watch.microseconds();
  if (best == 0.0) {
    return absl::OkStatus();
  }
  Record(key, plan, best);
  if (log) {
    const GemmExtents& e = key.extents;
    const double flops = 2.0 * static_cast<double>(e.m) * static_cast<double>(e.n) *
                         static_cast<double>(e.k) * static_cast<double>(key.batch);
    absl::FPrintF(stderr, "gemm %s: %d candidates, %.1f us, %.1f TFLOP/s, workspace %d\n",
                  GemmKeyText(key, options.deterministic), tried, best, flops / best * 1e-6,
                  plan.workspace_bytes);
  }
  return absl::OkStatus();
}

void GemmPlans::Impl::TakeFirst(const GemmKey& key, Plan& plan) {
  plan.settled = true;
  ++untuned;
  if (options.deterministic) {
    Record(key, plan, 0.0);  // a later run that timed it would have other bits
  }
  if (log) {
    absl::FPrintF(stderr, "gemm %s: cuBLASLt's first choice, the time for tuning is over\n",
                  GemmKeyText(key, options.deterministic));
  }
}

void GemmPlans::Impl::Record(const GemmKey& key, const Plan& plan, double microseconds) {
  // The key does not say whether the epilogue takes the bias, so a plan without it is not recorded.
  if (plan.epilogue_bias == key.bias) {
    TunedPlan entry;
    std::memcpy(entry.algorithm.data(), &plan.algorithm, sizeof(plan.algorithm));
    entry.workspace_bytes = static_cast<int64_t>(plan.workspace_bytes);
    entry.microseconds = microseconds;
    table.Record(GemmKeyText(key, options.deterministic), entry);
  }
}

absl::StatusOr<std::unique_ptr<Plan>> GemmPlans::Impl::Prepare(const Exec& exec,
                                                               const GemmKey& key,
                                                               const GemmArgs& args,
                                                               bool capturing) {
  const size_t workspace_bytes = LibraryWorkspace(exec).bytes;
  HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<Plan> plan, NewPlan(key, args));
  if (Restore(key, workspace_bytes, *plan)) {
    return plan;
  }
  auto candidates = Heuristics(key, args, workspace_bytes, *plan);
  if (!candidates.ok() && plan->epilogue_bias) {
    plan->epilogue_bias = false;
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    HEARTH_RETURN_IF_ERROR(plan->objects.Set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue));
    candidates = Heuristics(key, args, workspace_bytes, *plan);
  }
  HEARTH_RETURN_IF_ERROR(candidates.status());
  // In a capture nothing can be timed. The plan stays unsettled there, so that a later call outside
  // of a capture searches.
  plan->algorithm = candidates->front().algo;
  plan->workspace_bytes = candidates->front().workspaceSize;
  if (options.deterministic && options.plan_cache.empty()) {
    // The times of this run would decide the bits, and nothing would tell the next run.
    plan->settled = true;
  } else if (!capturing && TuningIsOver(0.0)) {
    TakeFirst(key, *plan);
  } else if (!capturing) {
    HEARTH_RETURN_IF_ERROR(Search(exec, key, args, *candidates, *plan));
  }
  return plan;
}

absl::Status GemmPlans::Impl::RunPlan(const Exec& exec,
                                      const GemmKey& key,
                                      const GemmArgs& args,
                                      Plan& plan) {
  HEARTH_RETURN_IF_ERROR(SetPointers(plan, args));
  const absl::Status launched =
      Launch(exec, plan, args, args.c.data, plan.algorithm, plan.workspace_bytes);
  if (!launched.ok()) {
    return Annotate(launched, ProductText(args, options.deterministic, plan.workspace_bytes));
  }
  return args.bias.empty() || plan.epilogue_bias
             ? absl::OkStatus()
             : cuda::AddRowBias(exec, args.c, key.extents.ldc, args.bias);
}

GemmPlans::GemmPlans(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GemmPlans::~GemmPlans() = default;

absl::StatusOr<std::unique_ptr<GemmPlans>> GemmPlans::New(const GpuProperties& gpu,
                                                          const CudaOptions& options) {
  auto impl = std::make_unique<Impl>();
  HEARTH_ASSIGN_OR_RETURN(impl->lt, CublasLt::Load());
  HEARTH_RETURN_IF_ERROR(impl->lt.Status(impl->lt.Create(&impl->handle), "cublasLtCreate"));
  HEARTH_CUDA_RETURN_IF_ERROR(cudaEventCreate(&impl->begin));
  HEARTH_CUDA_RETURN_IF_ERROR(cudaEventCreate(&impl->end));
  impl->gpu = gpu;
  impl->options = options;
  const char* log = GetEnv("HEARTH_GEMM_LOG");
  impl->log = log != nullptr && std::strcmp(log, "1") == 0;
  const PlanOrigin origin = {gpu.name, gpu.major, gpu.minor, impl->lt.GetVersion(),
                             gpu.driver_version};
  // Nothing would tell the next deterministic run which shipped plans this one had.
  const bool forgetful = options.deterministic && options.plan_cache.empty();
  impl->table = PlanTable(origin, options.plan_cache, forgetful ? "" : options.shipped_plans);
  return std::unique_ptr<GemmPlans>(new GemmPlans(std::move(impl)));
}

absl::Status GemmPlans::Run(const Exec& exec, const GemmArgs& args) {
  const GemmKey key = GemmKeyOf(args);
  if (key.extents.m == 0 || key.extents.n == 0) {
    return absl::OkStatus();
  }
  auto it = impl_->plans.find(key);
  const bool fits =
      it != impl_->plans.end() && it->second->workspace_bytes <= LibraryWorkspace(exec).bytes;
  if (!fits || !it->second->settled) {
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    HEARTH_CUDA_RETURN_IF_ERROR(
        cudaStreamIsCapturing(static_cast<cudaStream_t>(exec.stream), &capture));
    const bool capturing = capture != cudaStreamCaptureStatusNone;
    if (!fits || !capturing) {
      HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<Plan> made,
                              impl_->Prepare(exec, key, args, capturing));
      it = impl_->plans.insert_or_assign(key, std::move(made)).first;
    }
  }
  return impl_->RunPlan(exec, key, args, *it->second);
}

absl::Status GemmPlans::RunOnce(const Exec& exec, const GemmArgs& args) {
  const GemmKey key = GemmKeyOf(args);
  // Prepared as in a capture, where nothing can be timed.
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<Plan> plan,
                          impl_->Prepare(exec, key, args, /*capturing=*/true));
  return impl_->RunPlan(exec, key, args, *plan);
}

int GemmPlans::untuned() const {
  return impl_->untuned;
}

int GemmPlans::shipped() const {
  return impl_->table.shipped_used();
}

absl::Status GemmPlans::Save() {
  return impl_->table.Save();
}

std::string GemmPlans::Export() const {
  return impl_->table.Export();
}

absl::StatusOr<bool> GemmPlans::Import(const std::string& text) {
  TunedPlans used;
  for (const auto& [key, plan] : impl_->plans) {
    TunedPlan& entry = used[GemmKeyText(key, impl_->options.deterministic)];
    std::memcpy(entry.algorithm.data(), &plan->algorithm, sizeof(plan->algorithm));
  }
  HEARTH_ASSIGN_OR_RETURN(const bool changed, impl_->table.Import(text, used));
  if (changed) {
    impl_->plans.clear();
  }
  return changed;
}

absl::StatusOr<const uint8_t*> GemmPlans::UnitScales(const Exec& exec, size_t bytes) {
  if (bytes <= impl_->unit_scale_bytes) {
    return impl_->unit_scales.back();
  }
  const auto stream = static_cast<cudaStream_t>(exec.stream);
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  HEARTH_CUDA_RETURN_IF_ERROR(cudaStreamIsCapturing(stream, &capture));
  if (capture != cudaStreamCaptureStatusNone) {
    return nullptr;
  }
  void* grown = nullptr;
  HEARTH_CUDA_RETURN_IF_ERROR(cudaMalloc(&grown, bytes));
  impl_->unit_scales.push_back(static_cast<uint8_t*>(grown));
  impl_->unit_scale_bytes = bytes;
  HEARTH_CUDA_RETURN_IF_ERROR(cudaMemsetAsync(grown, kUnitScale, bytes, stream));
  // Products of other streams read it too.
  HEARTH_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream));
  return impl_->unit_scales.back();
}

NativeBlocks& GemmPlans::native_blocks() {
  return impl_->native_blocks;
}

ProductCheck*& GemmPlans::product_check() {
  return impl_->product_check;
}

std::string GemmPlans::version() const {
  const size_t version = impl_->lt.GetVersion();
  return absl::StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

const CublasLt& GemmPlans::library() const {
  return impl_->lt;
}

void* GemmPlans::handle() const {
  return impl_->handle;
}

}  // namespace hearth::kernels
