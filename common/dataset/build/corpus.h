// The documents of a dataset build: found, checked and without duplicates.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/dataset/build/build.h"
#include "common/dataset/build/near_duplicates.h"
#include "common/dataset/build/record_reader.h"
#include "common/dataset/build/text_files.h"

namespace hearth::dataset {

// Whether a hash, uniform in 64 bits, lies in the lowest `fraction` of them.
bool IsBelow(uint64_t hash, double fraction);

// Reads with options.threads threads. Keeps the documents of a few batches in memory, and about 16
// bytes of each other one (with --near-duplicates 350). Not thread-safe.
class Corpus {
 public:
  struct Document {
    std::string where;  // file, and line in it, for errors
    std::string text;
    std::array<uint64_t, 2> digest{};    // half of the SHA-256 of the text
    std::optional<Signature> signature;  // with --near-duplicates
    // What ForEach's `work` makes of it for `commit`.
    std::string packed;  // tokens as a shard has them
    std::string mask;    // of conversations: a byte for each token
    int64_t tokens = 0;
    int64_t text_bytes = 0;
  };
  using Step = std::function<absl::Status(Document&)>;

  // Both must outlive it. Counts what it skips in `report`.
  Corpus(const BuildOptions& options, BuildReport& report);

  // Finds the files, without those in folder `except`; to be called first. kInvalidArgument: a file
  // whose format needs --field, or an unknown --format.
  absl::Status Find(const std::string& except);

  // Reads all and chooses. kInvalidArgument: no text, or damaged input (with file and position);
  // kResourceExhausted: a file that unpacks to far too much.
  absl::Status Choose();

  // `phase` is for progress. Calls `work` for each chosen document but the first `skip`, several
  // at a time, then `commit` in the order of the files' paths, one at a time. An error of either
  // ends it; kCancelled of `commit` ends it without one. kAborted: a file has changed.
  absl::Status ForEach(std::string_view phase, int64_t skip, const Step& work, const Step& commit);

  const std::vector<TextFile>& files() const { return files_; }
  int threads() const { return threads_; }
  int64_t chosen() const { return chosen_; }  // documents

 private:
  struct Source {
    TextFile file;
    uint32_t index = 0;        // in files_
    std::vector<bool> chosen;  // by record
  };
  enum class Finding { kText, kBinary, kTooLong, kUnreadable };
  struct Item {
    size_t source = 0;
    std::shared_ptr<const RecordParser> parser;
    Record record;
    Finding finding = Finding::kText;
    int64_t bytes = 0;  // of the text
    Document document;
  };
  struct Batch {
    std::vector<Item> items;
    int64_t files_bytes = 0;  // on disk, of what was read up to here
  };
  // Where a document stands, in few bytes.
  struct Spot {
    uint32_t file = 0;  // index in files_
    uint32_t line = 0;  // 0: it is the whole file
  };
  class Reading;

  // The document of a record; a conversation is made into one text (chat::ToText).
  absl::StatusOr<std::string> TextOf(const RecordParser& parser, Record record) const;
  absl::Status Inspect(Batch& batch) const;
  void ChooseFrom(Batch& batch);
  bool Take(const Item& item);
  // If it is not, later items are compared with it too.
  bool IsNearDuplicate(const Item& item);
  std::string Text(const Spot& spot) const;
  void Say(std::string_view phase, const Batch& batch) const;
  // Whether a file, unless it is cut, is larger than what --max-bytes leaves of `taken`.
  bool IsOverCap(const TextFile& file, int64_t taken) const;

  const BuildOptions& options_;
  BuildReport& report_;
  const int threads_;
  const InputFormat* const format_;       // of files whose name does not say it; null: unknown
  std::atomic<int64_t> taken_bytes_ = 0;  // those in report_; read while others commit
  absl::flat_hash_set<std::array<uint64_t, 2>> seen_;  // digests
  std::optional<NearDuplicates> near_;
  std::vector<Spot> spots_;  // of what near_ has
  std::vector<TextFile> files_;
  int64_t files_bytes_ = 0;  // of all, on disk
  std::vector<Source> sources_;
  int64_t chosen_ = 0;
};

}  // namespace hearth::dataset
