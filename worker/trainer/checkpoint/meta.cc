#include "worker/trainer/checkpoint/meta.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/spec/fields/recorded.h"
#include "common/weights/json_keys.h"
#include "google/protobuf/util/json_util.h"
#include "nlohmann/json.hpp"

namespace hearth::trainer {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

constexpr int kStateVersion = 1;

// Keys that are not there leave their fields unset, and so does an empty text, which an older
// version wrote for a field that the job did not set.
void ReadRecorded(const Json& json, weights::KeyReader& reader, v1::JobSpec& recorded) {
  for (const std::string_view key : spec::RecordedKeys()) {
    const auto found = json.find(std::string(key));
    if (found == json.end() ||
        (found->is_string() && found->get_ref<const std::string&>().empty())) {
      continue;
    }
    const bool read =
        (found->is_string() && spec::SetRecorded(key, found->get<std::string>(), recorded)) ||
        (found->is_number_integer() && spec::SetRecorded(key, found->get<int64_t>(), recorded));
    if (!read) {
      reader.Fail(std::string(key).c_str(), "has another type");
    }
  }
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
  for (const auto& [key, value] : spec::RecordedValues(meta.recorded)) {
    std::visit([&json, key = std::string(key)](const auto& v) { json[key] = v; }, value);
  }
  json["global_batch_tokens"] = meta.global_batch_tokens;
  json["micro_batch_size"] = meta.micro_batch_size;
  json["recipe"] = meta.recipe;
  json["spec_sha256"] = meta.spec_sha256;
  json["validation_loss"] = meta.validation_loss;
  json["model"] = OrderedJson::parse(model, nullptr, false);
  OrderedJson extra = OrderedJson::parse(meta.extra_json, nullptr, false);
  json["extra"] = extra.is_object() ? extra : OrderedJson::object();
  return weights::DumpJson(json);
}

absl::StatusOr<CheckpointMeta> ParseMeta(std::string_view text, std::string_view file_name) {
  HEARTH_ASSIGN_OR_RETURN(const Json json,
                          weights::ParseJsonFile(text, file_name, "hearth-state", kStateVersion));
  weights::KeyReader reader(json, file_name);
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
  ReadRecorded(json, reader, meta.recorded);
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

absl::StatusOr<CheckpointMeta> ReadMeta(Env& env, const std::string& folder) {
  const std::string file = absl::StrCat(folder, "/", std::string(kMetaFile));
  HEARTH_ASSIGN_OR_RETURN(const std::string text, env.ReadFile(file));
  return ParseMeta(text, file);
}

}  // namespace hearth::trainer
