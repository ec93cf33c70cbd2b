// The documents of a dataset build: found, checked and without duplicates.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/dataset/build.h"
#include "common/dataset/text_files.h"
#include "common/io/env.h"

namespace hearth::dataset {

// A text file is a document; a .jsonl file (also .gz, .zst) has one in each line, in the field
// --field. Keeps one document in memory, 16 bytes and a bit of each. Not thread-safe.
class Corpus {
 public:
  struct Document {
    std::string where;  // file, and line of a .jsonl, for errors
    std::string text;
  };

  // All three must outlive it. Counts what it skips in `report`.
  Corpus(const BuildOptions& options, Env& env, BuildReport& report)
      : options_(options), env_(env), report_(report) {}

  // Reads all and chooses. kInvalidArgument: no text, a .jsonl without --field, a line that is no
  // JSON or lacks the field (with file and line); kResourceExhausted: a file that unpacks to far
  // too much.
  absl::Status Collect();

  // Calls `take` for each chosen document, files in the order of their paths; an error of `take`
  // ends it. kAborted: a file has changed.
  absl::Status ForEach(const std::function<absl::Status(Document)>& take);

 private:
  struct Source {
    std::string path;
    std::vector<bool> chosen;  // by line of a .jsonl; {true} for another file
  };

  absl::Status Add(const TextFile& file);
  bool Choose(std::string_view text);
  std::optional<std::string> ReadText(const std::string& path);
  // Calls `take(line number, text)`; the text is absent if the line was too long.
  absl::Status ForEachLine(
      const std::string& path,
      const std::function<absl::Status(int64_t, std::optional<std::string>)>& take) const;

  const BuildOptions& options_;
  Env& env_;
  BuildReport& report_;
  absl::flat_hash_set<std::array<uint64_t, 2>> seen_;  // of texts: half of the SHA-256
  std::vector<Source> sources_;
};

}  // namespace hearth::dataset
