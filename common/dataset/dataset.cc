#include "common/dataset/dataset.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/table_rows.h"

namespace hearth::dataset {
namespace {

static_assert(std::endian::native == std::endian::little,
              "token files are read through memory maps");

// llm.c: 256 int32 of header, of which magic, version and token count are used.
constexpr int64_t kLlmcHeaderBytes = int64_t{256} * 4;
struct LlmcVariant {
  int32_t magic;
  int32_t version;
  TokenWidth width;
};
constexpr LlmcVariant kLlmcVariants[] = {{20240520, 1, TokenWidth::kUint16},
                                         {20240801, 7, TokenWidth::kUint32}};

int32_t LoadInt32(const uint8_t* p) {
  int32_t v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

std::string FileName(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

// Widens `n` tokens; returns the index of the first that is not below `vocab` (0 = no bound), or
// -1. A uint32 token that does not fit int32 counts as out of range whatever the bound.
template <typename T>
int64_t Widen(const uint8_t* from, int64_t n, int32_t vocab, int32_t* out) {
  const uint32_t bound = vocab > 0 ? static_cast<uint32_t>(vocab) : uint32_t{1} << 31;
  uint32_t largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    T token;
    std::memcpy(&token, from + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    largest = std::max(largest, static_cast<uint32_t>(token));
    out[i] = static_cast<int32_t>(token);
  }
  // The usual case needs no second look: one maximum instead of a comparison for each token.
  if (largest < bound) {
    return -1;
  }
  for (int64_t i = 0; i < n; ++i) {
    if (static_cast<uint32_t>(out[i]) >= bound) {
      return i;
    }
  }
  return -1;
}

// Appends base + the positions behind the tokens equal to `end` among `n` ones.
template <typename T>
void AppendEnds(const uint8_t* from, int64_t n, T end, int64_t base, std::vector<int64_t>& ends) {
  constexpr int64_t kBlock = 256;
  const auto at = [from](int64_t i) {
    T token;
    std::memcpy(&token, from + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    return token;
  };
  int64_t i = 0;
  for (; i + kBlock <= n; i += kBlock) {
    // Most blocks have none. Without a branch inside, the compiler compares many tokens at a time.
    T found = 0;
    for (int64_t k = 0; k < kBlock; ++k) {
      found |= static_cast<T>(at(i + k) == end);
    }
    for (int64_t k = 0; found != 0 && k < kBlock; ++k) {
      if (at(i + k) == end) {
        ends.push_back(base + i + k + 1);
      }
    }
  }
  for (; i < n; ++i) {
    if (at(i) == end) {
      ends.push_back(base + i + 1);
    }
  }
}

}  // namespace

std::string_view KindName(Kind kind) {
  static constexpr EnumNames<Kind, Kind::kRawBin> kNames = {"dataset", "llmc_bin", "raw_bin"};
  return kNames[kind];
}

absl::StatusOr<std::unique_ptr<Dataset>> Dataset::Open(const std::string& path, Env& env) {
  std::unique_ptr<Dataset> dataset(new Dataset);
  dataset->path_ = path;
  if (!env.Exists(path)) {
    return absl::NotFoundError(absl::StrCat(path, ": no such dataset"));
  }
  if (env.IsDirectory(path)) {
    HEARTH_RETURN_IF_ERROR(dataset->OpenFolder(env));
  } else {
    HEARTH_RETURN_IF_ERROR(dataset->OpenBin(env));
  }
  return dataset;
}

absl::Status Dataset::OpenFolder(Env& env) {
  kind_ = Kind::kFolder;
  const std::string meta = absl::StrCat(path_, "/", std::string(kDatasetFileName));
  if (!env.Exists(meta)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path_, ": not a dataset: it has no ", std::string(kDatasetFileName)));
  }
  HEARTH_ASSIGN_OR_RETURN(const std::string text, env.ReadFile(meta));
  HEARTH_ASSIGN_OR_RETURN(info_, ParseDatasetInfo(text, meta));
  for (const ShardInfo& shard : info_.shards) {
    const std::string file = absl::StrCat(path_, "/", shard.file);
    if (!env.Exists(file)) {
      return absl::NotFoundError(absl::StrCat(file, ": shard named in ", meta, " is missing"));
    }
    HEARTH_RETURN_IF_ERROR(AddShard(env, file, 0, shard.tokens));
    if (info_.has_mask()) {
      HEARTH_RETURN_IF_ERROR(AddMask(env, absl::StrCat(path_, "/", shard.mask)));
    }
  }
  return absl::OkStatus();
}

absl::Status Dataset::OpenBin(Env& env) {
  HEARTH_ASSIGN_OR_RETURN(const int64_t size, env.FileSize(path_));
  if (size == 0) {
    return absl::DataLossError(absl::StrCat(path_, ": empty file"));
  }
  HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<MappedFile> map, env.Map(path_));
  info_.name = FileName(path_);
  const uint8_t* bytes = map->bytes().data();
  // By content, before the name is looked at: files of llm.c are called *.bin, as raw ones are.
  for (const LlmcVariant& variant : kLlmcVariants) {
    if (size < 4 || LoadInt32(bytes) != variant.magic) {
      continue;
    }
    if (size < kLlmcHeaderBytes) {
      return absl::DataLossError(absl::StrCat(path_, ": ", size, " bytes, shorter than the ",
                                              kLlmcHeaderBytes, "-byte llm.c header"));
    }
    if (LoadInt32(bytes + 4) != variant.version) {
      return absl::InvalidArgumentError(absl::StrCat(path_, ": llm.c version ",
                                                     LoadInt32(bytes + 4),
                                                     " at offset 4, expected ", variant.version));
    }
    const int64_t count = LoadInt32(bytes + 8);
    if (count <= 0) {
      return absl::DataLossError(absl::StrCat(path_, ": token count ", count, " at offset 8"));
    }
    kind_ = Kind::kLlmcBin;
    info_.width = variant.width;
    info_.tokens = count;
    info_.shards.push_back({info_.name, count, ""});
    return AddShard(env, path_, kLlmcHeaderBytes, count);
  }
  if (!absl::EndsWith(path_, ".bin")) {
    return absl::InvalidArgumentError(absl::StrCat(
        path_, ": not a dataset: neither a folder, nor an llm.c file, nor named *.bin"));
  }
  if (size % 2 != 0) {
    return absl::DataLossError(absl::StrCat(path_, ": truncated: ", size,
                                            " bytes is not a whole number of uint16 tokens"));
  }
  kind_ = Kind::kRawBin;
  info_.width = TokenWidth::kUint16;
  info_.tokens = size / 2;
  info_.shards.push_back({info_.name, info_.tokens, ""});
  return AddShard(env, path_, 0, info_.tokens);
}

absl::Status Dataset::AddShard(Env& env, std::string path, int64_t header, int64_t tokens) {
  HEARTH_ASSIGN_OR_RETURN(const int64_t size, env.FileSize(path));
  const int64_t expected = header + tokens * Bytes(info_.width);
  if (size != expected) {
    return absl::DataLossError(absl::StrCat(path, ": ", size < expected ? "truncated" : "too long",
                                            ": ", size, " bytes, expected ", expected, " (", tokens,
                                            " tokens of ", Bytes(info_.width), " bytes",
                                            header > 0 ? " after the header)" : ")"));
  }
  Shard shard;
  HEARTH_ASSIGN_OR_RETURN(shard.map, env.Map(path));
  // The size may have changed since it was asked for, and a read behind the end of a map kills the
  // process.
  if (static_cast<int64_t>(shard.map->bytes().size()) < expected) {
    return absl::DataLossError(absl::StrCat(path, ": shrank while it was being opened"));
  }
  shard.path = std::move(path);
  shard.data = shard.map->bytes().data() + header;
  shard.header = header;
  shard.first = shards_.empty() ? 0 : shards_.back().first + shards_.back().tokens;
  shard.tokens = tokens;
  shards_.push_back(std::move(shard));
  return absl::OkStatus();
}

absl::Status Dataset::AddMask(Env& env, const std::string& path) {
  Shard& shard = shards_.back();
  if (!env.Exists(path)) {
    return absl::NotFoundError(absl::StrCat(path, ": the mask of ", shard.path, " is missing"));
  }
  HEARTH_ASSIGN_OR_RETURN(shard.mask_map, env.Map(path));
  const auto bytes = shard.mask_map->bytes();
  if (static_cast<int64_t>(bytes.size()) != shard.tokens) {
    return absl::DataLossError(absl::StrCat(path, ": ", bytes.size(), " bytes, expected ",
                                            shard.tokens, ", one for each token"));
  }
  shard.mask = bytes.data();
  return absl::OkStatus();
}

size_t Dataset::ShardOf(int64_t token) const {
  const auto shard =
      std::upper_bound(shards_.begin(), shards_.end(), token,
                       [](int64_t at, const Shard& s) { return at < s.first + s.tokens; });
  return static_cast<size_t>(shard - shards_.begin());
}

std::vector<RecordedFile> Dataset::RecordedFiles() const {
  std::vector<RecordedFile> files;
  for (size_t i = 0; i < shards_.size(); ++i) {
    const ShardInfo& shard = info_.shards[i];
    if (!shard.sha256.empty()) {
      files.push_back({shards_[i].path, {shard.sha256}});
    }
    if (!shard.mask_sha256.empty()) {
      files.push_back({absl::StrCat(path_, "/", shard.mask), {shard.mask_sha256}});
    }
  }
  return files;
}

void Dataset::FindEnds(int64_t first, int64_t last, std::vector<int64_t>& ends) const {
  if (has_mask()) {
    // A mask says where documents end. The end token may occur inside a conversation.
    VisitMask(first, last - first, [&](int64_t i, uint8_t mask) {
      if ((mask & kMaskEnds) != 0) {
        ends.push_back(first + i + 1);
      }
    });
    return;
  }
  if (info_.eos < 0) {
    return;
  }
  for (const Shard& shard : shards_) {
    const int64_t begin = std::max(first, shard.first);
    const int64_t end = std::min(last, shard.first + shard.tokens);
    if (begin >= end) {
      continue;
    }
    const uint8_t* from = shard.data + (begin - shard.first) * Bytes(info_.width);
    if (info_.width == TokenWidth::kUint16) {
      AppendEnds(from, end - begin, static_cast<uint16_t>(info_.eos), begin, ends);
    } else {
      AppendEnds(from, end - begin, static_cast<uint32_t>(info_.eos), begin, ends);
    }
  }
}

absl::Status Dataset::Read(int64_t first, absl::Span<int32_t> out, int32_t vocab) const {
  const int64_t count = static_cast<int64_t>(out.size());
  // Not first + count, which may overflow.
  if (first < 0 || first > tokens() - count) {
    return absl::OutOfRangeError(
        absl::StrCat(path_, ": ", count, " tokens from ", first, " on, of ", tokens()));
  }
  auto shard = shards_.begin() + static_cast<std::ptrdiff_t>(ShardOf(first));
  int64_t done = 0;
  while (done < count) {
    const int64_t within = first + done - shard->first;
    const int64_t n = std::min(count - done, shard->tokens - within);
    const uint8_t* from = shard->data + within * Bytes(info_.width);
    int32_t* to = out.data() + done;
    const int64_t bad = info_.width == TokenWidth::kUint16 ? Widen<uint16_t>(from, n, vocab, to)
                                                           : Widen<uint32_t>(from, n, vocab, to);
    if (bad >= 0) {
      return absl::DataLossError(
          absl::StrCat(shard->path, ": token ", static_cast<uint32_t>(to[bad]), " at byte offset ",
                       shard->header + (within + bad) * Bytes(info_.width),
                       " is not below the vocabulary ", vocab > 0 ? vocab : 0));
    }
    done += n;
    ++shard;
  }
  return absl::OkStatus();
}

}  // namespace hearth::dataset
