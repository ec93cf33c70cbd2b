#include "common/tokenizer/bpe_tokenizer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/base/status_macros.h"
#include "common/tokenizer/unicode.h"

namespace hearth::tokenizer {

class BpeTokenizer::Pool {
 public:
  std::unique_ptr<Buffers> Take() {
    {
      absl::MutexLock lock(&mu_);
      if (!free_.empty()) {
        std::unique_ptr<Buffers> buffers = std::move(free_.back());
        free_.pop_back();
        return buffers;
      }
    }
    return std::make_unique<Buffers>();
  }

  void Give(std::unique_ptr<Buffers> buffers) {
    absl::MutexLock lock(&mu_);
    free_.push_back(std::move(buffers));
  }

 private:
  absl::Mutex mu_;
  std::vector<std::unique_ptr<Buffers>> free_ ABSL_GUARDED_BY(mu_);
};

BpeTokenizer::BpeTokenizer(TokenizerFile file)
    : file_(std::move(file)), pool_(std::make_unique<Pool>()) {}

BpeTokenizer::~BpeTokenizer() = default;

absl::StatusOr<std::unique_ptr<BpeTokenizer>> BpeTokenizer::Parse(std::string_view text,
                                                                  std::string_view file_name) {
  HEARTH_ASSIGN_OR_RETURN(TokenizerFile file, ParseTokenizerFile(text, file_name));
  std::unique_ptr<BpeTokenizer> tokenizer(new BpeTokenizer(std::move(file)));
  if (absl::Status status = tokenizer->Build(); !status.ok()) {
    return Annotate(status, absl::StrCat(std::string(file_name), ": pre_tokenizer"));
  }
  return tokenizer;
}

absl::Status BpeTokenizer::Build() {
  for (const PreTokenizerStep& step : file_.steps) {
    switch (step.kind) {
      case PreTokenizerStep::Kind::kPattern:
        HEARTH_RETURN_IF_ERROR(pre_tokenizer_.AddPattern(step.pattern));
        break;
      case PreTokenizerStep::Kind::kLiteral:
        HEARTH_RETURN_IF_ERROR(pre_tokenizer_.AddLiteral(step.pattern));
        break;
      case PreTokenizerStep::Kind::kDigits:
      case PreTokenizerStep::Kind::kDigitRuns:
        HEARTH_RETURN_IF_ERROR(
            pre_tokenizer_.AddDigits(step.kind == PreTokenizerStep::Kind::kDigits));
        break;
    }
  }
  BpeModel::Parts parts;
  parts.byte_tokens = file_.byte_tokens;
  parts.merges = std::move(file_.merges);
  if (file_.ignore_merges) {
    for (const int32_t id : file_.nameable) {
      parts.whole.emplace(file_.tokens[static_cast<size_t>(id)], id);
    }
  }
  file_.merges.clear();
  model_ = std::make_unique<BpeModel>(std::move(parts));
  for (const AddedToken& token : file_.added) {
    if (!token.normalized) {
      raw_.Add(token, token.content);
      continue;
    }
    // It is looked for in text that is normalised, so it has to be, too.
    std::string normal;
    const bool changed = file_.nfc && NormalizeNfc(token.content, &normal);
    normalized_.Add(token, changed ? normal : token.content);
  }
  return absl::OkStatus();
}

absl::Status BpeTokenizer::EncodePart(std::string_view text,
                                      Buffers* buffers,
                                      BpeModel::Output* out) const {
  std::string spaced;
  if (file_.prefix_space && text.front() != ' ') {
    spaced = absl::StrCat(" ", std::string(text));
    text = spaced;
  }
  const char* const end = text.data() + text.size();
  const absl::Status status = pre_tokenizer_.Cut(
      text, &buffers->regex,
      [&](std::string_view piece) { model_->Add(piece, end, &buffers->model, out); });
  // After an error, too: no piece may wait when its text is gone.
  model_->Finish(&buffers->model, out);
  return status;
}

absl::StatusOr<std::vector<int32_t>> BpeTokenizer::Encode(std::string_view text,
                                                          SpecialTokens special) const {
  if (const size_t bad = FirstInvalidUtf8(text); bad != text.size()) {
    return absl::InvalidArgumentError(absl::StrCat("byte ", bad, " of the text is not UTF-8"));
  }
  std::unique_ptr<Buffers> buffers = pool_->Take();
  // Filled by index, so it has a size and not a reserve; where that is too small, it grows.
  BpeModel::Output out;
  out.tokens.resize(text.size() / 3 + 64);
  const auto put = [&](int32_t id) {
    if (out.size == out.tokens.size()) {
      out.tokens.resize(out.size * 2);
    }
    out.tokens[out.size++] = id;
  };
  absl::Status status;
  // As in the tokenizers library: raw tokens, normalisation, the other added tokens, pieces.
  const auto encode_text = [&](std::string_view raw) {
    std::string normal;
    if (file_.nfc && NormalizeNfc(raw, &normal)) {
      raw = normal;
    }
    if (normalized_.empty()) {
      status.Update(EncodePart(raw, buffers.get(), &out));
      return;
    }
    for (const AddedTokens::Part& part : normalized_.Split(raw)) {
      if (part.id >= 0) {
        put(part.id);
      } else {
        status.Update(EncodePart(part.text, buffers.get(), &out));
      }
    }
  };
  if (special == SpecialTokens::kAdd) {
    for (const int32_t id : file_.prefix) {
      put(id);
    }
  }
  for (const AddedTokens::Part& part : raw_.Split(text)) {
    if (part.id >= 0) {
      put(part.id);
    } else {
      encode_text(part.text);
    }
  }
  if (special == SpecialTokens::kAdd) {
    for (const int32_t id : file_.suffix) {
      put(id);
    }
  }
  pool_->Give(std::move(buffers));
  HEARTH_RETURN_IF_ERROR(status);
  out.tokens.resize(out.size);
  return std::move(out.tokens);
}

absl::StatusOr<std::string> BpeTokenizer::Decode(absl::Span<const int32_t> tokens) const {
  std::string text;
  text.reserve(tokens.size() * 4);
  for (const int32_t token : tokens) {
    if (token < 0 || token >= vocab()) {
      return absl::InvalidArgumentError(
          absl::StrCat("token ", token, " is not below the vocabulary ", vocab()));
    }
    const std::string& bytes = file_.tokens[static_cast<size_t>(token)];
    if (bytes.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("token ", token, " is not in the vocabulary"));
    }
    text += bytes;
  }
  return text;
}

int32_t BpeTokenizer::IdOf(std::string_view added_token) const {
  for (const AddedToken& token : file_.added) {
    if (token.content == added_token) {
      return token.id;
    }
  }
  return -1;
}

}  // namespace hearth::tokenizer
