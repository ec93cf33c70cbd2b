// libFuzzer's entry: HEARTH_FUZZ_TARGET names the target.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "common/base/system.h"
#include "tests/fuzz/targets.h"

namespace {

const hearth::fuzz::Target& Chosen() {
  const char* const name = hearth::GetEnv("HEARTH_FUZZ_TARGET");
  const auto* const target = name == nullptr ? nullptr : hearth::fuzz::FindTarget(name);
  if (target == nullptr) {
    std::fprintf(stderr, "HEARTH_FUZZ_TARGET is one of:\n");
    for (const hearth::fuzz::Target& one : hearth::fuzz::Targets()) {
      std::fprintf(stderr, "%.*s\n", static_cast<int>(one.name.size()), one.name.data());
    }
    std::exit(2);
  }
  return *target;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const hearth::fuzz::Target& target = Chosen();
  target.run({reinterpret_cast<const char*>(data), size});
  return 0;
}
