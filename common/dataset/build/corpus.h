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
#include "common/dataset/build/encoded.h"
#include "common/dataset/build/near_duplicates.h"
#include "common/dataset/build/record_reader.h"
#include "common/dataset/build/text_files.h"
#include "common/dataset/byte_buffer.h"
#include "common/io/sha256.h"

namespace hearth::dataset {

// Whether a hash, uniform in 64 bits, lies in the lowest `fraction` of them.
bool IsBelow(uint64_t hash, double fraction);

// Reads with options.threads threads. Keeps the documents of a few batches in memory, and about 16
// bytes of each other one (with --near-duplicates 350). Not thread-safe.
class Corpus {
 public:
  struct Document {
    std::string_view text;  // in the batch
    // Half of the SHA-256 of the text where it decides something, else a hash that only tells texts
    // apart (Corpus::HashOf).
    std::array<uint64_t, 2> digest{};
    // What ForEach's `work` makes of it.
    int64_t tokens = 0;
    // Where it stands, for errors.
    const RecordParser* parser = nullptr;
    Record record;
    std::string Where() const { return parser->Where(record); }
  };
  using Step = std::function<absl::Status(Document&)>;
  // Documents that go through the steps together, with what is made of them.
  struct Documents {
    std::vector<Document> list;
    Encoded encoded;
  };
  using BatchStep = std::function<absl::Status(Documents&)>;

  // Both must outlive it. Counts what it skips in `report`.
  Corpus(const BuildOptions& options, BuildReport& report);

  // Finds the files, without those in folder `except`; to be called first. kInvalidArgument: a file
  // whose format needs --field, or an unknown --format.
  absl::Status Find(const std::string& except);

  // Reads all and chooses. kInvalidArgument: no text, or damaged input (with file and position);
  // kResourceExhausted: a file that unpacks to far too much.
  absl::Status Choose();

  // `phase` is for progress. Calls `work` for the chosen documents but the first `skip`, several
  // batches at a time, then each of `commits` in the order of the files' paths, one batch at a time
  // each. An error ends it; kCancelled of a commit ends it without one. kAborted: a file has
  // changed.
  absl::Status ForEach(std::string_view phase,
                       int64_t skip,
                       const BatchStep& work,
                       const std::vector<BatchStep>& commits);

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
    Finding finding = Finding::kText;
    int64_t bytes = 0;                     // of the text
    std::unique_ptr<Signature> signature;  // with --near-duplicates
    Document document;
  };
  struct Batch {
    std::vector<Item> items;
    ByteBuffer bytes;  // the records of `items`
    TextSpace space;
    std::vector<std::shared_ptr<const RecordParser>> parsers;  // theirs
    Documents documents;                                       // of ForEach, those of `items`
    int64_t files_bytes = 0;  // on disk, of what was read up to here
    void Clear();
  };
  // Where a document stands, in few bytes.
  struct Spot {
    uint32_t file = 0;  // index in files_
    uint32_t line = 0;  // 0: it is the whole file
  };
  class Reading;

  // Sets the document's text, of a conversation chat::ToText; false: it is no text.
  absl::StatusOr<bool> ReadDocument(Document& document, Batch& batch) const;
  std::array<uint64_t, 2> HashOf(Sha256& sha256, std::string_view text) const;
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
  const uint64_t seed_;                   // of HashOf
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
