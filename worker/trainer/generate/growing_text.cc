#include "worker/trainer/generate/growing_text.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace hearth::trainer {
namespace {

constexpr int64_t kPassesAhead = 2;

}  // namespace

absl::Status GrowingText::Read(absl::Span<const int32_t> tokens, int64_t add) {
  const auto count = static_cast<int64_t>(tokens.size());
  const int64_t room = generator_.plan_options().length - count;
  if (count < 1 || room < 1 || add < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a text of ", count, " tokens leaves no room for ", add, " more; it may have ",
                     generator_.plan_options().length));
  }
  // At least the last token is read again: its pass predicts the next one.
  const auto shared =
      std::mismatch(tokens.begin(), tokens.begin() + std::min(count - 1, read_), text_.begin());
  const int64_t kept = shared.first - tokens.begin();
  left_ = std::min(add, room);
  // A pass over the beginning reads all of it at once.
  const int64_t at_once = std::min(count, generator_.plan_options().prompt);
  HEARTH_RETURN_IF_ERROR(kept >= at_once / 2 && kept > 0
                             ? generator_.Continue({tokens, 0, left_}, kept)
                             : Begin(tokens, left_));
  computed_ = kept >= at_once / 2 && kept > 0 ? count - kept : count;
  text_.assign(tokens.begin(), tokens.end());
  read_ = count;
  launched_ = 1;
  return absl::OkStatus();
}

absl::Status GrowingText::Begin(absl::Span<const int32_t> tokens, int64_t add) {
  const auto count = static_cast<int64_t>(tokens.size());
  const int64_t prompt = std::min(count, generator_.plan_options().prompt);
  const TextStart start = {tokens.first(static_cast<size_t>(prompt)), 0, add};
  HEARTH_RETURN_IF_ERROR(generator_.Begin(absl::MakeConstSpan(&start, 1)));
  // What Begin drew is dropped where the beginning goes on.
  return prompt == count ? absl::OkStatus() : generator_.Continue({tokens, 0, add}, prompt);
}

absl::StatusOr<int32_t> GrowingText::Next() {
  if (left_ == 0) {
    return -1;
  }
  while (launched_ <= std::min(kPassesAhead, left_ - 1)) {
    HEARTH_RETURN_IF_ERROR(generator_.Launch());
    ++launched_;
  }
  HEARTH_ASSIGN_OR_RETURN(const Drawn drawn, generator_.Take());
  --launched_;
  const int32_t token = drawn.tokens[0];
  left_ = token < 0 ? 0 : left_ - 1;
  if (token >= 0) {
    // The pass that drew it has read all before it.
    read_ = static_cast<int64_t>(text_.size());
    text_.push_back(token);
  }
  return token;
}

absl::StatusOr<StreamedText> StreamText(GrowingText& text,
                                        dataset::Tokenizer& tokenizer,
                                        absl::Span<const int32_t> tokens,
                                        const StreamOptions& options,
                                        const TextSink& sink) {
  HEARTH_RETURN_IF_ERROR(text.Read(tokens, options.tokens));
  TextStream stream(tokenizer, tokens, options.stops);
  StreamedText written;
  bool wanted = true;
  const auto give = [&](const std::string& piece) {
    written.text += piece;
    wanted = wanted && (piece.empty() || sink(piece));
  };
  for (int64_t i = 0; i < options.tokens && wanted && !stream.stopped(); ++i) {
    HEARTH_ASSIGN_OR_RETURN(const int32_t token, text.Next());
    if (token < 0) {
      break;  // as many as there is room for
    }
    if (token == tokenizer.eos() ||
        std::find(options.ends.begin(), options.ends.end(), token) != options.ends.end()) {
      written.end = TextEnd::kEndToken;
      break;
    }
    HEARTH_ASSIGN_OR_RETURN(const std::string piece, stream.Add(token));
    give(piece);
  }
  HEARTH_ASSIGN_OR_RETURN(const std::string rest, stream.Finish());
  give(rest);
  written.end = stream.stopped() ? TextEnd::kStop : written.end;
  return written;
}

}  // namespace hearth::trainer
