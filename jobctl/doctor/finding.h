// What doctor found, and how it is shown.
#pragma once

#include <string>
#include <vector>

#include "jobctl/views/output/output.h"

namespace hearth::jobctl {

enum class Verdict {
  kOk,
  kNote,     // a fact that may matter
  kWarning,  // works, but not as well as it could
  kFailed,   // does not work; the exit code is 1
};

struct Finding {
  Verdict verdict = Verdict::kOk;
  std::string check;   // "driver", "worker h-gpu0"
  std::string text;    // a sentence, with numbers
  std::string remedy;  // what to do; empty when there is nothing to do
};
using Findings = std::vector<Finding>;

// "ok", "note", "warning", "failed".
const char* VerdictName(Verdict verdict);

bool AnyFailed(const Findings& findings);

// Table: a line each, the remedy below it, continued at word boundaries beyond `columns` (0 = as
// wide as it comes). JSON and YAML: a list of {check, status, text, remedy}.
std::string Render(const Findings& findings, const OutputFormat& format, int columns = 0);

}  // namespace hearth::jobctl
