#include "common/facts/tokenizer_facts.h"

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/units.h"
#include "common/dataset/format.h"
#include "common/dataset/tokenize/tokenizer.h"
#include "common/io/sha256.h"

namespace hearth::facts {
namespace {

using tokenizer::TokenizerKind;

constexpr size_t kRemembered = 16;
constexpr int64_t kMaxFileBytes = int64_t{256} << 20;

// A bit of what tokenizers treat differently: contractions, numbers, spaces, code, other scripts.
constexpr std::string_view kProbe =
    "The quick brown fox doesn't jump over 1234567 lazy dogs; it's 3.14 o'clock.\n\n"
    "    return {\"key\": [x_1, CamelCase]};\t// \r\n"
    "na\xC3\xAFve caf\xC3\xA9 \xE4\xBD\xA0\xE5\xA5\xBD\xE4\xB8\x96\xE7\x95\x8C "
    "\xE0\xA4\xB9\xE0\xA4\xBF\xE0\xA4\xA8\xE0\xA5\x8D\xE0\xA4\xA6\xE0\xA5\x80 "
    "\xF0\x9F\x98\x80  end";

std::string Join(const std::string& folder, std::string_view file) {
  return absl::StrCat(folder, "/", std::string(file));
}

void SetKind(const tokenizer::TokenizerKindRow& kind, v1::TokenizerFacts& facts) {
  facts.set_kind(std::string(kind.name));
}

}  // namespace

absl::StatusOr<v1::TokenizerFacts> TokenizerReader::Read(const std::string& path) {
  HEARTH_ASSIGN_OR_RETURN(const std::optional<dataset::TokenizerInfo> info,
                          dataset::RecordedTokenizer(path, env_));
  if (!info.has_value()) {
    return ReadHfFolder(path);
  }
  if (!info->known()) {
    return v1::TokenizerFacts();
  }
  const tokenizer::TokenizerKindRow& kind = tokenizer::RowOf(info->kind);
  v1::TokenizerFacts facts;
  if (info->file.empty()) {
    SetKind(kind, facts);
  } else {
    HEARTH_ASSIGN_OR_RETURN(facts, ReadFile(path, info->file, kind));
  }
  if (facts.vocab() == 0) {
    facts.set_vocab(info->vocab);
  }
  return facts;
}

absl::StatusOr<v1::TokenizerFacts> TokenizerReader::ReadHfFolder(const std::string& path) {
  const tokenizer::TokenizerKindRow& bpe = tokenizer::RowOf(TokenizerKind::kBpe);
  const tokenizer::TokenizerKindRow& model = tokenizer::RowOf(TokenizerKind::kSentencePiece);
  const bool has_model = env_.Exists(Join(path, model.file));
  if (env_.Exists(Join(path, bpe.file))) {
    HEARTH_ASSIGN_OR_RETURN(v1::TokenizerFacts facts, ReadFile(path, std::string(bpe.file), bpe));
    if (facts.kind() == bpe.name || !has_model) {
      return facts;
    }
  }
  return has_model ? ReadFile(path, std::string(model.file), model)
                   : absl::StatusOr<v1::TokenizerFacts>(v1::TokenizerFacts());
}

absl::StatusOr<v1::TokenizerFacts> TokenizerReader::ReadFile(
    const std::string& folder, const std::string& file, const tokenizer::TokenizerKindRow& kind) {
  const std::string path = Join(folder, file);
  HEARTH_ASSIGN_OR_RETURN(const int64_t size, env_.FileSize(path));
  if (size > kMaxFileBytes) {
    return absl::ResourceExhaustedError(absl::StrCat(path, ": ", FormatBytes(size),
                                                     ", a tokenizer's file has at most ",
                                                     FormatBytes(kMaxFileBytes)));
  }
  HEARTH_ASSIGN_OR_RETURN(const std::string bytes, env_.ReadFile(path));
  const std::string sha256 = Sha256Hex(bytes);
  const auto known =
      std::find_if(parsed_.begin(), parsed_.end(), [&](const v1::TokenizerFacts& facts) {
        return facts.sha256() == sha256 && facts.file() == file;
      });
  if (known != parsed_.end()) {
    return *known;
  }
  v1::TokenizerFacts facts;
  if (kind.probed) {
    facts = ParseBpe(bytes, path);
  } else {
    SetKind(kind, facts);
  }
  facts.set_file(file);
  facts.set_sha256(sha256);
  parsed_.push_front(facts);
  if (parsed_.size() > kRemembered) {
    parsed_.pop_back();
  }
  return facts;
}

v1::TokenizerFacts TokenizerReader::ParseBpe(const std::string& json,
                                             const std::string& path) const {
  v1::TokenizerFacts facts;
  const auto tokenizer = dataset::NewBpeTokenizer(json, path, -1);
  const absl::StatusOr<std::vector<int32_t>> probe =
      tokenizer.ok() ? (*tokenizer)->Encode(kProbe) : tokenizer.status();
  if (!probe.ok()) {
    SetKind(tokenizer::RowOf(TokenizerKind::kOther), facts);
    return facts;
  }
  SetKind(tokenizer::RowOf(TokenizerKind::kBpe), facts);
  facts.set_vocab((*tokenizer)->vocab());
  facts.mutable_probe()->Assign(probe->begin(), probe->end());
  return facts;
}

}  // namespace hearth::facts
