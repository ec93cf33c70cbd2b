// Files of items: a JSON object a line, or a CSV record where the task has such a layout.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/io/env.h"
#include "common/spec/evaluation/evaluation_table.h"
#include "worker/trainer/evaluate/layouts.h"

namespace hearth::trainer {

struct ItemFileOptions {
  std::string path;      // .csv: CSV; all others .jsonl
  int64_t limit = 0;     // the first so many items; 0 = all
  int shots = 0;         // examples before each question, of its subject: the first in `examples`
  std::string examples;  // a file like `path`; only with shots > 0
};

// The items in the order of the file, their contexts whole: description, examples, question. A .csv
// has the subject of its name, without _test, _val or _dev at its end. The whole file is in memory.
// Errors: Env's; kInvalidArgument with file and line: not JSON or CSV, an item that its layout
// refuses, fewer examples of a subject than shots; no item at all; a task that takes no .csv or no
// examples.
absl::StatusOr<std::vector<Question>> ReadQuestions(const spec::EvaluationRow& row,
                                                    const ItemFileOptions& options,
                                                    Env& env);

}  // namespace hearth::trainer
