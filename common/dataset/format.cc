#include "common/dataset/format.h"

#include <limits>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "nlohmann/json.hpp"

namespace hearth::dataset {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

constexpr int64_t kMaxVocab = int64_t{1} << 22;

// Typed access to one JSON object; errors name the file and the key.
class Fields {
 public:
  Fields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {}

  absl::Status Error(std::string_view key, std::string_view what) const {
    return absl::InvalidArgumentError(
        absl::StrCat(where_, ": ", std::string(key), ": ", std::string(what)));
  }

  absl::Status Int(const char* key, int64_t min, int64_t max, int64_t* out) const {
    const auto it = object_.find(key);
    if (it == object_.end()) {
      return Error(key, "missing");
    }
    if (!it->is_number_integer()) {
      return Error(key, "must be an integer");
    }
    // Before get<int64_t>, which wraps numbers from 2^63 on.
    if (it->is_number_unsigned() && it->get<uint64_t>() > static_cast<uint64_t>(max)) {
      return Error(key, absl::StrCat("must be at most ", max));
    }
    *out = it->get<int64_t>();
    if (*out < min || *out > max) {
      return Error(key, absl::StrCat("is ", *out, ", must be ", min, "..", max));
    }
    return absl::OkStatus();
  }

  absl::Status String(const char* key, bool required, std::string* out) const {
    const auto it = object_.find(key);
    if (it == object_.end()) {
      return required ? Error(key, "missing") : absl::OkStatus();
    }
    if (!it->is_string()) {
      return Error(key, "must be a string");
    }
    *out = it->get<std::string>();
    return absl::OkStatus();
  }

  // An error when it is missing or not of that kind.
  absl::StatusOr<const Json*> Child(const char* key, bool array) const {
    const auto it = object_.find(key);
    if (it == object_.end()) {
      return Error(key, "missing");
    }
    if (array ? !it->is_array() : !it->is_object()) {
      return Error(key, array ? "must be a list" : "must be an object");
    }
    return &*it;
  }

 private:
  const Json& object_;
  const std::string where_;
};

bool IsPlainFileName(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}

std::string RecordedKinds() {
  std::vector<std::string> names;
  for (const tokenizer::TokenizerKindRow& row : tokenizer::kTokenizerKinds) {
    if (row.recorded) {
      names.emplace_back(row.name);
    }
  }
  return absl::StrJoin(names, ", ");
}

absl::Status ParseTokenizer(const Json& json, const std::string& where, TokenizerInfo* out) {
  const Fields fields(json, where);
  std::string kind;
  HEARTH_RETURN_IF_ERROR(fields.String("kind", true, &kind));
  const tokenizer::TokenizerKindRow* const row = tokenizer::FindTokenizerKind(kind);
  if (row == nullptr || !row->recorded) {
    return fields.Error("kind", absl::StrCat("\"", kind, "\" is not one of ", RecordedKinds()));
  }
  out->kind = row->kind;
  if (!out->known()) {
    return absl::OkStatus();
  }
  int64_t vocab = 0;
  int64_t eos = -1;
  HEARTH_RETURN_IF_ERROR(fields.Int("vocab", 1, kMaxVocab, &vocab));
  HEARTH_RETURN_IF_ERROR(fields.Int("eos", -1, vocab - 1, &eos));
  out->vocab = static_cast<int32_t>(vocab);
  out->eos = static_cast<int32_t>(eos);
  if (row->file.empty()) {
    return absl::OkStatus();
  }
  HEARTH_RETURN_IF_ERROR(fields.String("file", true, &out->file));
  if (!IsPlainFileName(out->file)) {
    return fields.Error("file", "must be a plain file name");
  }
  return absl::OkStatus();
}

absl::Status ParseShards(const Fields& top, const std::string& where, DatasetInfo* info) {
  HEARTH_ASSIGN_OR_RETURN(const Json* list, top.Child("shards", /*array=*/true));
  if (list->empty()) {
    return top.Error("shards", "must not be empty");
  }
  // Room for sizes in bytes: no product of a token count and a width overflows.
  constexpr int64_t kMaxTokens = std::numeric_limits<int64_t>::max() / 16;
  int64_t sum = 0;
  for (const Json& entry : *list) {
    const std::string at = absl::StrCat(where, ": shards[", info->shards.size(), "]");
    if (!entry.is_object()) {
      return absl::InvalidArgumentError(absl::StrCat(at, ": not an object"));
    }
    const Fields fields(entry, at);
    ShardInfo shard;
    HEARTH_RETURN_IF_ERROR(fields.String("file", true, &shard.file));
    if (!IsPlainFileName(shard.file)) {
      return fields.Error("file", "must be a plain file name");
    }
    HEARTH_RETURN_IF_ERROR(fields.Int("tokens", 1, kMaxTokens, &shard.tokens));
    HEARTH_RETURN_IF_ERROR(fields.String("sha256", false, &shard.sha256));
    if (info->has_mask()) {
      HEARTH_RETURN_IF_ERROR(fields.String("mask", true, &shard.mask));
      HEARTH_RETURN_IF_ERROR(fields.String("mask_sha256", false, &shard.mask_sha256));
      if (!IsPlainFileName(shard.mask)) {
        return fields.Error("mask", "must be a plain file name");
      }
    }
    if (sum > kMaxTokens - shard.tokens) {
      return fields.Error("tokens", "too many in all");
    }
    sum += shard.tokens;
    info->shards.push_back(std::move(shard));
  }
  if (sum != info->tokens) {
    return top.Error("tokens", absl::StrCat("is ", info->tokens, ", but the shards have ", sum));
  }
  return absl::OkStatus();
}

OrderedJson TokenizerJson(const TokenizerInfo& info) {
  OrderedJson json;
  json["kind"] = tokenizer::NameOf(info.kind);
  if (!info.file.empty()) {
    json["file"] = info.file;
  }
  if (info.known()) {
    json["vocab"] = info.vocab;
    json["eos"] = info.eos;
  }
  return json;
}

std::string Dump(const OrderedJson& json) {
  return json.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

}  // namespace

absl::StatusOr<TokenizerInfo> ParseTokenizerInfo(std::string_view text,
                                                 std::string_view file_name) {
  const std::string where(file_name);
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded() || !json.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": not a JSON object"));
  }
  TokenizerInfo info;
  HEARTH_RETURN_IF_ERROR(ParseTokenizer(json, where, &info));
  return info;
}

std::string ToJson(const TokenizerInfo& info) {
  return Dump(TokenizerJson(info));
}

absl::StatusOr<DatasetInfo> ParseDatasetInfo(std::string_view text, std::string_view file_name) {
  const std::string where(file_name);
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": not JSON"));
  }
  if (!json.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": not a JSON object"));
  }
  const Fields top(json, where);
  std::string format;
  HEARTH_RETURN_IF_ERROR(top.String("format", true, &format));
  if (format != "hearth-dataset") {
    return top.Error("format", "is not \"hearth-dataset\"");
  }
  int64_t number = 0;
  HEARTH_RETURN_IF_ERROR(top.Int("version", 1, std::numeric_limits<int32_t>::max(), &number));
  if (number != kFormatVersion) {
    return top.Error("version",
                     absl::StrCat("is ", number, "; this program reads version ", kFormatVersion));
  }
  DatasetInfo info;
  HEARTH_RETURN_IF_ERROR(top.String("name", false, &info.name));
  HEARTH_RETURN_IF_ERROR(top.String("split", false, &info.split));
  HEARTH_ASSIGN_OR_RETURN(const Json* tokenizer, top.Child("tokenizer", /*array=*/false));
  HEARTH_RETURN_IF_ERROR(
      ParseTokenizer(*tokenizer, absl::StrCat(where, ": tokenizer"), &info.tokenizer));
  HEARTH_RETURN_IF_ERROR(top.Int("vocab", 1, kMaxVocab, &number));
  info.vocab = static_cast<int32_t>(number);
  HEARTH_RETURN_IF_ERROR(top.Int("eos", -1, info.vocab - 1, &number));
  info.eos = static_cast<int32_t>(number);
  std::string dtype;
  HEARTH_RETURN_IF_ERROR(top.String("dtype", true, &dtype));
  if (dtype != "uint16" && dtype != "uint32") {
    return top.Error("dtype", absl::StrCat("\"", dtype, "\" is not one of uint16, uint32"));
  }
  info.width = dtype == "uint16" ? TokenWidth::kUint16 : TokenWidth::kUint32;
  const int64_t max = std::numeric_limits<int64_t>::max() / 16;
  HEARTH_RETURN_IF_ERROR(top.Int("documents", 0, max, &info.documents));
  HEARTH_RETURN_IF_ERROR(top.Int("tokens", 1, max, &info.tokens));
  if (json.contains("loss_tokens")) {
    HEARTH_RETURN_IF_ERROR(top.Int("loss_tokens", 0, info.tokens, &info.loss_tokens));
  }
  HEARTH_RETURN_IF_ERROR(ParseShards(top, where, &info));
  return info;
}

std::string ToJson(const DatasetInfo& info) {
  OrderedJson json;
  json["format"] = "hearth-dataset";
  json["version"] = kFormatVersion;
  json["name"] = info.name;
  json["split"] = info.split;
  json["tokenizer"] = TokenizerJson(info.tokenizer);
  json["vocab"] = info.vocab;
  json["eos"] = info.eos;
  json["dtype"] = info.width == TokenWidth::kUint16 ? "uint16" : "uint32";
  json["documents"] = info.documents;
  json["tokens"] = info.tokens;
  if (info.has_mask()) {
    json["loss_tokens"] = info.loss_tokens;
  }
  json["shards"] = OrderedJson::array();
  for (const ShardInfo& shard : info.shards) {
    OrderedJson entry;
    entry["file"] = shard.file;
    entry["tokens"] = shard.tokens;
    if (!shard.sha256.empty()) {
      entry["sha256"] = shard.sha256;
    }
    if (info.has_mask()) {
      entry["mask"] = shard.mask;
    }
    if (!shard.mask_sha256.empty()) {
      entry["mask_sha256"] = shard.mask_sha256;
    }
    json["shards"].push_back(entry);
  }
  return Dump(json);
}

}  // namespace hearth::dataset
