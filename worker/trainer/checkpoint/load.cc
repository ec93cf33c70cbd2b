#include <memory>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/fault/fault.h"
#include "common/io/sha256.h"
#include "common/spec/fields/conditions.h"
#include "common/spec/fields/rows.h"
#include "google/protobuf/text_format.h"
#include "worker/trainer/checkpoint/checkpoint.h"
#include "worker/trainer/checkpoint/meta.h"
#include "worker/trainer/checkpoint/shards.h"

namespace hearth::trainer {
namespace {

using google::protobuf::FieldDescriptor;

std::string Join(std::string_view dir, std::string_view name) {
  return absl::StrCat(std::string(dir), "/", std::string(name));
}

// What tells the model from others, in a job of its own.
v1::JobSpec WithDefaults(const v1::ModelSpec& model) {
  v1::JobSpec job;
  *job.mutable_model() = model;
  const auto* descriptor = v1::ModelSpec::descriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const FieldDescriptor* field = descriptor->field(i);
    if (spec::RowOf(*field).same_model()) {
      model.GetReflection()->ClearField(job.mutable_model(), field);
    }
  }
  // With defaults, so that an old checkpoint and a new job can be compared field by field.
  spec::FillRowDefaults(job);
  return job;
}

std::string ValueText(const google::protobuf::Message& message, const FieldDescriptor& field) {
  const auto& reflection = *message.GetReflection();
  std::string text;
  if (field.is_repeated()) {
    for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
      std::string element;
      google::protobuf::TextFormat::PrintFieldValueToString(message, &field, i, &element);
      absl::StrAppend(&text, i > 0 ? ", " : "", element);
    }
    return absl::StrCat("[", text, "]");
  }
  if (!reflection.HasField(message, &field)) {
    return "unset";
  }
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return absl::StrCat(reflection.GetInt32(message, &field));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return absl::StrCat(reflection.GetDouble(message, &field));
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.GetBool(message, &field) ? "true" : "false";
    case FieldDescriptor::CPPTYPE_STRING:
      return reflection.GetString(message, &field);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return reflection.GetMessage(message, &field).ShortDebugString();
    default:
      google::protobuf::TextFormat::PrintFieldValueToString(message, &field, -1, &text);
      return text;
  }
}

// What verifies at one path, or why it does not.
absl::StatusOr<LoadedCheckpoint> OpenVerified(Env& env, const CheckpointCandidate& candidate) {
  // Everything is verified before anything is parsed: damaged bytes never reach the parsers below.
  HEARTH_RETURN_IF_ERROR(VerifyCheckpoint(env, candidate.path, candidate.manifest_sha256));
  LoadedCheckpoint loaded;
  loaded.path = candidate.path;
  const std::string meta_file = Join(candidate.path, kMetaFile);
  HEARTH_ASSIGN_OR_RETURN(const std::string text, env.ReadFile(meta_file));
  HEARTH_ASSIGN_OR_RETURN(loaded.meta, ParseMeta(text, meta_file));
  if (candidate.step > 0 && loaded.meta.step != candidate.step) {
    return absl::DataLossError(absl::StrCat(meta_file, ": is of step ", loaded.meta.step,
                                            ", expected step ", candidate.step));
  }
  HEARTH_ASSIGN_OR_RETURN(loaded.meta.plans_json, env.ReadFile(Join(candidate.path, kPlansFile)));
  HEARTH_ASSIGN_OR_RETURN(loaded.state,
                          SafetensorsFile::Open(env, Join(candidate.path, kStateFile)));
  for (int rank = 0; loaded.meta.shards > 1 && rank < loaded.meta.shards; ++rank) {
    HEARTH_ASSIGN_OR_RETURN(
        std::unique_ptr<SafetensorsFile> shard,
        SafetensorsFile::Open(env, Join(candidate.path, ShardFile(rank, loaded.meta.shards))));
    loaded.shards.push_back(std::move(shard));
  }
  return loaded;
}

// Those that every checkpoint has, and of a sharded one all parts.
absl::Status CheckListed(const std::string& manifest_file, const std::set<std::string>& listed) {
  std::vector<std::string> needed = {std::string(kMetaFile), std::string(kPlansFile),
                                     std::string(kStateFile)};
  for (const std::string& file : listed) {
    // The name of one shard says how many there are; all of them must be listed.
    const int shards = ShardsOfFile(file);
    for (int rank = 0; rank < shards && file == ShardFile(0, shards); ++rank) {
      needed.push_back(ShardFile(rank, shards));
    }
  }
  for (const std::string& file : needed) {
    if (listed.count(file) == 0) {
      return absl::DataLossError(absl::StrCat(manifest_file, ": does not list ", file));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status VerifyCheckpoint(Env& env, const std::string& path, std::string_view manifest_sha256) {
  const std::string manifest_file = Join(path, kManifestFile);
  if (!env.Exists(path)) {
    return absl::NotFoundError(absl::StrCat(path, ": no such checkpoint"));
  }
  if (!env.Exists(manifest_file)) {
    return absl::DataLossError(absl::StrCat(manifest_file, ": missing: the checkpoint is torn"));
  }
  HEARTH_ASSIGN_OR_RETURN(const std::string text, env.ReadFile(manifest_file));
  // The coordinator has the hash of the manifest, the manifest has those of the files: a folder
  // that somebody replaced is noticed even if it is consistent in itself.
  if (!manifest_sha256.empty() && Sha256Hex(text) != manifest_sha256) {
    return absl::DataLossError(absl::StrCat(manifest_file, ": SHA-256 is ", Sha256Hex(text),
                                            ", recorded ", std::string(manifest_sha256)));
  }
  HEARTH_ASSIGN_OR_RETURN(const std::vector<ManifestEntry> entries,
                          ParseManifest(text, manifest_file));
  std::set<std::string> listed;
  for (const ManifestEntry& entry : entries) {
    const std::string file = Join(path, entry.path);
    if (!env.Exists(file)) {
      return absl::DataLossError(absl::StrCat(file, ": missing"));
    }
    // Sizes of all files first: they cost nothing, and a torn file is found without reading 20 GiB.
    HEARTH_ASSIGN_OR_RETURN(const int64_t size, env.FileSize(file));
    if (size != entry.bytes) {
      return absl::DataLossError(
          absl::StrCat(file, ": ", size, " bytes, the manifest says ", entry.bytes));
    }
    listed.insert(entry.path);
  }
  // The hashes come last: they read all bytes.
  HEARTH_RETURN_IF_ERROR(CheckListed(manifest_file, listed));
  return weights::CheckSums(env, path, entries);
}

std::vector<std::string> ModelDifferences(const v1::ModelSpec& checkpoint,
                                          const v1::ModelSpec& job) {
  // A field that is younger than the checkpoint has its default there.
  const v1::JobSpec before = WithDefaults(checkpoint);
  const v1::JobSpec now = WithDefaults(job);
  std::vector<std::string> differences;
  const auto* descriptor = v1::ModelSpec::descriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const FieldDescriptor& field = *descriptor->field(i);
    const v1::FieldRow& row = spec::RowOf(field);
    const std::string& condition = row.applies_when();
    const bool idle = !condition.empty() && spec::Evaluate(condition, before) == spec::Truth::kNo &&
                      spec::Evaluate(condition, now) == spec::Truth::kNo;
    if (idle || row.same_model()) {
      continue;
    }
    const std::string a = ValueText(before.model(), field);
    const std::string b = ValueText(now.model(), field);
    if (a != b) {
      differences.push_back(
          absl::StrCat("model.", field.name(), ": the checkpoint has ", a, ", the job ", b));
    }
  }
  return differences;
}

absl::StatusOr<LoadedCheckpoint> LoadCheckpoint(Env& env,
                                                const std::vector<CheckpointCandidate>& candidates,
                                                const v1::ModelSpec& model) {
  HEARTH_RETURN_IF_ERROR(fault::Check("checkpoint.before_load"));
  absl::Status first = absl::NotFoundError("no checkpoint given");
  std::vector<std::string> notes;
  for (size_t i = 0; i < candidates.size(); ++i) {
    absl::StatusOr<LoadedCheckpoint> loaded = OpenVerified(env, candidates[i]);
    // The newest one's error is what the user should see if none can be used.
    if (!loaded.ok()) {
      if (i == 0) {
        first = loaded.status();
      }
      notes.push_back(absl::StrCat("checkpoint ", candidates[i].path,
                                   " cannot be used: ", std::string(loaded.status().message())));
      continue;
    }
    const std::vector<std::string> differences = ModelDifferences(loaded->meta.model, model);
    // An older checkpoint would be of the same other model, so there is no point in trying it.
    if (!differences.empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat(candidates[i].path,
                       ": a checkpoint of another model: ", absl::StrJoin(differences, "; ")));
    }
    if (!notes.empty()) {
      notes.push_back(absl::StrCat("falling back to the checkpoint of step ", loaded->meta.step,
                                   " at ", loaded->path));
    }
    loaded->notes = std::move(notes);
    return loaded;
  }
  return first;
}

}  // namespace hearth::trainer
