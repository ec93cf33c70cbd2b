#include "worker/trainer/cli/machine/machine_probe.h"

#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/units.h"
#include "common/base/version.h"
#include "common/spec/objective/objective_table.h"
#include "common/spec/optimizer/optimizer_table.h"
#include "common/spec/recipe/recipe.h"
#include "common/spec/violations/names.h"
#include "kernels/attention/attention_probe.h"
#include "kernels/cuda/device.h"
#include "kernels/gemm/gemm_probe.h"
#include "kernels/gemm/probe_case.h"
#include "worker/trainer/cli/machine/gpu_scratch.h"
#include "worker/trainer/cli/verbs.h"
#include "worker/trainer/comm/nccl/nccl_version.h"
#include "worker/trainer/device/rank_device.h"
#include "worker/trainer/exit_codes.h"

namespace hearth::trainer {
namespace {

std::string VersionText(int cuda_version) {
  return absl::StrCat(cuda_version / 1000, ".", cuda_version % 1000 / 10);
}

template <typename Row>
nlohmann::json ProbeRows(const std::vector<Row>& rows) {
  nlohmann::json out = nlohmann::json::array();
  for (const Row& row : rows) {
    out.push_back({{"name", row.name},
                   {"ok", row.ok},
                   {"status", row.status},
                   {"max_relative_error", row.max_relative_error}});
  }
  return out;
}

absl::StatusOr<nlohmann::json> ProbeGpu(const std::string& device) {
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<kernels::CudaContext> context,
                          OpenGpu(device, false));
  const kernels::GpuProperties& gpu = context->gpu();
  nlohmann::json out;
  out["name"] = gpu.name;
  out["uuid"] = gpu.uuid;
  out["compute_capability"] = absl::StrCat(gpu.major, ".", gpu.minor);
  out["multiprocessors"] = gpu.multiprocessors;
  out["driver_cuda"] = VersionText(gpu.driver_version);
  out["runtime_cuda"] = VersionText(gpu.runtime_version);
  out["cublaslt"] = context->gemm_version();
  out["attention"] = context->attention_version();
  int64_t free = 0;
  int64_t total = 0;
  HEARTH_RETURN_IF_ERROR(kernels::DeviceMemory(*context, free, total));
  out["memory_free_bytes"] = free;
  out["memory_bytes"] = total;
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<GpuScratch> scratch, GpuScratch::New(*context));
  out["gemm"] = ProbeRows(kernels::ProbeGemms(scratch->exec));
  out["attention_probe"] = ProbeRows(kernels::ProbeAttention(scratch->exec));
  return out;
}

// What replaces a failed probe.
struct Substitute {
  std::string instead;
  // Also where it runs and computes wrong: the engine tries before it uses it.
  bool wrong_too = false;
};

// nullopt: nothing does.
std::optional<Substitute> SubstituteOf(kernels::ProbeFallback fallback) {
  switch (fallback) {
    case kernels::ProbeFallback::kNone:
      return std::nullopt;
    case kernels::ProbeFallback::kStop:
      return Substitute{
          absl::StrCat("the recipes ",
                       spec::NamesText(spec::RecipeNames(
                           [](const spec::Recipe& recipe) { return recipe.tensor_scaled(); })),
                       " do not run"),
          false};
    case kernels::ProbeFallback::kEmulated:
      return Substitute{"emulated", true};
    case kernels::ProbeFallback::kPlainFp8:
      return Substitute{"plain FP8 instead", true};
  }
  return std::nullopt;
}

std::optional<Substitute> SubstituteFor(std::string_view probe) {
  if (kernels::OwnKernelStandsIn(probe)) {
    return Substitute{"attention runs on our own kernel", false};
  }
  const kernels::ProbeCase* const row = kernels::FindProbeCase(probe);
  return row == nullptr ? std::nullopt : SubstituteOf(row->fallback);
}

Check CheckProbe(const nlohmann::json& row) {
  Check check = {row["name"].get<std::string>(), row["ok"].get<bool>(),
                 row["status"].get<std::string>(), ""};
  if (check.ok) {
    return check;
  }
  // Formats that only newer GPUs have are facts, not faults. A product that ran has an error.
  const nlohmann::json& error = row["max_relative_error"];
  const bool ran = !error.is_number() || error.get<double>() != 0.0;
  const std::optional<Substitute> substitute = SubstituteFor(check.name);
  if (substitute.has_value() && (!ran || substitute->wrong_too)) {
    check.ok = check.note = true;
    check.text =
        absl::StrCat(ran ? "not right on this GPU: " : "not on this GPU: ", substitute->instead,
                     " (", check.text, ")");
    return check;
  }
  check.remedy = "reinstall the driver and CUDA; do not train on it";
  return check;
}

constexpr const char* kProbeGroups[] = {"gemm", "attention_probe"};

nlohmann::json ProbedRows(const nlohmann::json& gpu) {
  nlohmann::json rows = nlohmann::json::array();
  for (const char* group : kProbeGroups) {
    for (const nlohmann::json& row : gpu.value(group, nlohmann::json::array())) {
      rows.push_back(row);
    }
  }
  return rows;
}

void CheckGpu(const nlohmann::json& gpu, std::vector<Check>& checks) {
  if (gpu.contains("error")) {
    checks.push_back(
        {"gpu", false, gpu["error"].get<std::string>(),
         "install NVIDIA's driver 580 or later and CUDA 13's cuBLASLt, or run jobs with "
         "resources.device: cpu"});
    return;
  }
  const auto text = [&](const char* key) { return gpu.value(key, ""); };
  checks.push_back({"gpu", true,
                    absl::StrCat(text("name"), ", compute capability ", text("compute_capability")),
                    ""});
  checks.push_back({"cuda", true,
                    absl::StrCat("driver for CUDA ", text("driver_cuda"), ", runtime ",
                                 text("runtime_cuda"), ", cuBLASLt ", text("cublaslt")),
                    ""});
  const bool cudnn = text("attention") != "own";
  checks.push_back({"cudnn", cudnn,
                    cudnn ? text("attention") : "not found: attention runs on our own kernel",
                    cudnn ? "" : "install cuDNN 9.14 or later, or name it in HEARTH_CUDNN"});
  const auto free = gpu.value("memory_free_bytes", int64_t{0});
  const auto total = gpu.value("memory_bytes", int64_t{0});
  const bool roomy = free > total / 2;
  checks.push_back({"gpu memory", roomy,
                    absl::StrCat(FormatBytes(free), " of ", FormatBytes(total), " free"),
                    roomy ? "" : "another process holds GPU memory: nvidia-smi names it"});
  for (const nlohmann::json& row : ProbedRows(gpu)) {
    checks.push_back(CheckProbe(row));
  }
}

}  // namespace

nlohmann::json Probe(const std::string& device) {
  nlohmann::json out;
  out["version"] = std::string(Version());
  out["commit"] = std::string(GitCommit());
  out["device"] = device;
  out["threads"] = ThreadsOrAll(0);
  out["plan_memory_bytes"] = CpuMemoryBytes(1);
  const absl::StatusOr<std::string> nccl = NcclVersion();
  out["nccl"] = nccl.ok() ? nlohmann::json(*nccl) : nlohmann::json();
  if (!nccl.ok()) {
    out["nccl_error"] = std::string(nccl.status().message());
  }
  const bool cuda = absl::StartsWith(device, "cuda");
  if (cuda) {
    absl::StatusOr<nlohmann::json> gpu = ProbeGpu(device);
    out["gpu"] =
        gpu.ok() ? *std::move(gpu) : nlohmann::json{{"error", std::string(gpu.status().message())}};
    for (const char* group : kProbeGroups) {
      if (!out["gpu"].contains(group)) {
        continue;
      }
      for (nlohmann::json& row : out["gpu"][group]) {
        const Check check = CheckProbe(row);
        row["result"] = CheckResult(check);
        row["meaning"] = check.text;
      }
    }
  }
  for (const spec::Recipe& recipe : spec::Recipes()) {
    out["recipes"][std::string(recipe.name)] =
        std::string(spec::ExecutionName(spec::RecipeExecution(recipe, cuda ? "cuda" : "cpu")));
  }
  for (const spec::OptimizerRow& row : spec::Optimizers()) {
    out["optimizers"].push_back(std::string(row.name));
  }
  for (const spec::ObjectiveRow& row : spec::Objectives()) {
    out["objectives"].push_back(std::string(row.name));
  }
  for (const ExitCode& row : kExitCodes) {
    out["exit_codes"][std::string(row.name)] = row.code;
  }
  return out;
}

bool ProductsAreRight(const nlohmann::json& probe) {
  const nlohmann::json rows = ProbedRows(probe.value("gpu", nlohmann::json::object()));
  return std::all_of(rows.begin(), rows.end(),
                     [](const nlohmann::json& row) { return CheckProbe(row).ok; });
}

const char* CheckResult(const Check& check) {
  return !check.ok ? "FAIL" : check.note ? "note" : "ok";
}

std::vector<Check> Diagnose(const nlohmann::json& probe) {
  std::vector<Check> checks;
  checks.push_back({"hearth-trainer", true,
                    absl::StrCat(probe.value("version", ""), " (", probe.value("commit", ""), ")"),
                    ""});
  if (probe.contains("gpu")) {
    CheckGpu(probe["gpu"], checks);
    const bool nccl = probe["nccl"].is_string();
    checks.push_back(
        {"nccl", nccl,
         nccl ? probe["nccl"].get<std::string>() : probe.value("nccl_error", "not found"),
         nccl ? "" : "install libnccl2 2.28 or later; jobs on one GPU do without"});
  } else {
    checks.push_back({"device", true, "no GPU in use: jobs run on the CPU", ""});
  }
  return checks;
}

}  // namespace hearth::trainer
