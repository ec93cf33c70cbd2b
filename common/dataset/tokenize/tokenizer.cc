#include "common/dataset/tokenize/tokenizer.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/table_rows.h"
#include "common/dataset/packed_tokens.h"
#include "common/tokenizer/bpe_tokenizer.h"

namespace hearth::dataset {
namespace {

constexpr int32_t kByteEos = 256;
constexpr int32_t kByteVocab = 257;

class BytesTokenizer : public Tokenizer {
 public:
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text) override {
    std::vector<int32_t> tokens(text.size());
    for (size_t i = 0; i < text.size(); ++i) {
      tokens[i] = static_cast<uint8_t>(text[i]);
    }
    return tokens;
  }

  absl::StatusOr<int64_t> Pack(std::string_view text, TokenWidth width, ByteBuffer* out) override {
    char* const to = out->Extend(text.size() * static_cast<size_t>(Bytes(width)));
    PackTokens(width,
               absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(text.data()), text.size()), to);
    return static_cast<int64_t>(text.size());
  }

  absl::StatusOr<std::string> Decode(absl::Span<const int32_t> tokens) override {
    std::string text;
    text.reserve(tokens.size());
    for (const int32_t token : tokens) {
      if (token < 0 || token >= kByteVocab) {
        return absl::InvalidArgumentError(
            absl::StrCat("token ", token, " is not below the vocabulary ", kByteVocab));
      }
      if (token != kByteEos) {
        text.push_back(static_cast<char>(token));
      }
    }
    return text;
  }

  absl::StatusOr<std::string> BytesOf(int32_t token) override {
    return Decode(absl::MakeConstSpan(&token, 1));
  }

  int32_t vocab() const override { return kByteVocab; }
  int32_t eos() const override { return kByteEos; }
  TokenizerInfo info() const override { return {TokenizerKind::kBytes, "", kByteVocab, kByteEos}; }
};

class BpeAdapter : public Tokenizer {
 public:
  BpeAdapter(std::unique_ptr<tokenizer::BpeTokenizer> bpe, int32_t eos)
      : bpe_(std::move(bpe)), eos_(eos) {}

  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text) override {
    return bpe_->Encode(text, tokenizer::BpeTokenizer::SpecialTokens::kNone);
  }

  absl::StatusOr<std::string> Decode(absl::Span<const int32_t> tokens) override {
    std::vector<int32_t> kept;
    kept.reserve(tokens.size());
    // The end of a document is no part of its text, as with the other kinds.
    std::copy_if(tokens.begin(), tokens.end(), std::back_inserter(kept),
                 [this](int32_t token) { return token != eos_; });
    return bpe_->Decode(kept);
  }

  absl::StatusOr<std::string> BytesOf(int32_t token) override {
    return bpe_->Decode(absl::MakeConstSpan(&token, 1));
  }

  int32_t vocab() const override { return bpe_->vocab(); }
  int32_t eos() const override { return eos_; }
  TokenizerInfo info() const override {
    return {TokenizerKind::kBpe, std::string(tokenizer::kBpeFileName), bpe_->vocab(), eos_};
  }

 private:
  const std::unique_ptr<tokenizer::BpeTokenizer> bpe_;
  const int32_t eos_;
};

using OpenedTokenizer = absl::StatusOr<std::unique_ptr<Tokenizer>>;

OpenedTokenizer OpenBytes(std::string_view /*bytes*/, std::string_view /*path*/, int32_t /*eos*/) {
  return NewBytesTokenizer();
}

OpenedTokenizer OpenSentencePiece(std::string_view bytes,
                                  std::string_view /*path*/,
                                  int32_t /*eos*/) {
  return TokenizerProcess::Start(bytes);
}

// How one of each kind that is known is opened: from the bytes of its file (empty: it has none),
// the file's path for errors, and the end token.
struct Opener {
  TokenizerKind kind;
  OpenedTokenizer (*open)(std::string_view bytes, std::string_view path, int32_t eos);
};
constexpr Opener kOpeners[] = {
    {TokenizerKind::kBytes, OpenBytes},
    {TokenizerKind::kSentencePiece, OpenSentencePiece},
    {TokenizerKind::kBpe, NewBpeTokenizer},
};

}  // namespace

absl::StatusOr<int64_t> Tokenizer::Pack(std::string_view text, TokenWidth width, ByteBuffer* out) {
  HEARTH_ASSIGN_OR_RETURN(const std::vector<int32_t> tokens, Encode(text));
  HEARTH_RETURN_IF_ERROR(PackChecked(tokens, vocab(), width, out));
  return static_cast<int64_t>(tokens.size());
}

absl::StatusOr<std::string> Tokenizer::BytesOf(int32_t /*token*/) {
  return absl::UnimplementedError("the bytes of a single token are not known");
}

std::unique_ptr<Tokenizer> NewBytesTokenizer() {
  return std::make_unique<BytesTokenizer>();
}

absl::StatusOr<std::unique_ptr<Tokenizer>> NewBpeTokenizer(std::string_view json,
                                                           std::string_view file_name,
                                                           int32_t eos) {
  HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<tokenizer::BpeTokenizer> bpe,
                          tokenizer::BpeTokenizer::Parse(json, file_name));
  return std::unique_ptr<Tokenizer>(std::make_unique<BpeAdapter>(std::move(bpe), eos));
}

absl::Status PackChecked(absl::Span<const int32_t> tokens,
                         int32_t vocab,
                         TokenWidth width,
                         ByteBuffer* out) {
  uint32_t largest = 0;  // a negative one is very large
  for (const int32_t token : tokens) {
    largest = std::max(largest, static_cast<uint32_t>(token));
  }
  if (!tokens.empty() && largest >= static_cast<uint32_t>(vocab)) {
    return absl::InternalError(absl::StrCat("token ", static_cast<int32_t>(largest),
                                            " is not below the vocabulary ", vocab));
  }
  PackTokens(width, tokens, out->Extend(tokens.size() * static_cast<size_t>(Bytes(width))));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Tokenizer>> OpenTokenizer(const TokenizerInfo& info,
                                                         const std::string& dir,
                                                         Env& env) {
  const Opener* const opener = FindRow(kOpeners, &Opener::kind, info.kind);
  if (opener == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(dir, ": the dataset records no tokenizer"));
  }
  const std::string path = absl::StrCat(dir, "/", info.file);
  std::string bytes;
  if (!info.file.empty()) {
    HEARTH_ASSIGN_OR_RETURN(bytes, env.ReadFile(path));
  }
  return opener->open(bytes, path, info.eos);
}

absl::Status CopyTokenizer(const std::string& from, const std::string& to, Env& env) {
  const std::string meta = absl::StrCat(from, "/", std::string(kDatasetFileName));
  if (!env.Exists(meta)) {
    return absl::OkStatus();
  }
  HEARTH_ASSIGN_OR_RETURN(const std::string text, env.ReadFile(meta));
  HEARTH_ASSIGN_OR_RETURN(const DatasetInfo info, ParseDatasetInfo(text, meta));
  if (!info.tokenizer.known()) {
    return absl::OkStatus();
  }
  if (!info.tokenizer.file.empty()) {
    HEARTH_ASSIGN_OR_RETURN(const std::string model,
                            env.ReadFile(absl::StrCat(from, "/", info.tokenizer.file)));
    HEARTH_RETURN_IF_ERROR(
        env.WriteFileAtomically(absl::StrCat(to, "/", info.tokenizer.file), model));
  }
  for (const std::string_view name : kCompanionNames) {
    const std::string companion = absl::StrCat(from, "/", std::string(name));
    if (env.Exists(companion)) {
      HEARTH_ASSIGN_OR_RETURN(const std::string bytes, env.ReadFile(companion));
      HEARTH_RETURN_IF_ERROR(
          env.WriteFileAtomically(absl::StrCat(to, "/", std::string(name)), bytes));
    }
  }
  // Last, so that the files that it names are there when it is found.
  return env.WriteFileAtomically(absl::StrCat(to, "/", std::string(kTokenizerFileName)),
                                 ToJson(info.tokenizer));
}

absl::StatusOr<std::optional<TokenizerInfo>> RecordedTokenizer(const std::string& dir, Env& env) {
  const std::string file = absl::StrCat(dir, "/", std::string(kTokenizerFileName));
  if (env.Exists(file)) {
    HEARTH_ASSIGN_OR_RETURN(const std::string text, env.ReadFile(file));
    HEARTH_ASSIGN_OR_RETURN(TokenizerInfo info, ParseTokenizerInfo(text, file));
    return std::optional<TokenizerInfo>(std::move(info));
  }
  const std::string meta = absl::StrCat(dir, "/", std::string(kDatasetFileName));
  if (!env.Exists(meta)) {
    return std::optional<TokenizerInfo>();
  }
  HEARTH_ASSIGN_OR_RETURN(const std::string text, env.ReadFile(meta));
  HEARTH_ASSIGN_OR_RETURN(DatasetInfo info, ParseDatasetInfo(text, meta));
  return std::optional<TokenizerInfo>(std::move(info.tokenizer));
}

}  // namespace hearth::dataset
