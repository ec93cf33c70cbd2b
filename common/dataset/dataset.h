// Reading token datasets: Hearth folders, llm.c .bin and headerless nanoGPT .bin, through memory
// maps.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/dataset/format.h"
#include "common/io/env.h"
#include "common/io/verified_files.h"

namespace hearth::dataset {

enum class Kind { kFolder, kLlmcBin, kRawBin };

// As in PathInfo.kind: dataset | llmc_bin | raw_bin.
std::string_view KindName(Kind kind);

// A stream of tokens, the shards one after the other. Thread-safe after Open; the maps live as long
// as the object.
class Dataset {
 public:
  // `path`: a folder with dataset.json, or a .bin file whose first bytes tell llm.c (magic 20240520
  // uint16, 20240801 uint32) from headerless uint16. kNotFound: no such file or shard;
  // kInvalidArgument: bad dataset.json, not a dataset; kDataLoss: truncated (file, size found and
  // size expected). Token values are checked when they are read.
  static absl::StatusOr<std::unique_ptr<Dataset>> Open(const std::string& path,
                                                       Env& env = Env::Real());

  Kind kind() const { return kind_; }
  const std::string& path() const { return path_; }
  // For .bin files: vocab 0 (not recorded), no tokenizer.
  const DatasetInfo& info() const { return info_; }
  // Files whose SHA-256 dataset.json records; none of a .bin file.
  std::vector<RecordedFile> RecordedFiles() const;
  int64_t tokens() const { return info_.tokens; }
  int32_t vocab() const { return info_.vocab; }
  // Whether it says which tokens count in the loss.
  bool has_mask() const { return info_.has_mask(); }

  // Copies tokens [first, first + out.size()) to `out`; allocates nothing. `vocab` > 0: kDataLoss
  // naming file and byte offset of the first token that is not below it. kOutOfRange: past the end.
  absl::Status Read(int64_t first, absl::Span<int32_t> out, int32_t vocab) const;

  // Calls visit(i, mask) for tokens first + i of [first, first + count), with the bits of format.h.
  // The dataset has a mask, and the range lies in the stream.
  template <typename Visit>
  void VisitMask(int64_t first, int64_t count, const Visit& visit) const {
    size_t shard = ShardOf(first);
    for (int64_t done = 0; done < count; ++shard) {
      const int64_t within = first + done - shards_[shard].first;
      const int64_t end = std::min(count, done + shards_[shard].tokens - within);
      for (const uint8_t* mask = shards_[shard].mask + within; done < end; ++done) {
        visit(done, *mask++);
      }
    }
  }

  // Appends the positions behind which documents end among tokens [first, last): what the mask
  // says, else behind the end tokens (info().eos). None where neither is recorded. [first, last)
  // lies in the stream.
  void FindEnds(int64_t first, int64_t last, std::vector<int64_t>& ends) const;

 private:
  struct Shard {
    std::string path;
    std::unique_ptr<MappedFile> map;
    const uint8_t* data = nullptr;  // first token
    int64_t header = 0;             // bytes before it
    std::unique_ptr<MappedFile> mask_map;
    const uint8_t* mask = nullptr;  // of the first token; null: there is none
    int64_t first = 0;              // index of its first token in the stream
    int64_t tokens = 0;
  };

  Dataset() = default;
  absl::Status OpenFolder(Env& env);
  absl::Status OpenBin(Env& env);
  absl::Status AddShard(Env& env, std::string path, int64_t header, int64_t tokens);
  // To the last shard. kDataLoss: it has another size.
  absl::Status AddMask(Env& env, const std::string& path);
  size_t ShardOf(int64_t token) const;

  Kind kind_ = Kind::kFolder;
  std::string path_;
  DatasetInfo info_;
  std::vector<Shard> shards_;
};

// What `jobctl dataset inspect` prints.
struct Summary {
  Kind kind = Kind::kFolder;
  std::string path;
  DatasetInfo info;
  int64_t bytes = 0;         // of all shards
  int32_t max_token = -1;    // largest token present; -1 = not scanned
  bool checksums_ok = true;  // false when a recorded SHA-256 differs
  std::vector<std::string> problems;
};

// Opens `path`; with `scan` also reads every token (range, largest) and verifies recorded
// checksums. Errors: those of Dataset::Open. What the scan finds goes to `problems`.
absl::StatusOr<Summary> Inspect(const std::string& path, bool scan, Env& env = Env::Real());

std::string ToText(const Summary& summary);  // several lines, for people
std::string ToJson(const Summary& summary);

}  // namespace hearth::dataset
