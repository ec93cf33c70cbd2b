#include "kernels/harness/gpu.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/copy_values/copy_values.h"
#include "kernels/cuda/device.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/gemm_probe.h"

namespace hearth::kernels::harness {
namespace {

constexpr size_t kGuardBytes = 256;

// Device scratch memory, for a check with guard bytes behind it; all of it reads as NaN.
class DeviceWorkspace {
 public:
  static absl::StatusOr<DeviceWorkspace> New(const Exec& exec, size_t bytes) {
    DeviceWorkspace workspace;
    workspace.bytes_ = bytes;
    HEARTH_ASSIGN_OR_RETURN(workspace.data_, AllocateDevice(*exec.cuda, bytes + kGuardBytes));
    const std::string poison(bytes + kGuardBytes, '\xFF');
    HEARTH_RETURN_IF_ERROR(Copy(exec, workspace.data_, poison.data(), poison.size()));
    HEARTH_RETURN_IF_ERROR(Synchronize(exec));
    return workspace;
  }
  DeviceWorkspace(DeviceWorkspace&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
  ~DeviceWorkspace() {
    if (data_ != nullptr) {
      FreeDevice(data_);
    }
  }
  Exec AddTo(Exec exec) const {
    exec.workspace = {bytes_ > 0 ? data_ : nullptr, bytes_};
    return exec;
  }
  absl::Status CheckGuard(const Exec& exec) const {
    std::string guard(kGuardBytes, '\0');
    HEARTH_RETURN_IF_ERROR(
        Copy(exec, guard.data(), static_cast<const char*>(data_) + bytes_, kGuardBytes));
    HEARTH_RETURN_IF_ERROR(Synchronize(exec));
    return guard == std::string(kGuardBytes, '\xFF')
               ? absl::OkStatus()
               : absl::DataLossError("wrote behind the workspace");
  }

 private:
  DeviceWorkspace() = default;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

// The last error of a recording is worth less than the first.
absl::Status FirstError(const absl::Status& first, const absl::Status& second) {
  return first.ok() ? second : first;
}

absl::Status SquareProduct(const Exec& exec, const Buffers& b, bool fp8) {
  GemmArgs args;
  args.a = b["a"];
  args.b = b["b"];
  args.c = b["c"];
  args.transpose_b = true;
  args.fast_accumulation = fp8;
  if (fp8) {
    args.scale_a = args.scale_b = b["scale"].as<float>();
  }
  return Gemm(exec, args);
}

// The square product whose rate is the ceiling of the others.
OpCase CeilingCase(bool fp8) {
  constexpr int64_t kSize = 8192;
  const DType dtype = fp8 ? DType::kE4M3 : DType::kBF16;
  OpCase c;
  c.op = "ceiling";
  c.name = fp8 ? "fp8" : "bf16";
  const Fill one = {Fill::kConstant, 1.0, 0.0};
  c.buffers = {{"a", {kSize, kSize}, Role::kInput, {}, dtype},
               {"b", {kSize, kSize}, Role::kInput, {}, dtype},
               {"c", {kSize, kSize}, Role::kOutput},
               {"scale", {1}, Role::kInput, one, DType::kU8}};
  c.forward = [fp8](const Exec& exec, const Buffers& b) { return SquareProduct(exec, b, fp8); };
  c.forward_flops = 2.0 * kSize * kSize * kSize;
  return c;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Gpu>> Gpu::Open(int ordinal, bool fixed_order) {
  CudaOptions options;
  options.ordinal = ordinal;
  options.deterministic = fixed_order;
  HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<CudaContext> context, CudaContext::Open(options));
  std::unique_ptr<Gpu> gpu(new Gpu(std::move(context)));
  gpu->exec_.device = Device::kCuda;
  gpu->exec_.cuda = gpu->context_.get();
  HEARTH_ASSIGN_OR_RETURN(gpu->exec_.stream, NewStream(*gpu->context_));
  return gpu;
}

Gpu::~Gpu() {
  if (exec_.stream != nullptr) {
    DeleteStream(exec_.stream);
  }
}

absl::Status Gpu::ChooseProducts() {
  constexpr size_t kWorkspace = 2 * cuda::kGemmWorkspaceBytes;
  HEARTH_ASSIGN_OR_RETURN(const DeviceWorkspace workspace, DeviceWorkspace::New(exec_, kWorkspace));
  for (const BlockGemmChoice& choice : ChooseBlockGemms(workspace.AddTo(exec_), true)) {
    std::printf("%s on block-scaled units: %s, %s\n", choice.products.name(),
                choice.native ? "yes" : "no", choice.why.c_str());
  }
  return absl::OkStatus();
}

std::vector<Storage> Gpu::StoragesOf(const OpCase& op_case) {
  std::vector<Storage> storages = {Storage::Cuda(DType::kF32, DType::kF32),
                                   Storage::Cuda(DType::kBF16, DType::kF32)};
  const bool gradients =
      std::any_of(op_case.buffers.begin(), op_case.buffers.end(),
                  [](const BufferSpec& spec) { return spec.kind == Kind::kWeightGradient; });
  if (gradients && op_case.bf16_gradients) {
    storages.push_back(Storage::Cuda(DType::kBF16, DType::kBF16));
  }
  return storages;
}

std::string Gpu::NameOf(const Storage& storage) {
  return absl::StrCat(storage.activations == DType::kBF16 ? "A bf16" : "A f32",
                      storage.weight_gradients == DType::kBF16 ? ", G bf16" : "");
}

bool Gpu::broken() {
  int64_t free_bytes = 0;
  int64_t total_bytes = 0;
  return !Synchronize(exec_).ok() || !DeviceMemory(*context_, free_bytes, total_bytes).ok();
}

// Forward and backward, called directly or recorded and replayed.
absl::Status Gpu::Launch(const OpCase& op_case,
                         const Exec& exec,
                         const Buffers& buffers,
                         bool graph) {
  if (graph) {
    HEARTH_RETURN_IF_ERROR(Graph::Begin(exec));
  }
  absl::Status status;
  for (const RunFn& run : {op_case.forward, op_case.backward}) {
    if (run && status.ok()) {
      status = run(exec, buffers);
    }
    if (!graph && status.ok()) {
      status = Synchronize(exec);
    }
  }
  if (!graph) {
    return status;
  }
  absl::StatusOr<std::unique_ptr<Graph>> recorded = Graph::End(exec, "recording");
  HEARTH_RETURN_IF_ERROR(FirstError(status, recorded.status()));
  HEARTH_RETURN_IF_ERROR((*recorded)->Launch(exec));
  return Synchronize(exec);
}

absl::StatusOr<Buffers> Gpu::Run(const OpCase& op_case, Buffers buffers, bool graph) {
  HEARTH_RETURN_IF_ERROR(buffers.Upload(exec_));
  const size_t bytes = op_case.workspace ? op_case.workspace(buffers, 1) : 0;
  HEARTH_ASSIGN_OR_RETURN(const DeviceWorkspace workspace, DeviceWorkspace::New(exec_, bytes));
  Exec exec = workspace.AddTo(exec_);
  // Kernels that can begin early do, so that a check sees what goes wrong then.
  exec.early_start = EarlyStartAllowed();
  HEARTH_RETURN_IF_ERROR(Launch(op_case, exec, buffers, graph));
  HEARTH_RETURN_IF_ERROR(workspace.CheckGuard(exec_));
  HEARTH_RETURN_IF_ERROR(buffers.Download(exec_));
  const std::string damaged = buffers.DamagedGuard();
  if (!damaged.empty()) {
    return absl::DataLossError(absl::StrCat("wrote outside buffer ", damaged));
  }
  return buffers;
}

Outcome Gpu::Try(const OpCase& op_case, const Storage& storage) {
  const absl::Status status =
      Run(op_case, Buffers(op_case.buffers, storage, storage, kSeed, false), false).status();
  return {status.ok()                     ? Outcome::kOk
          : absl::IsUnimplemented(status) ? Outcome::kSkipped
                                          : Outcome::kFailed,
          status.ok() ? "" : status.ToString()};
}

// One run against what it was given, its QuantViews and the CPU's run of the same values.
std::string Gpu::CheckRun(const OpCase& op_case,
                          const Storage& storage,
                          const Buffers& untouched,
                          const Buffers& run) {
  for (const BufferSpec& spec : op_case.buffers) {
    if (spec.role == Role::kInput && !run.BitEqual(untouched, spec.name)) {
      return absl::StrCat("input ", spec.name, " was written");
    }
  }
  std::string error = CheckImage(op_case, run);
  if (!error.empty() || !(op_case.double_reference || op_case.slack == 0.0)) {
    return error;
  }
  const Storage wide = Storage::Cpu(op_case.double_reference ? DType::kF64 : DType::kF32);
  const Buffers reference(op_case.buffers, wide, storage, kSeed, false);
  error = RunOnCpu(op_case, reference, 1);
  return error.empty() ? CompareWithDouble(op_case, run, reference, true)
                       : absl::StrCat("the CPU's run: ", error);
}

Outcome Gpu::Check(const OpCase& op_case, const Storage& storage) {
  const Buffers untouched(op_case.buffers, storage, storage, kSeed, false);
  const absl::StatusOr<Buffers> first = Run(op_case, untouched.Clone(), false);
  if (!first.ok()) {
    return {absl::IsUnimplemented(first.status()) ? Outcome::kSkipped : Outcome::kFailed,
            first.status().ToString()};
  }
  std::string error = CheckRun(op_case, storage, untouched, *first);
  for (bool graph : {false, true}) {
    if (!error.empty()) {
      break;
    }
    const char* how = graph ? "a replayed graph" : "a second run";
    const absl::StatusOr<Buffers> again = Run(op_case, untouched.Clone(), graph);
    if (!again.ok()) {
      return {Outcome::kFailed, absl::StrCat(how, ": ", again.status().ToString())};
    }
    bool loose = false;
    for (const BufferSpec& spec : op_case.buffers) {
      const bool repeats = spec.cuda_repeatable || context_->options().deterministic;
      loose |= !repeats;
      if (repeats && !first->BitEqual(*again, spec.name)) {
        error = absl::StrCat(spec.name, " differs in ", how);
      }
    }
    if (error.empty() && loose) {
      error = CheckRun(op_case, storage, untouched, *again);
    }
  }
  return {error.empty() ? Outcome::kOk : Outcome::kFailed, error};
}

// Seconds of a launch: the median of batches between two events. The first calls choose plans.
absl::StatusOr<double> Gpu::Time(const Exec& exec, const std::function<absl::Status()>& launch) {
  constexpr int kBatches = 5;
  constexpr double kBatchSeconds = 0.03;
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<Event> begin, Event::New(exec));
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<Event> end, Event::New(exec));
  int launches = 3;
  std::vector<double> seconds;
  for (int batch = -2; batch < kBatches; ++batch) {
    HEARTH_RETURN_IF_ERROR(begin->Record(exec));
    for (int i = 0; i < launches; ++i) {
      HEARTH_RETURN_IF_ERROR(launch());
    }
    HEARTH_RETURN_IF_ERROR(end->Record(exec));
    HEARTH_RETURN_IF_ERROR(end->Wait());
    seconds.push_back(end->MillisecondsSince(*begin) * 1e-3 / launches);
    if (batch == -1) {
      launches = static_cast<int>(std::clamp(kBatchSeconds / seconds.back(), 3.0, 500.0));
    }
  }
  std::sort(seconds.begin() + 2, seconds.end());
  return seconds[2 + kBatches / 2];
}

absl::StatusOr<double> Gpu::TimeCalls(const RunFn& run,
                                      const Exec& exec,
                                      const std::vector<Buffers>& copies) {
  size_t turn = 0;
  return Time(exec, [&] { return run(exec, copies[turn++ % copies.size()]); });
}

absl::StatusOr<double> Gpu::TimeRecorded(const RunFn& run,
                                         const Exec& exec,
                                         const std::vector<Buffers>& copies) {
  // As it is first: plans are chosen, and kernels loaded, before anything is recorded.
  HEARTH_RETURN_IF_ERROR(run(exec, copies[0]));
  HEARTH_RETURN_IF_ERROR(Synchronize(exec));
  HEARTH_RETURN_IF_ERROR(Graph::Begin(exec));
  absl::Status status;
  for (const Buffers& copy : copies) {
    status.Update(run(exec, copy));
  }
  absl::StatusOr<std::unique_ptr<Graph>> graph = Graph::End(exec, "timing");
  HEARTH_RETURN_IF_ERROR(FirstError(status, graph.status()));
  HEARTH_ASSIGN_OR_RETURN(const double seconds, Time(exec, [&] { return (*graph)->Launch(exec); }));
  return seconds / static_cast<double>(copies.size());
}

absl::StatusOr<GpuTiming> Gpu::Measure(const OpCase& op_case, const Storage& storage) {
  // cuBLASLt takes what there is; ops of ours say what they need.
  constexpr size_t kLeastWorkspace = size_t{64} << 20;
  // A graph may have many launches: enough that even small weights come from memory.
  const size_t most_copies = op_case.recorded ? 256 : 16;
  std::vector<Buffers> copies;
  const double l2 = static_cast<double>(properties().l2_bytes);
  do {
    HEARTH_ASSIGN_OR_RETURN(Buffers copy, Buffers::ForTiming(op_case.buffers, storage, exec_));
    copies.push_back(std::move(copy));
  } while (copies.size() < most_copies &&
           static_cast<double>(copies.size() * copies[0].TotalBytes()) < 4.0 * l2);
  const size_t bytes = op_case.workspace ? op_case.workspace(copies[0], 1) : 0;
  HEARTH_ASSIGN_OR_RETURN(const DeviceWorkspace workspace,
                          DeviceWorkspace::New(exec_, std::max(bytes, kLeastWorkspace)));
  Exec exec = workspace.AddTo(exec_);
  exec.early_start = op_case.early_start && EarlyStartAllowed();
  GpuTiming timing;
  if (op_case.prepare) {
    for (const Buffers& copy : copies) {
      HEARTH_RETURN_IF_ERROR(op_case.prepare(exec, copy));
    }
  }
  HEARTH_ASSIGN_OR_RETURN(timing.forward_s, op_case.recorded
                                                ? TimeRecorded(op_case.forward, exec, copies)
                                                : TimeCalls(op_case.forward, exec, copies));
  if (op_case.backward) {
    for (const Buffers& copy : copies) {
      HEARTH_RETURN_IF_ERROR(op_case.forward(exec, copy));
    }
    HEARTH_ASSIGN_OR_RETURN(timing.backward_s, TimeCalls(op_case.backward, exec, copies));
  }
  const double all = static_cast<double>(copies[0].TotalBytes());
  timing.forward_bytes =
      op_case.forward_traffic.empty() ? all : copies[0].BytesOf(op_case.forward_traffic);
  timing.backward_bytes =
      op_case.backward_traffic.empty() ? all : copies[0].BytesOf(op_case.backward_traffic);
  return timing;
}

absl::StatusOr<Ceilings> Gpu::MeasureCeilings() {
  const Storage storage = Storage::Cuda(DType::kBF16, DType::kBF16);
  Ceilings ceilings;
  OpCase copy;
  copy.buffers = {{"x", {int64_t{1} << 29}}, {"y", {int64_t{1} << 29}, Role::kOutput}};
  copy.forward = [](const Exec& exec, const Buffers& b) {
    return CopyValues(exec, {b["x"], b["y"]});
  };
  HEARTH_ASSIGN_OR_RETURN(const GpuTiming copied, Measure(copy, storage));
  ceilings.copy_bytes_s = copied.forward_bytes / copied.forward_s;
  for (bool fp8 : {false, true}) {
    const OpCase product = CeilingCase(fp8);
    const absl::StatusOr<GpuTiming> timing = Measure(product, storage);
    // A GPU without FP8 has no such ceiling.
    if (!timing.ok() && (!fp8 || broken())) {
      return timing.status();
    }
    (fp8 ? ceilings.fp8_flops : ceilings.bf16_flops) =
        timing.ok() ? product.forward_flops / timing->forward_s : 0.0;
  }
  return ceilings;
}

}  // namespace hearth::kernels::harness
