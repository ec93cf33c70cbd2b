#include "common/tokenizer/tokenizer_file.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/tokenizer/byte_alphabet.h"
#include "common/tokenizer/checked_json.h"
#include "common/tokenizer/scanner.h"

namespace hearth::tokenizer {
namespace {

using Json = nlohmann::json;

constexpr int32_t kNone = -1;

absl::StatusOr<std::string> Type(const JsonPlace& part) {
  HEARTH_RETURN_IF_ERROR(part.CheckObject());
  return part.At("type").String();
}

absl::Status RefuseType(const JsonPlace& part, const std::string& type) {
  return part.Refuse(absl::StrCat("type \"", type, "\""));
}

// Calls `read(part, type)` for a part, or for each of a Sequence's in the list `list`.
template <typename Read>
absl::Status ForEachPart(const JsonPlace& part, std::string_view list, Read&& read) {
  if (part.IsNull()) {
    return absl::OkStatus();
  }
  HEARTH_ASSIGN_OR_RETURN(const std::string type, Type(part));
  if (type != "Sequence") {
    return read(part, type);
  }
  HEARTH_RETURN_IF_ERROR(part.OnlyKeys({"type", list}));
  const JsonPlace parts = part.At(list);
  HEARTH_RETURN_IF_ERROR(parts.CheckArray());
  for (size_t i = 0; i < parts.value().size(); ++i) {
    HEARTH_RETURN_IF_ERROR(ForEachPart(parts.At(i), list, read));
  }
  return absl::OkStatus();
}

class Reader {
 public:
  explicit Reader(const JsonPlace& top) : top_(top) {}

  absl::StatusOr<TokenizerFile> Read() {
    HEARTH_RETURN_IF_ERROR(
        top_.OnlyKeys({"version", "truncation", "padding", "added_tokens", "normalizer",
                       "pre_tokenizer", "post_processor", "decoder", "model"}));
    for (const char* key : {"truncation", "padding"}) {
      if (!top_.At(key).IsNull()) {
        return top_.At(key).Refuse("a value other than null");
      }
    }
    HEARTH_RETURN_IF_ERROR(Normalizer());
    HEARTH_RETURN_IF_ERROR(PreTokenizer());
    HEARTH_RETURN_IF_ERROR(Decoder());
    // Before merges and added tokens, which are looked up in the vocabulary.
    HEARTH_RETURN_IF_ERROR(Vocabulary());
    HEARTH_RETURN_IF_ERROR(Merges());
    HEARTH_RETURN_IF_ERROR(AddedTokens());
    HEARTH_RETURN_IF_ERROR(PostProcessor());
    return std::move(file_);
  }

 private:
  absl::Status Normalizer() {
    return ForEachPart(top_.At("normalizer"), "normalizers",
                       [this](const JsonPlace& part, const std::string& type) -> absl::Status {
                         if (type != "NFC") {
                           return RefuseType(part, type);
                         }
                         file_.nfc = true;
                         return part.OnlyKeys({"type"});
                       });
  }

  absl::Status PreTokenizer() {
    bool bytes = false;
    HEARTH_RETURN_IF_ERROR(
        ForEachPart(top_.At("pre_tokenizer"), "pretokenizers",
                    [&](const JsonPlace& part, const std::string& type) -> absl::Status {
                      if (bytes) {
                        return part.Refuse("a part behind ByteLevel");
                      }
                      if (type == "Split") {
                        return Split(part);
                      }
                      if (type == "Digits") {
                        return Digits(part);
                      }
                      if (type == "ByteLevel") {
                        bytes = true;
                        return ByteLevel(part);
                      }
                      return RefuseType(part, type);
                    }));
    return bytes ? absl::OkStatus()
                 : top_.At("pre_tokenizer").Refuse("a tokenizer without ByteLevel");
  }

  absl::Status Split(const JsonPlace& part) {
    HEARTH_RETURN_IF_ERROR(part.OnlyKeys({"type", "pattern", "behavior", "invert"}));
    HEARTH_ASSIGN_OR_RETURN(const std::string behavior, part.At("behavior").String());
    // With Isolated it makes no difference what is called match and what gap.
    if (behavior != "Isolated") {
      return part.At("behavior").Refuse(absl::StrCat("\"", behavior, "\""));
    }
    HEARTH_RETURN_IF_ERROR(part.At("invert").Bool(false).status());
    const JsonPlace pattern = part.At("pattern");
    HEARTH_RETURN_IF_ERROR(pattern.OnlyKeys({"Regex", "String"}));
    const bool literal = pattern.At("Regex").IsNull();
    HEARTH_ASSIGN_OR_RETURN(std::string text, pattern.At(literal ? "String" : "Regex").String());
    file_.steps.push_back(
        {literal ? PreTokenizerStep::Kind::kLiteral : PreTokenizerStep::Kind::kPattern,
         std::move(text)});
    return absl::OkStatus();
  }

  absl::Status Digits(const JsonPlace& part) {
    HEARTH_RETURN_IF_ERROR(part.OnlyKeys({"type", "individual_digits"}));
    HEARTH_ASSIGN_OR_RETURN(const bool individual, part.At("individual_digits").Bool(false));
    file_.steps.push_back(
        {individual ? PreTokenizerStep::Kind::kDigits : PreTokenizerStep::Kind::kDigitRuns, ""});
    return absl::OkStatus();
  }

  absl::Status ByteLevel(const JsonPlace& part) {
    HEARTH_RETURN_IF_ERROR(
        part.OnlyKeys({"type", "add_prefix_space", "trim_offsets", "use_regex"}));
    HEARTH_ASSIGN_OR_RETURN(file_.prefix_space, part.At("add_prefix_space").Bool(true));
    if (file_.prefix_space && !file_.steps.empty()) {
      return part.At("add_prefix_space").Refuse("true behind other parts");
    }
    HEARTH_ASSIGN_OR_RETURN(const bool use_regex, part.At("use_regex").Bool(true));
    if (use_regex) {
      file_.steps.push_back({PreTokenizerStep::Kind::kPattern, std::string(Scanners()[0].pattern)});
    }
    return absl::OkStatus();
  }

  absl::Status Decoder() {
    return ForEachPart(top_.At("decoder"), "decoders",
                       [](const JsonPlace& part, const std::string& type) -> absl::Status {
                         return type == "ByteLevel" ? absl::OkStatus() : RefuseType(part, type);
                       });
  }

  absl::Status Vocabulary() {
    const JsonPlace model = top_.At("model");
    HEARTH_RETURN_IF_ERROR(model.OnlyKeys(
        {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
         "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"}));
    if (const JsonPlace type = model.At("type"); !type.IsNull()) {
      HEARTH_ASSIGN_OR_RETURN(const std::string name, type.String());
      if (name != "BPE") {
        return RefuseType(model, name);
      }
    }
    // unk_token and fuse_unk act on unknown characters; the check for all bytes rules them out.
    HEARTH_RETURN_IF_ERROR(Off(model.At("dropout")));
    HEARTH_RETURN_IF_ERROR(Off(model.At("continuing_subword_prefix")));
    HEARTH_RETURN_IF_ERROR(Off(model.At("end_of_word_suffix")));
    HEARTH_ASSIGN_OR_RETURN(file_.ignore_merges, model.At("ignore_merges").Bool(false));
    const JsonPlace vocab = model.At("vocab");
    HEARTH_RETURN_IF_ERROR(vocab.CheckObject());
    file_.byte_tokens.fill(kNone);
    ids_.reserve(vocab.value().size());
    for (const auto& item : vocab.value().items()) {
      const JsonPlace entry(item.value(), absl::StrCat(vocab.place(), "[\"", item.key(), "\"]"));
      if (item.key().empty()) {
        return entry.Error("a token must not be empty: a merge with it would never end");
      }
      HEARTH_ASSIGN_OR_RETURN(const int32_t id, entry.Id());
      std::optional<std::string> bytes = BytesOfName(item.key());
      if (bytes.has_value()) {
        file_.nameable.push_back(id);
        if (bytes->size() == 1) {
          file_.byte_tokens[static_cast<uint8_t>((*bytes)[0])] = id;
        }
      }
      HEARTH_RETURN_IF_ERROR(SetToken(entry, id, bytes.value_or(item.key())));
      ids_.emplace(item.key(), id);
    }
    for (size_t b = 0; b < 256; ++b) {
      if (file_.byte_tokens[b] == kNone) {
        return vocab.Refuse(absl::StrCat("a vocabulary without a token for byte ", b));
      }
    }
    return absl::OkStatus();
  }

  static absl::Status Off(const JsonPlace& field) {
    const Json& value = field.value();
    // NOLINTNEXTLINE(readability-container-size-empty): empty() of a JSON string is always false
    const bool off = value.is_null() || value == "" || (value.is_number() && value == 0.0);
    return off ? absl::OkStatus() : field.Refuse(value.dump());
  }

  absl::Status SetToken(const JsonPlace& entry, int32_t id, std::string bytes) {
    if (file_.tokens.size() <= static_cast<size_t>(id)) {
      file_.tokens.resize(static_cast<size_t>(id) + 1);
    }
    std::string& slot = file_.tokens[static_cast<size_t>(id)];
    if (!slot.empty()) {
      return entry.Error(absl::StrCat("two tokens have the id ", id));
    }
    slot = std::move(bytes);
    return absl::OkStatus();
  }

  absl::Status Merges() {
    const JsonPlace merges = top_.At("model").At("merges");
    HEARTH_RETURN_IF_ERROR(merges.CheckArray());
    absl::flat_hash_set<std::pair<int32_t, int32_t>> seen;
    file_.merges.reserve(merges.value().size());
    for (size_t i = 0; i < merges.value().size(); ++i) {
      const Json& value = merges.value()[i];
      std::string left;
      std::string right;
      // Older files write a merge as one string, newer ones as a pair.
      if (value.is_string()) {
        const auto& line = value.get_ref<const std::string&>();
        const size_t space = line.find(' ');
        if (space == std::string::npos || line.find(' ', space + 1) != std::string::npos) {
          return merges.At(i).Error("must be two parts with one space between them");
        }
        left = line.substr(0, space);
        right = line.substr(space + 1);
      } else if (value.is_array() && value.size() == 2 && value[0].is_string() &&
                 value[1].is_string()) {
        left = value[0].get<std::string>();
        right = value[1].get<std::string>();
      } else {
        return merges.At(i).Error("must be a string or a list of two");
      }
      Merge merge;
      HEARTH_ASSIGN_OR_RETURN(merge.left, MergeId(merges, i, left));
      HEARTH_ASSIGN_OR_RETURN(merge.right, MergeId(merges, i, right));
      HEARTH_ASSIGN_OR_RETURN(merge.result, MergeId(merges, i, left + right));
      if (!seen.emplace(merge.left, merge.right).second) {
        return merges.At(i).Error("the same merge stands above");
      }
      file_.merges.push_back(merge);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<int32_t> MergeId(const JsonPlace& merges, size_t i, const std::string& name) {
    if (const auto it = ids_.find(name); it != ids_.end()) {
      return it->second;
    }
    return merges.At(i).Error(absl::StrCat("\"", name, "\" is not in model.vocab"));
  }

  absl::Status AddedTokens() {
    const JsonPlace list = top_.At("added_tokens");
    if (list.IsNull()) {
      return absl::OkStatus();
    }
    HEARTH_RETURN_IF_ERROR(list.CheckArray());
    for (size_t i = 0; i < list.value().size(); ++i) {
      const JsonPlace entry = list.At(i);
      HEARTH_RETURN_IF_ERROR(entry.OnlyKeys(
          {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"}));
      AddedToken token;
      HEARTH_ASSIGN_OR_RETURN(token.id, entry.At("id").Id());
      HEARTH_ASSIGN_OR_RETURN(token.content, entry.At("content").String());
      HEARTH_ASSIGN_OR_RETURN(token.single_word, entry.At("single_word").Bool(false));
      HEARTH_ASSIGN_OR_RETURN(token.lstrip, entry.At("lstrip").Bool(false));
      HEARTH_ASSIGN_OR_RETURN(token.rstrip, entry.At("rstrip").Bool(false));
      HEARTH_ASSIGN_OR_RETURN(token.special, entry.At("special").Bool(false));
      HEARTH_ASSIGN_OR_RETURN(token.normalized, entry.At("normalized").Bool(!token.special));
      if (token.content.empty()) {
        return entry.At("content").Error("must not be empty");
      }
      if (const auto it = ids_.find(token.content); it == ids_.end()) {
        HEARTH_RETURN_IF_ERROR(SetToken(entry, token.id, token.content));
        ids_.emplace(token.content, token.id);
      } else if (it->second != token.id) {
        return entry.Error(
            absl::StrCat("\"", token.content, "\" has the id ", it->second, " already"));
      } else {
        file_.tokens[static_cast<size_t>(token.id)] = token.content;
      }
      file_.added.push_back(std::move(token));
    }
    return absl::OkStatus();
  }

  absl::Status PostProcessor() {
    return ForEachPart(top_.At("post_processor"), "processors",
                       [this](const JsonPlace& part, const std::string& type) -> absl::Status {
                         if (type == "ByteLevel") {  // only trims offsets
                           return absl::OkStatus();
                         }
                         return type == "TemplateProcessing" ? Template(part)
                                                             : RefuseType(part, type);
                       });
  }

  absl::Status Template(const JsonPlace& part) {
    HEARTH_RETURN_IF_ERROR(part.OnlyKeys({"type", "single", "pair", "special_tokens"}));
    const JsonPlace single = part.At("single");
    HEARTH_RETURN_IF_ERROR(single.CheckArray());
    bool text = false;
    for (size_t i = 0; i < single.value().size(); ++i) {
      const JsonPlace item = single.At(i);
      HEARTH_RETURN_IF_ERROR(item.OnlyKeys({"Sequence", "SpecialToken"}));
      if (!item.At("Sequence").IsNull()) {
        if (text) {
          return item.Refuse("the text twice");
        }
        text = true;
        continue;
      }
      HEARTH_ASSIGN_OR_RETURN(const std::string name, item.At("SpecialToken").At("id").String());
      const JsonPlace ids = part.At("special_tokens").At(name).At("ids");
      HEARTH_RETURN_IF_ERROR(ids.CheckArray());
      for (size_t k = 0; k < ids.value().size(); ++k) {
        HEARTH_ASSIGN_OR_RETURN(const int32_t id, ids.At(k).Id());
        if (id >= file_.vocab() || file_.tokens[static_cast<size_t>(id)].empty()) {
          return ids.At(k).Error(absl::StrCat("no token has the id ", id));
        }
        (text ? file_.suffix : file_.prefix).push_back(id);
      }
    }
    return text ? absl::OkStatus() : single.Error("has no place for the text");
  }

  const JsonPlace top_;
  TokenizerFile file_;
  absl::flat_hash_map<std::string, int32_t> ids_;  // by name
};

}  // namespace

absl::StatusOr<TokenizerFile> ParseTokenizerFile(std::string_view text,
                                                 std::string_view file_name) {
  HEARTH_ASSIGN_OR_RETURN(const Json json, ParseCheckedJson(text, file_name));
  absl::StatusOr<TokenizerFile> file = Reader(JsonPlace(json, "")).Read();
  if (!file.ok()) {
    return absl::Status(file.status().code(), absl::StrCat(std::string(file_name), ": ",
                                                           std::string(file.status().message())));
  }
  return file;
}

absl::StatusOr<std::string> ConfigToken(std::string_view text,
                                        std::string_view key,
                                        std::string_view file_name) {
  HEARTH_ASSIGN_OR_RETURN(const Json json, ParseCheckedJson(text, file_name));
  const JsonPlace token = JsonPlace(json, std::string(file_name)).At(key);
  if (token.IsNull()) {
    return std::string();
  }
  return token.value().is_object() ? token.At("content").String() : token.String();
}

}  // namespace hearth::tokenizer
