// `probe`: what this machine runs, as JSON; `doctor`: the same as checks with remedies.
#include <cstdio>
#include <string>

#include "kernels/cuda/context.h"
#include "worker/trainer/cli/machine/machine_probe.h"
#include "worker/trainer/cli/verbs.h"

namespace hearth::trainer {
namespace {

std::string DeviceOr(const std::string& given) {
  if (!given.empty()) {
    return given;
  }
  return kernels::GpuCount() > 0 ? "cuda:0" : "cpu";
}

}  // namespace

int ProbeCommand(const ProbeOptions& options) {
  const nlohmann::json probe = Probe(DeviceOr(options.device));
  std::printf("%s\n", probe.dump(2).c_str());
  return ProductsAreRight(probe) ? 0 : 1;
}

int DoctorCommand(const ProbeOptions& options) {
  const nlohmann::json probe = Probe(DeviceOr(options.device));
  bool all = true;
  nlohmann::json out = nlohmann::json::array();
  for (const Check& check : Diagnose(probe)) {
    all = all && check.ok;
    if (options.json) {
      out.push_back({{"name", check.name},
                     {"ok", check.ok},
                     {"note", check.note},
                     {"text", check.text},
                     {"remedy", check.remedy}});
      continue;
    }
    std::printf("%-5s %-22s %s\n", CheckResult(check), check.name.c_str(), check.text.c_str());
    if (!check.remedy.empty()) {
      std::printf("      %-22s -> %s\n", "", check.remedy.c_str());
    }
  }
  if (options.json) {
    std::printf("%s\n", out.dump(2).c_str());
  }
  return all ? 0 : 1;
}

}  // namespace hearth::trainer
