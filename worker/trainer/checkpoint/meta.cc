#include "worker/trainer/checkpoint/meta.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "google/protobuf/util/json_util.h"
#include "nlohmann/json.hpp"

namespace hearth::trainer {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

constexpr int kStateVersion = 1;
constexpr int kManifestVersion = 2;

std::string Dump(const OrderedJson& json) {
  return json.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

// Reads typed keys; the first mismatch is kept.
class Reader {
 public:
  Reader(const Json& json, std::string_view file) : json_(json), file_(file) {}

  template <typename T>
  void Number(const char* key, T* out) {
    const auto it = json_.find(key);
    if (it == json_.end() || !it->is_number()) {
      return Fail(key, "is not a number");
    }
    *out = it->get<T>();
  }

  void String(const char* key, std::string* out) {
    const auto it = json_.find(key);
    if (it == json_.end() || !it->is_string()) {
      return Fail(key, "is not a string");
    }
    *out = it->get<std::string>();
  }

  void Fail(const char* key, const char* what) {
    if (status_.ok()) {
      status_ = absl::DataLossError(absl::StrCat(file_, ": ", key, " ", what));
    }
  }

  const absl::Status& status() const { return status_; }

 private:
  const Json& json_;
  const std::string file_;
  absl::Status status_;
};

absl::StatusOr<Json> ParseObject(std::string_view text,
                                 std::string_view file_name,
                                 std::string_view format,
                                 int newest_version) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const std::string file(file_name);
  if (json.is_discarded() || !json.is_object()) {
    return absl::DataLossError(absl::StrCat(file, ": not a JSON object"));
  }
  const auto found = json.find("format");
  if (found == json.end() || !found->is_string() || found->get<std::string>() != format) {
    return absl::DataLossError(absl::StrCat(file, ": format is not ", std::string(format)));
  }
  const auto version = json.find("version");
  if (version == json.end() || !version->is_number_integer() || version->get<int64_t>() < 1 ||
      version->get<int64_t>() > newest_version) {
    return absl::DataLossError(absl::StrCat(file, ": version is not one of 1 to ", newest_version));
  }
  return json;
}

}  // namespace

std::string MetaToJson(const CheckpointMeta& meta) {
  std::string model;
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  HEARTH_CHECK(google::protobuf::util::MessageToJsonString(meta.model, &model, options).ok(),
               "every ModelSpec has a JSON form");
  OrderedJson json;
  json["format"] = "hearth-state";
  json["version"] = kStateVersion;
  json["job_id"] = meta.job_id;
  json["epoch"] = meta.epoch;
  json["step"] = meta.step;
  json["tokens"] = meta.tokens;
  json["next_sample"] = meta.next_sample;
  json["seed"] = meta.seed;
  json["world_size"] = meta.world_size;
  json["shards"] = meta.shards;
  json["sequence_length"] = meta.sequence_length;
  json["task"] = meta.task;
  json["packing"] = meta.packing;
  json["attention"] = meta.attention;
  json["global_batch_tokens"] = meta.global_batch_tokens;
  json["micro_batch_size"] = meta.micro_batch_size;
  json["recipe"] = meta.recipe;
  json["spec_sha256"] = meta.spec_sha256;
  json["validation_loss"] = meta.validation_loss;
  json["model"] = OrderedJson::parse(model, nullptr, false);
  OrderedJson extra = OrderedJson::parse(meta.extra_json, nullptr, false);
  json["extra"] = extra.is_object() ? extra : OrderedJson::object();
  return Dump(json);
}

absl::StatusOr<CheckpointMeta> ParseMeta(std::string_view text, std::string_view file_name) {
  HEARTH_ASSIGN_OR_RETURN(const Json json,
                          ParseObject(text, file_name, "hearth-state", kStateVersion));
  Reader reader(json, file_name);
  CheckpointMeta meta;
  reader.String("job_id", &meta.job_id);
  reader.Number("epoch", &meta.epoch);
  reader.Number("step", &meta.step);
  reader.Number("tokens", &meta.tokens);
  reader.Number("next_sample", &meta.next_sample);
  reader.Number("seed", &meta.seed);
  reader.Number("world_size", &meta.world_size);
  if (json.contains("shards")) {
    reader.Number("shards", &meta.shards);
  }
  reader.Number("sequence_length", &meta.sequence_length);
  for (const auto& [name, value] : {std::pair{"task", &meta.task},
                                    {"packing", &meta.packing},
                                    {"attention", &meta.attention}}) {
    if (json.contains(name)) {
      reader.String(name, value);
    }
  }
  reader.Number("global_batch_tokens", &meta.global_batch_tokens);
  reader.Number("micro_batch_size", &meta.micro_batch_size);
  reader.String("recipe", &meta.recipe);
  reader.String("spec_sha256", &meta.spec_sha256);
  reader.Number("validation_loss", &meta.validation_loss);
  const auto model = json.find("model");
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  if (model == json.end() ||
      !google::protobuf::util::JsonStringToMessage(model->dump(), &meta.model, options).ok()) {
    reader.Fail("model", "is not a ModelSpec");
  }
  const auto extra = json.find("extra");
  meta.extra_json = extra == json.end() ? "{}" : extra->dump();
  HEARTH_RETURN_IF_ERROR(reader.status());
  return meta;
}

std::string ManifestToJson(int64_t step, const std::vector<ManifestEntry>& files) {
  OrderedJson json;
  json["format"] = "hearth-checkpoint";
  json["version"] = kManifestVersion;
  json["step"] = step;
  json["files"] = OrderedJson::array();
  for (const ManifestEntry& file : files) {
    OrderedJson entry;
    entry["path"] = file.path;
    entry["bytes"] = file.bytes;
    entry[std::string(KeyOf(file.checksum.kind))] = file.checksum.hex;
    json["files"].push_back(entry);
  }
  return Dump(json);
}

absl::StatusOr<std::vector<ManifestEntry>> ParseManifest(std::string_view text,
                                                         std::string_view file_name) {
  HEARTH_ASSIGN_OR_RETURN(const Json json,
                          ParseObject(text, file_name, "hearth-checkpoint", kManifestVersion));
  const auto files = json.find("files");
  if (files == json.end() || !files->is_array() || files->empty()) {
    return absl::DataLossError(absl::StrCat(std::string(file_name), ": no files"));
  }
  std::vector<ManifestEntry> entries;
  for (const Json& item : *files) {
    Reader reader(item, file_name);
    ManifestEntry entry;
    if (!item.is_object()) {
      reader.Fail("files", "has an entry that is not an object");
    }
    reader.String("path", &entry.path);
    reader.Number("bytes", &entry.bytes);
    for (const ChecksumRow& row : kChecksums) {
      if (item.contains(std::string(row.key))) {
        entry.checksum.kind = row.kind;
      }
    }
    reader.String(KeyOf(entry.checksum.kind).data(), &entry.checksum.hex);
    if (entry.path.empty() || entry.path[0] == '/' || entry.path.find("..") != std::string::npos) {
      reader.Fail("path", "leaves the folder");
    }
    HEARTH_RETURN_IF_ERROR(reader.status());
    entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace hearth::trainer
