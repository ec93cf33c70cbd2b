// ops test|grad|perf|support [-o FILTER] [-t THREADS]: checks and timings of the kernels.
// Exit code: 0 all good, 1 a case failed, 2 usage.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "kernels/harness/harness.h"

namespace hearth::kernels::harness {
namespace {

int RunChecks(const std::vector<OpCase>& cases, bool gradients) {
  int failed = 0;
  int run = 0;
  for (const OpCase& op_case : cases) {
    if (op_case.perf || (gradients && op_case.inputs.empty())) {
      continue;
    }
    const std::string error = gradients ? CheckGradients(op_case) : CheckAgainstDouble(op_case);
    ++run;
    failed += error.empty() ? 0 : 1;
    std::printf("%-5s %s/%s%s%s\n", error.empty() ? "ok" : "FAIL", op_case.op.c_str(),
                op_case.name.c_str(), error.empty() ? "" : ": ", error.c_str());
  }
  std::printf("%d cases, %d failed\n", run, failed);
  return failed == 0 && run > 0 ? 0 : 1;
}

void PrintRate(
    const OpCase& op_case, const char* direction, double seconds, double flops, double bytes) {
  if (seconds <= 0.0) {
    return;
  }
  const double rate = (flops > 0.0 ? flops : bytes) / seconds * 1e-9;
  std::printf("%-44s %-8s %10.3f ms %9.2f %s\n", (op_case.op + "/" + op_case.name).c_str(),
              direction, seconds * 1e3, rate, flops > 0.0 ? "GFLOP/s" : "GB/s");
}

// GB/s counts every buffer of the case once: a lower bound of the traffic of either direction.
int RunPerf(const std::vector<OpCase>& cases, int threads) {
  for (const OpCase& op_case : cases) {
    if (!op_case.perf) {
      continue;
    }
    const Timing timing = Measure(op_case, threads);
    PrintRate(op_case, "forward", timing.forward_s, op_case.forward_flops, timing.forward_bytes);
    PrintRate(op_case, "backward", timing.backward_s, op_case.backward_flops, timing.backward_bytes);
  }
  return 0;
}

const char* Supported(const OpCase& op_case, Device device, DType storage) {
  const Buffers buffers(op_case.buffers, storage, 1, true);
  std::vector<double> scratch;
  Exec exec;
  exec.device = device;
  if (op_case.workspace) {
    // Aligned by hand: 64 bytes within a vector that is a little longer.
    scratch.resize(op_case.workspace(buffers, 1) / 8 + 16);
    const uintptr_t at = (reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64;
    exec.workspace = {reinterpret_cast<void*>(at), scratch.size() * 8 - 64};
  }
  return op_case.forward(exec, buffers).ok() ? "yes" : "no";
}

int RunSupport(const std::vector<OpCase>& cases) {
  std::printf("%-44s %-8s %-8s %-8s\n", "case", "cpu f32", "cpu f64", "cuda");
  for (const OpCase& op_case : cases) {
    if (!op_case.perf) {
      std::printf("%-44s %-8s %-8s %-8s\n", (op_case.op + "/" + op_case.name).c_str(),
                  Supported(op_case, Device::kCpu, DType::kF32),
                  Supported(op_case, Device::kCpu, DType::kF64),
                  Supported(op_case, Device::kCuda, DType::kF32));
    }
  }
  return 0;
}

int Main(const std::vector<std::string>& args) {
  std::string filter;
  int threads = 1;
  for (size_t i = 2; i + 1 < args.size(); i += 2) {
    if (args[i] == "-o") {
      filter = args[i + 1];
    } else if (args[i] == "-t") {
      threads = std::max(1, std::atoi(args[i + 1].c_str()));
    }
  }
  std::vector<OpCase> cases;
  for (OpCase& op_case : AllCases()) {
    if ((op_case.op + "/" + op_case.name).find(filter) != std::string::npos) {
      cases.push_back(std::move(op_case));
    }
  }
  const std::string mode = args.size() > 1 ? args[1] : "";
  if (mode == "test" || mode == "grad") {
    return RunChecks(cases, mode == "grad");
  }
  if (mode == "perf") {
    return RunPerf(cases, threads);
  }
  if (mode == "support") {
    return RunSupport(cases);
  }
  std::fprintf(stderr, "usage: ops test|grad|perf|support [-o FILTER] [-t THREADS]\n");
  return 2;
}

}  // namespace
}  // namespace hearth::kernels::harness

int main(int argc, char** argv) {
  return hearth::kernels::harness::Main(std::vector<std::string>(argv, argv + argc));
}
