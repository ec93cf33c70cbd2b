// What this machine offers the engine: device, libraries, what runs natively. For probe and doctor.
#pragma once

#include <string>
#include <vector>

#include "nlohmann/json.hpp"

namespace hearth::trainer {

// A finding of doctor; `remedy` is for people and empty when `ok`.
struct Check {
  std::string name;
  bool ok = false;
  std::string text;
  std::string remedy;
  bool note = false;  // of what is `ok`: something that this machine lacks and does without
};

// "ok", "note", "FAIL".
const char* CheckResult(const Check& check);

// Everything `probe` prints. `device` as in jobs (cpu, cuda:N); a GPU that cannot be used is
// reported under "gpu"."error". Rows of "gemm" and "attention_probe" have what the library answered
// ("status") and what that means for jobs ("result": ok | note | FAIL, "meaning").
nlohmann::json Probe(const std::string& device);

// Whether every product and attention kernel of `probe` is right, or is replaced by one that is.
bool ProductsAreRight(const nlohmann::json& probe);

// Probe's findings as checks.
std::vector<Check> Diagnose(const nlohmann::json& probe);

}  // namespace hearth::trainer
