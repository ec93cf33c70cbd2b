// From text files to dataset folders: `jobctl dataset build`.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/dataset/format.h"
#include "common/io/env.h"

namespace hearth::dataset {

struct BuildOptions {
  // Files and folders; folders recursively, without following links inside them.
  std::vector<std::string> inputs;
  // For .jsonl files (also .gz, .zst): which field of each line is a document; a name, or names
  // with dots between them.
  std::string field;
  int threads = 0;        // that encode; 0: one for each CPU. The number changes no byte
  std::string tokenizer;  // one of the forms of TokenizerChoice (choose_tokenizer.h)
  std::string end_token;  // of a given tokenizer.json; empty: its tokenizer_config.json says it
  std::string out;        // folder to create; must be absent or empty
  std::string name;       // default: last component of `out`
  // > 0: documents are split by the hash of their text into <out>/train and <out>/validation; else
  // `out` is the dataset.
  double validation_fraction = 0;
  int64_t max_bytes = 0;  // of text taken; 0 = all. The choice is by hash of the path
  int64_t max_document_bytes = int64_t{16} << 20;  // larger files are skipped
  int64_t shard_tokens = int64_t{1} << 27;
  std::function<void(std::string_view)> progress;  // lines for people; may be empty
};

struct BuildReport {
  struct Output {
    std::string path;
    DatasetInfo info;
  };
  int64_t files = 0;       // taken
  int64_t binary = 0;      // skipped: not UTF-8 text, or a .gz or .zst that does not unpack
  int64_t duplicates = 0;  // skipped: same text as an earlier document
  int64_t oversized = 0;   // skipped: larger than max_document_bytes, or beyond max_bytes
  int64_t unreadable = 0;
  int64_t empty = 0;
  int64_t bytes = 0;  // of text taken
  std::vector<Output> outputs;
};

// Each text file (also .gz, .zst) is one document, each line of a .jsonl is one. The same input
// files give the same bytes out. A build that fails leaves `out` as it was. kInvalidArgument names
// the option, or file and line; kNotFound the input; kAlreadyExists `out`.
absl::StatusOr<BuildReport> Build(const BuildOptions& options, Env& env = Env::Real());

std::string ToText(const BuildReport& report);  // several lines, for people

}  // namespace hearth::dataset
