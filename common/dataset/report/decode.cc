#include "common/dataset/report/decode.h"

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/base/status_macros.h"
#include "common/dataset/dataset.h"
#include "common/dataset/tokenize/tokenizer.h"
#include "nlohmann/json.hpp"

namespace hearth::dataset {
namespace {

constexpr int64_t kBlock = int64_t{1} << 16;

// Finds documents in the stream by where they end.
class Documents {
 public:
  explicit Documents(const Dataset& data) : data_(data) {}

  // The first token after the document to which token `from` belongs; `ended`: it has an end.
  int64_t EndOf(int64_t from, bool* ended) {
    int64_t count = 1;
    const int64_t end = Pass(from, data_.tokens(), &count);
    *ended = count == 0;
    return end;
  }

  // The position at which `*documents` documents have ended, `until` at most. Afterwards
  // `*documents` is the number of those that are still to end.
  int64_t Pass(int64_t from, int64_t until, int64_t* documents) {
    while (*documents > 0 && from < until) {
      const int64_t n = std::min(kBlock, until - from);
      ends_.clear();
      data_.FindEnds(from, from + n, ends_);
      const auto found = static_cast<int64_t>(ends_.size());
      if (found >= *documents) {
        from = ends_[static_cast<size_t>(*documents - 1)];
        *documents = 0;
      } else {
        *documents -= found;
        from += n;
      }
    }
    return from;
  }

 private:
  const Dataset& data_;
  std::vector<int64_t> ends_;
};

class Decoder {
 public:
  Decoder(const Dataset& data, Tokenizer* tokenizer)
      : data_(data), tokenizer_(tokenizer), documents_(data) {}

  absl::StatusOr<std::vector<DecodedPart>> Run(const DecodeOptions& options) {
    const bool has_documents = data_.info().has_documents();
    DecodedPart next;
    next.first = options.from;
    if (has_documents) {
      HEARTH_RETURN_IF_ERROR(FindDocument(options, next));
    } else if (options.document >= 0) {
      return absl::OutOfRangeError(
          absl::StrCat(data_.path(), ": has no end tokens, so its documents are not known"));
    }
    if (next.first < 0 || next.first >= data_.tokens()) {
      return absl::OutOfRangeError(absl::StrCat(data_.path(), ": has ", data_.tokens(),
                                                " tokens, none with number ", next.first));
    }
    std::vector<DecodedPart> parts;
    for (int64_t i = 0; i < options.parts && next.first < data_.tokens(); ++i) {
      DecodedPart part = next;
      HEARTH_RETURN_IF_ERROR(has_documents ? FillDocument(part) : FillWindow(part));
      next = DecodedPart();
      next.first = part.first + part.tokens;
      next.document = has_documents ? part.document + 1 : -1;
      parts.push_back(std::move(part));
    }
    return parts;
  }

 private:
  // Where `next` begins and which document it is.
  absl::Status FindDocument(const DecodeOptions& options, DecodedPart& next) {
    if (options.document < 0) {
      const int64_t until = std::min(options.from, data_.tokens());
      next.document = 0;
      int64_t begin = 0;  // of the document that `from` is in
      while (begin < until) {
        int64_t one = 1;
        const int64_t end = documents_.Pass(begin, until, &one);
        if (one > 0) {
          break;
        }
        begin = end;
        ++next.document;
      }
      next.begins = begin == options.from;
      return absl::OkStatus();
    }
    int64_t left = options.document;
    next.first = documents_.Pass(0, data_.tokens(), &left);
    next.document = options.document;
    if (left > 0 || next.first >= data_.tokens()) {
      return absl::OutOfRangeError(absl::StrCat(data_.path(), ": has ", options.document - left,
                                                " documents, from 0; none with number ",
                                                options.document));
    }
    return absl::OkStatus();
  }

  absl::Status FillDocument(DecodedPart& part) {
    part.tokens = documents_.EndOf(part.first, &part.ends) - part.first;
    // With a mask the ends stand in it: the last token is text and is shown.
    part.end_token = part.ends && !data_.has_mask();
    return Decode(part, part.tokens - (part.end_token ? 1 : 0));
  }

  absl::Status FillWindow(DecodedPart& part) {
    part.tokens = std::min(kDecodeWindow, data_.tokens() - part.first);
    return Decode(part, part.tokens);
  }

  absl::Status Decode(DecodedPart& part, int64_t tokens) {
    part.shown = std::min(tokens, kDecodeMax);
    std::vector<int32_t> buffer(static_cast<size_t>(part.shown));
    HEARTH_RETURN_IF_ERROR(data_.Read(part.first, absl::MakeSpan(buffer), data_.vocab()));
    if (tokenizer_ == nullptr) {
      part.text = absl::StrJoin(buffer, " ");
      return absl::OkStatus();
    }
    part.decoded = true;
    if (data_.has_mask()) {
      return DecodeRuns(part, buffer);
    }
    HEARTH_ASSIGN_OR_RETURN(part.text, tokenizer_->Decode(buffer));
    return absl::OkStatus();
  }

  // Consecutive tokens that count, or do not, become a run.
  absl::Status DecodeRuns(DecodedPart& part, absl::Span<const int32_t> tokens) {
    std::vector<bool> counts(tokens.size());
    data_.VisitMask(part.first, part.shown, [&](int64_t i, uint8_t mask) {
      counts[static_cast<size_t>(i)] = (mask & kMaskCounts) != 0;
    });
    for (size_t begin = 0; begin < tokens.size();) {
      size_t end = begin;
      while (end < tokens.size() && counts[end] == counts[begin]) {
        ++end;
      }
      HEARTH_ASSIGN_OR_RETURN(std::string text, TextOf(tokens.subspan(begin, end - begin)));
      part.text += text;
      part.runs.push_back({counts[begin], std::move(text)});
      begin = end;
    }
    return absl::OkStatus();
  }

  // With end tokens, which stand inside conversations, if the tokenizer can tell them.
  absl::StatusOr<std::string> TextOf(absl::Span<const int32_t> tokens) {
    std::string text;
    for (const int32_t token : tokens) {
      const absl::StatusOr<std::string> bytes = tokenizer_->BytesOf(token);
      if (absl::IsUnimplemented(bytes.status())) {
        return tokenizer_->Decode(tokens);
      }
      HEARTH_RETURN_IF_ERROR(bytes.status());
      text += *bytes;
    }
    return text;
  }

  const Dataset& data_;
  Tokenizer* const tokenizer_;
  Documents documents_;
};

std::string MarkedText(const DecodedPart& part) {
  if (part.runs.empty()) {
    return part.text;
  }
  std::string text;
  for (const DecodedPart::Run& run : part.runs) {
    absl::StrAppend(&text, run.counts ? "\u27e6" : "", run.text, run.counts ? "\u27e7" : "");
  }
  return text;
}

}  // namespace

absl::StatusOr<std::vector<DecodedPart>> DecodeParts(const std::string& path,
                                                     const DecodeOptions& options,
                                                     Env& env) {
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<Dataset> data, Dataset::Open(path, env));
  std::unique_ptr<Tokenizer> tokenizer;
  if (data->info().tokenizer.known()) {
    HEARTH_ASSIGN_OR_RETURN(tokenizer, OpenTokenizer(data->info().tokenizer, path, env));
  }
  return Decoder(*data, tokenizer.get()).Run(options);
}

std::string ToText(const std::vector<DecodedPart>& parts) {
  std::string text;
  for (const DecodedPart& part : parts) {
    if (part.document >= 0) {
      absl::StrAppend(&text, "document ", part.document, ", ");
    }
    absl::StrAppend(&text, "tokens ", part.first, " to ", part.first + part.tokens - 1);
    if (!part.begins) {
      absl::StrAppend(&text, ", begins within it");
    }
    if (!part.ends) {
      absl::StrAppend(&text, ", without end");
    }
    if (!part.decoded) {
      absl::StrAppend(&text, ", no tokenizer is recorded: numbers of tokens");
    }
    if (!part.runs.empty()) {
      absl::StrAppend(&text, ", those in \u27e6\u27e7 count in the loss");
    }
    absl::StrAppend(&text, "\n  ", absl::StrReplaceAll(MarkedText(part), {{"\n", "\n  "}}), "\n");
    const int64_t more = part.tokens - part.shown - (part.end_token ? 1 : 0);
    if (more > 0) {
      absl::StrAppend(&text, "  (", more, " more tokens)\n");
    }
  }
  return text;
}

std::string ToJson(const std::vector<DecodedPart>& parts) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const DecodedPart& part : parts) {
    nlohmann::ordered_json entry;
    if (part.document >= 0) {
      entry["document"] = part.document;
    }
    entry["first_token"] = part.first;
    entry["tokens"] = part.tokens;
    entry["begins"] = part.begins;
    entry["ends"] = part.ends;
    entry["shown_tokens"] = part.shown;
    entry[part.decoded ? "text" : "numbers"] = part.text;
    for (const DecodedPart::Run& run : part.runs) {
      entry["runs"].push_back({{"counts", run.counts}, {"text", run.text}});
    }
    list.push_back(std::move(entry));
  }
  return list.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace hearth::dataset
