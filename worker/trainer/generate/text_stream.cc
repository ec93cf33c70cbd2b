#include "worker/trainer/generate/text_stream.h"

#include <algorithm>
#include <utility>

#include "common/base/status_macros.h"
#include "worker/trainer/generate/text_writer.h"

namespace hearth::trainer {
namespace {

// Tokens that are decoded again with each new one: a token may read otherwise behind others.
constexpr size_t kContext = 16;
// What some tokenizers give for bytes that are no character yet.
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
// Tokens until bytes that are no character go out as they are: a character has at most 4 bytes.
constexpr int kHeldTokens = 4;

}  // namespace

size_t IncompleteTail(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<uint8_t>(text[text.size() - back]);
    if ((byte & 0xC0) == 0x80) {
      continue;  // within a character
    }
    const size_t length = byte >= 0xF8   ? 1
                          : byte >= 0xF0 ? 4
                          : byte >= 0xE0 ? 3
                          : byte >= 0xC0 ? 2
                                         : 1;
    return length > back ? back : 0;
  }
  return 0;
}

TextStream::TextStream(dataset::Tokenizer& tokenizer,
                       absl::Span<const int32_t> before,
                       std::vector<std::string> stops)
    : tokenizer_(tokenizer), stops_(std::move(stops)) {
  before = before.last(std::min(before.size(), kContext));
  window_.assign(before.begin(), before.end());
  if (const auto text = tokenizer_.Decode(window_); text.ok()) {
    decoded_ = text->size();
  }
}

absl::Status TextStream::Decode(bool last) {
  HEARTH_ASSIGN_OR_RETURN(const std::string text, tokenizer_.Decode(window_));
  const bool whole = !text.ends_with(kReplacement);
  held_ = whole ? 0 : held_ + 1;
  if (!whole && !last && held_ < kHeldTokens) {
    return absl::OkStatus();
  }
  held_ = 0;
  if (text.size() > decoded_) {
    pending_ += text.substr(decoded_);
  }
  decoded_ = text.size();
  if (window_.size() >= 2 * kContext) {
    window_.erase(window_.begin(), window_.end() - kContext);
    HEARTH_ASSIGN_OR_RETURN(const std::string rest, tokenizer_.Decode(window_));
    decoded_ = rest.size();
  }
  return absl::OkStatus();
}

std::string TextStream::TakeCertain() {
  if (const size_t stop = FindStop(pending_, stops_); stop != std::string::npos) {
    stopped_ = true;
    pending_.resize(stop);
    return std::exchange(pending_, {});
  }
  size_t held = IncompleteTail(pending_);
  // What may be the beginning of a stop waits until more tells.
  for (const std::string& stop : stops_) {
    for (size_t n = std::min(stop.size() - 1, pending_.size()); n > held; --n) {
      if (pending_.compare(pending_.size() - n, n, stop, 0, n) == 0) {
        held = n;
      }
    }
  }
  std::string certain = pending_.substr(0, pending_.size() - held);
  pending_.erase(0, certain.size());
  return certain;
}

absl::StatusOr<std::string> TextStream::Add(int32_t token) {
  if (stopped_) {
    return std::string();
  }
  window_.push_back(token);
  HEARTH_RETURN_IF_ERROR(Decode(/*last=*/false));
  return TakeCertain();
}

absl::StatusOr<std::string> TextStream::Finish() {
  if (stopped_) {
    return std::string();
  }
  HEARTH_RETURN_IF_ERROR(Decode(/*last=*/true));
  std::string text = TakeCertain();
  return stopped_ ? text : text + std::exchange(pending_, {});
}

}  // namespace hearth::trainer
