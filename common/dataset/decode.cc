#include "common/dataset/decode.h"

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/base/status_macros.h"
#include "common/dataset/dataset.h"
#include "common/dataset/tokenizer.h"
#include "nlohmann/json.hpp"

namespace hearth::dataset {
namespace {

constexpr int64_t kBlock = int64_t{1} << 16;

// Finds documents in the stream by their end tokens.
class Documents {
 public:
  explicit Documents(const Dataset& data) : data_(data), eos_(data.info().eos) {}

  // The first token after the document to which token `from` belongs; `ended`: it has an end token.
  absl::StatusOr<int64_t> EndOf(int64_t from, bool* ended) {
    int64_t count = 1;
    HEARTH_ASSIGN_OR_RETURN(const int64_t end, Pass(from, data_.tokens(), &count));
    *ended = count == 0;
    return end;
  }

  // The position at which `*documents` documents have ended, `until` at most. Afterwards
  // `*documents` is the number of those that are still to end.
  absl::StatusOr<int64_t> Pass(int64_t from, int64_t until, int64_t* documents) {
    while (*documents > 0 && from < until) {
      const size_t n = static_cast<size_t>(std::min(kBlock, until - from));
      buffer_.resize(n);
      HEARTH_RETURN_IF_ERROR(data_.Read(from, absl::MakeSpan(buffer_), 0));
      const auto end = std::find(buffer_.begin(), buffer_.end(), eos_);
      from += std::distance(buffer_.begin(), end);
      if (end != buffer_.end()) {
        ++from;
        --*documents;
      }
    }
    return from;
  }

 private:
  const Dataset& data_;
  const int32_t eos_;
  std::vector<int32_t> buffer_;
};

class Decoder {
 public:
  Decoder(const Dataset& data, Tokenizer* tokenizer)
      : data_(data), tokenizer_(tokenizer), documents_(data) {}

  absl::StatusOr<std::vector<DecodedPart>> Run(const DecodeOptions& options) {
    const bool has_documents = data_.info().eos >= 0;
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
        HEARTH_ASSIGN_OR_RETURN(const int64_t end, documents_.Pass(begin, until, &one));
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
    HEARTH_ASSIGN_OR_RETURN(next.first, documents_.Pass(0, data_.tokens(), &left));
    next.document = options.document;
    if (left > 0 || next.first >= data_.tokens()) {
      return absl::OutOfRangeError(absl::StrCat(data_.path(), ": has ", options.document - left,
                                                " documents, from 0; none with number ",
                                                options.document));
    }
    return absl::OkStatus();
  }

  absl::Status FillDocument(DecodedPart& part) {
    HEARTH_ASSIGN_OR_RETURN(const int64_t end, documents_.EndOf(part.first, &part.ends));
    part.tokens = end - part.first;
    return Decode(part, part.tokens - (part.ends ? 1 : 0));
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
    HEARTH_ASSIGN_OR_RETURN(part.text, tokenizer_->Decode(buffer));
    part.decoded = true;
    return absl::OkStatus();
  }

  const Dataset& data_;
  Tokenizer* const tokenizer_;
  Documents documents_;
};

}  // namespace

absl::StatusOr<std::vector<DecodedPart>> DecodeParts(const std::string& path,
                                                     const DecodeOptions& options,
                                                     Env& env) {
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<Dataset> data, Dataset::Open(path, env));
  std::unique_ptr<Tokenizer> tokenizer;
  if (data->info().tokenizer.kind != "none") {
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
    absl::StrAppend(&text, "\n  ", absl::StrReplaceAll(part.text, {{"\n", "\n  "}}), "\n");
    const int64_t more = part.tokens - part.shown - (part.document >= 0 && part.ends ? 1 : 0);
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
    list.push_back(std::move(entry));
  }
  return list.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace hearth::dataset
