// ops test|grad|perf|support [-o FILTER] [-t THREADS] [-d cpu|cuda|cuda:N] [--order fixed|any]
//     [--isolate] [--no-skip]: checks and timings of the kernels.
//   -o FILTER  : cases whose "op/name" contains it
//   -d         : cuda = on GPU 0, against the CPU's double run of the same inputs (test, perf)
//   --order    : fixed = on a GPU only algorithms that repeat their bits (default of test);
//                any = the fastest (default of perf and support)
//   --isolate  : test on a GPU, each op in a process of its own with a limit of 60 s: a case that
//                faults or hangs hides no other
//   --no-skip  : test on a GPU: a check that is skipped there has failed
// Exit code: 0 all good, 1 a case failed or none ran, 2 usage, 3 the GPU's context was lost, 77 no
// GPU.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "kernels/harness/gpu.h"
#include "kernels/harness/harness.h"
#include "kernels/harness/isolate.h"

namespace hearth::kernels::harness {
namespace {

constexpr int kIsolatedLimitSeconds = 60;

struct Options {
  std::string mode;
  std::string filter;
  int threads = 1;
  bool cuda = false;
  int ordinal = 0;
  bool isolate = false;
  bool no_skip = false;
  std::string order;
  // Set in a process that RunIsolated started.
  std::string op;
  int from = 0;
  int progress = -1;
};

std::string Title(const OpCase& op_case) {
  return op_case.op + "/" + op_case.name;
}

void Print(const char* result, const std::string& title, const std::string& text) {
  std::printf("%-5s %s%s%s\n", result, title.c_str(), text.empty() ? "" : ": ", text.c_str());
  std::fflush(stdout);
}

int RunChecks(const std::vector<OpCase>& cases, bool gradients) {
  int failed = 0;
  int run = 0;
  for (const OpCase& op_case : cases) {
    if (op_case.perf || op_case.cuda_only || (gradients && op_case.inputs.empty())) {
      continue;
    }
    const std::string error = gradients ? CheckGradients(op_case) : CheckAgainstDouble(op_case);
    ++run;
    failed += error.empty() ? 0 : 1;
    Print(error.empty() ? "ok" : "FAIL", Title(op_case), error);
  }
  std::printf("%d cases, %d failed\n", run, failed);
  return failed == 0 && run > 0 ? 0 : 1;
}

// The case's index for the process that waits.
void Report(const Options& options, int32_t index) {
  if (options.progress >= 0 &&
      write(options.progress, &index, sizeof(index)) != static_cast<ssize_t>(sizeof(index))) {
    std::perror("progress");
  }
}

int RunGpuChecks(Gpu& gpu, const std::vector<OpCase>& cases, const Options& options) {
  constexpr const char* kResults[] = {"ok", "skip", "FAIL"};
  int counts[3] = {0, 0, 0};
  for (size_t i = static_cast<size_t>(options.from); i < cases.size(); ++i) {
    const OpCase& op_case = cases[i];
    if (op_case.perf || op_case.cpu_only) {
      continue;
    }
    Report(options, static_cast<int32_t>(i));
    for (const Storage& storage : Gpu::StoragesOf(op_case)) {
      const Outcome outcome = gpu.Check(op_case, storage);
      ++counts[outcome.kind];
      Print(kResults[outcome.kind], Title(op_case) + " [" + Gpu::NameOf(storage) + "]",
            outcome.text);
      if (outcome.kind == Outcome::kFailed && gpu.broken()) {
        std::printf("the GPU's context is lost: nothing more can run in this process%s\n",
                    options.op.empty() ? "; --isolate goes on with the next case" : "");
        return kExitBroken;
      }
    }
  }
  std::printf("%d checks on %s, %d failed, %d skipped\n", counts[0] + counts[1] + counts[2],
              gpu.properties().name.c_str(), counts[Outcome::kFailed], counts[Outcome::kSkipped]);
  // In a process of RunIsolated's an op may have no case for GPUs.
  const bool ran = counts[0] + counts[1] + counts[2] > 0 || !options.op.empty();
  const bool skipped = options.no_skip && counts[Outcome::kSkipped] > 0;
  return ran && !skipped && counts[Outcome::kFailed] == 0 ? 0 : 1;
}

void PrintRate(
    const OpCase& op_case, const char* direction, double seconds, double flops, double bytes) {
  if (seconds <= 0.0) {
    return;
  }
  const double rate = (flops > 0.0 ? flops : bytes) / seconds * 1e-9;
  std::printf("%-44s %-8s %10.3f ms %9.2f %s\n", Title(op_case).c_str(), direction, seconds * 1e3,
              rate, flops > 0.0 ? "GFLOP/s" : "GB/s");
}

// GB/s counts the traffic that the case states, else every buffer once: a lower bound of it.
int RunPerf(const std::vector<OpCase>& cases, int threads) {
  for (const OpCase& op_case : cases) {
    if (!op_case.perf || op_case.cuda_only) {
      continue;
    }
    const Timing timing = Measure(op_case, threads);
    PrintRate(op_case, "forward", timing.forward_s, op_case.forward_flops, timing.forward_bytes);
    PrintRate(op_case, "backward", timing.backward_s, op_case.backward_flops,
              timing.backward_bytes);
  }
  return 0;
}

bool HasFp8(const OpCase& op_case, bool operands) {
  for (const BufferSpec& spec : op_case.buffers) {
    if ((spec.dtype == DType::kE4M3 || spec.dtype == DType::kE5M2) &&
        (!operands || spec.quant_of.empty())) {
      return true;
    }
  }
  return false;
}

void PrintShare(const OpCase& op_case,
                const Ceilings& ceilings,
                const char* direction,
                double seconds,
                double flops,
                double bytes) {
  if (seconds <= 0.0) {
    return;
  }
  const bool fp8 = HasFp8(op_case, true);
  const double ceiling = flops <= 0.0 ? ceilings.copy_bytes_s
                         : fp8        ? ceilings.fp8_flops
                                      : ceilings.bf16_flops;
  const double rate = (flops > 0.0 ? flops : bytes) / seconds;
  std::printf("%-44s %-8s %10.4f ms %9.1f %-7s %5.1f %% of %s\n", Title(op_case).c_str(), direction,
              seconds * 1e3, rate * (flops > 0.0 ? 1e-12 : 1e-9), flops > 0.0 ? "TFLOP/s" : "GB/s",
              ceiling > 0.0 ? 100.0 * rate / ceiling : 0.0,
              flops <= 0.0 ? "copy"
              : fp8        ? "fp8"
                           : "bf16");
  std::fflush(stdout);
}

int RunGpuPerf(Gpu& gpu, const std::vector<OpCase>& cases) {
  const absl::StatusOr<Ceilings> ceilings = gpu.MeasureCeilings();
  if (!ceilings.ok()) {
    Print("FAIL", "ceilings", ceilings.status().ToString());
    return 1;
  }
  std::printf("%s: copy %.0f GB/s, 8192^3 bf16 %.0f TFLOP/s, fp8 %.0f TFLOP/s\n",
              gpu.properties().name.c_str(), ceilings->copy_bytes_s * 1e-9,
              ceilings->bf16_flops * 1e-12, ceilings->fp8_flops * 1e-12);
  int failed = 0;
  for (const OpCase& op_case : cases) {
    if (!op_case.perf || op_case.cpu_only) {
      continue;
    }
    const absl::StatusOr<GpuTiming> timing =
        gpu.Measure(op_case, Storage::Cuda(DType::kBF16, DType::kBF16));
    if (!timing.ok()) {
      const bool skipped = absl::IsUnimplemented(timing.status());
      failed += skipped ? 0 : 1;
      Print(skipped ? "skip" : "FAIL", Title(op_case), timing.status().ToString());
      if (!skipped && gpu.broken()) {
        return kExitBroken;
      }
      continue;
    }
    PrintShare(op_case, *ceilings, "forward", timing->forward_s, op_case.forward_flops,
               timing->forward_bytes);
    PrintShare(op_case, *ceilings, "backward", timing->backward_s, op_case.backward_flops,
               timing->backward_bytes);
  }
  return failed == 0 ? 0 : 1;
}

// Empty, or why not.
std::string TryOnCpu(const OpCase& op_case, DType storage) {
  if (storage == DType::kF64 && !op_case.double_reference) {
    return "no double version";
  }
  const Buffers buffers(op_case.buffers, storage, kSeed, false);
  return RunOnCpu(op_case, buffers, 1);
}

// `gpu` is null on a machine without one: then `why` says so.
int RunSupport(Gpu* gpu, const std::string& why, const std::vector<OpCase>& cases) {
  std::printf("%-44s %-8s %-8s %-9s %-9s %-9s\n", "case", "cpu f32", "cpu f64", "cuda f32",
              "cuda bf16", "cuda fp8");
  for (const OpCase& op_case : cases) {
    if (op_case.perf) {
      continue;
    }
    std::vector<std::pair<const char*, std::string>> columns = {
        {"cpu f32", TryOnCpu(op_case, DType::kF32)}, {"cpu f64", TryOnCpu(op_case, DType::kF64)}};
    for (DType a : {DType::kF32, DType::kBF16}) {
      const std::string text = op_case.cpu_only ? "for the CPU"
                               : gpu == nullptr
                                   ? why
                                   : gpu->Try(op_case, Storage::Cuda(a, DType::kF32)).text;
      columns.push_back({a == DType::kF32 ? "cuda f32" : "cuda bf16", text});
    }
    std::printf("%-44s", Title(op_case).c_str());
    for (const auto& [name, text] : columns) {
      std::printf(" %-8s", text.empty() ? "yes" : "no");
    }
    std::printf("  %s\n", !HasFp8(op_case, false) ? "-" : columns[3].second.empty() ? "yes" : "no");
    for (const auto& [name, text] : columns) {
      if (!text.empty() && (gpu != nullptr || text != why)) {
        std::printf("    %s: %s\n", name, text.c_str());
      }
    }
    std::fflush(stdout);
    if (gpu != nullptr && gpu->broken()) {
      std::printf("the GPU's context is lost\n");
      return kExitBroken;
    }
  }
  if (gpu == nullptr) {
    std::printf("no column cuda: %s\n", why.c_str());
  }
  return 0;
}

// False if `args` are not understood.
bool Parse(const std::vector<std::string>& args, Options& options) {
  options.mode = args.size() > 1 ? args[1] : "";
  for (size_t i = 2; i < args.size(); ++i) {
    const std::string& flag = args[i];
    if (flag == "--isolate" || flag == "--no-skip") {
      (flag == "--isolate" ? options.isolate : options.no_skip) = true;
      continue;
    }
    if (++i == args.size()) {
      return false;
    }
    absl::string_view value = args[i];
    bool good = true;
    if (flag == "-o") {
      options.filter = args[i];
    } else if (flag == "--op") {
      options.op = args[i];
    } else if (flag == "--order") {
      options.order = args[i];
      good = options.order == "fixed" || options.order == "any";
    } else if (flag == "-t") {
      good = absl::SimpleAtoi(value, &options.threads) && options.threads >= 1;
    } else if (flag == "--from") {
      good = absl::SimpleAtoi(value, &options.from) && options.from >= 0;
    } else if (flag == "--progress") {
      good = absl::SimpleAtoi(value, &options.progress);
    } else if (flag == "-d") {
      options.cuda = absl::ConsumePrefix(&value, "cuda");
      good = options.cuda ? value.empty() || (absl::ConsumePrefix(&value, ":") &&
                                              absl::SimpleAtoi(value, &options.ordinal))
                          : value == "cpu";
    } else {
      good = false;
    }
    if (!good) {
      return false;
    }
  }
  const std::string& mode = options.mode;
  return mode == "test" || mode == "support" || mode == "perf" || (mode == "grad" && !options.cuda);
}

int RunOnGpu(const Options& options,
             const std::vector<OpCase>& cases,
             const std::vector<std::string>& args) {
  if (options.isolate && options.mode == "test" && options.op.empty()) {
    return RunIsolated(cases, args, kIsolatedLimitSeconds);
  }
  absl::StatusOr<std::unique_ptr<Gpu>> gpu = Gpu::Open(
      options.ordinal, options.order.empty() ? options.mode == "test" : options.order == "fixed");
  if (!gpu.ok()) {
    std::printf("no GPU to run on: %s\n", gpu.status().ToString().c_str());
    return kExitNoGpu;
  }
  // As the engine does before it trains.
  if (const absl::Status chosen = (*gpu)->ChooseProducts(); !chosen.ok()) {
    std::printf("cannot try block-scaled products: %s\n", chosen.ToString().c_str());
    return 1;
  }
  return options.mode == "test"   ? RunGpuChecks(**gpu, cases, options)
         : options.mode == "perf" ? RunGpuPerf(**gpu, cases)
                                  : RunSupport(gpu->get(), "", cases);
}

int Main(const std::vector<std::string>& args) {
  Options options;
  if (!Parse(args, options)) {
    std::fprintf(stderr,
                 "usage: ops test|grad|perf|support [-o FILTER] [-t THREADS] "
                 "[-d cpu|cuda|cuda:N] [--order fixed|any] [--isolate] [--no-skip]\n"
                 "grad needs doubles: cpu only\n");
    return 2;
  }
  std::vector<OpCase> cases;
  for (OpCase& op_case : AllCases()) {
    if (Title(op_case).find(options.filter) != std::string::npos &&
        (options.op.empty() || op_case.op == options.op)) {
      cases.push_back(std::move(op_case));
    }
  }
  if (options.cuda) {
    return RunOnGpu(options, cases, args);
  }
  if (options.mode == "perf") {
    return RunPerf(cases, options.threads);
  }
  if (options.mode == "support") {
    const absl::StatusOr<std::unique_ptr<Gpu>> gpu = Gpu::Open(0, false);
    return RunSupport(gpu.ok() ? gpu->get() : nullptr, gpu.status().ToString(), cases);
  }
  return RunChecks(cases, options.mode == "grad");
}

}  // namespace
}  // namespace hearth::kernels::harness

int main(int argc, char** argv) {
  return hearth::kernels::harness::Main(std::vector<std::string>(argv, argv + argc));
}
