#include "worker/trainer/checkpoint/checkpoint.h"

#include <filesystem>
#include <fstream>
#include <thread>

#include "common/io/faulty_env.h"
#include "common/io/sha256.h"
#include "common/spec/fields/conditions.h"
#include "common/spec/fields/rows.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/support/common/fake_clock.h"
#include "tests/support/common/temp_dir.h"
#include "tests/support/common/weight_folder.h"
#include "worker/trainer/checkpoint/meta.h"

namespace hearth::trainer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
namespace fs = std::filesystem;

class CheckpointTest : public ::testing::Test {
 protected:
  void SetUp() override { model_ = MakeTestModel("qwen3"); }

  CheckpointContent Content(int64_t step) {
    CheckpointContent content;
    content.meta.job_id = "j";
    content.meta.epoch = 2;
    content.meta.step = step;
    content.meta.tokens = step * 64;
    content.meta.next_sample = step * 4;
    content.meta.seed = 0xffffffffffffffffu;
    content.meta.recorded.mutable_data()->set_sequence_length(16);
    content.meta.recorded.mutable_data()->set_packing("best_fit");
    content.meta.recorded.mutable_data()->set_attention("document");
    content.meta.model = model_.spec;
    content.meta.plans_json = "{\"threads\": 2}\n";
    content.meta.extra_json = "{\"window\": [1.5]}";
    content.table = &model_.table;
    content.weights = model_.pointers();
    for (size_t i = 0; i < model_.table.size(); ++i) {
      content.state.push_back({"master/" + model_.table[i].name, TensorDType::kF32,
                               model_.table[i].shape, model_.weights[i].data()});
    }
    return content;
  }

  absl::StatusOr<CommittedCheckpoint> Write(int64_t step,
                                            int32_t keep = 0,
                                            Env& env = Env::Real()) {
    return WriteCheckpoint(env, Clock::Real(), dir_, Content(step), keep);
  }

  const TempDir temp_;
  const std::string dir_ = temp_.path();
  TestModel model_;
};

TEST_F(CheckpointTest, Load_OfWritten_RoundTrips) {
  const auto done = Write(7);
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_EQ(done->path, dir_ + "/step-00000007");
  int64_t bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(done->path)) {
    if (entry.is_regular_file()) {
      bytes += static_cast<int64_t>(entry.file_size());
    }
  }
  EXPECT_EQ(done->bytes, bytes);
  const auto loaded =
      LoadCheckpoint(Env::Real(), {{done->path, 7, done->manifest_sha256}}, model_.spec);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_THAT(loaded->notes, IsEmpty());
  EXPECT_EQ(loaded->meta.step, 7);
  EXPECT_EQ(loaded->meta.next_sample, 28);
  EXPECT_EQ(loaded->meta.seed, 0xffffffffffffffffu);
  EXPECT_EQ(loaded->meta.recorded.data().packing(), "best_fit");
  EXPECT_EQ(loaded->meta.recorded.data().attention(), "document");
  EXPECT_EQ(loaded->meta.plans_json, "{\"threads\": 2}\n");
  EXPECT_EQ(loaded->meta.extra_json, "{\"window\":[1.5]}");
  for (const TensorView& want : Content(7).state) {
    const auto got = loaded->state->Get(want.name, want.dtype, want.shape);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(std::memcmp((*got)->data, want.data, static_cast<size_t>(want.bytes())), 0);
  }
}

// Keys that the job's fields were recorded under before they were rows, and files without them.
TEST_F(CheckpointTest, ParseMeta_RecordedFields_AreReadAsEveryVersionWroteThem) {
  CheckpointMeta meta = Content(7).meta;
  meta.recorded.set_task("sft");
  nlohmann::json json = nlohmann::json::parse(MetaToJson(meta));
  EXPECT_EQ(json["task"], "sft");
  EXPECT_EQ(json["sequence_length"], 16);
  EXPECT_EQ(json["packing"], "best_fit");
  EXPECT_EQ(json["attention"], "document");
  json["task"] = "";
  json.erase("packing");
  const auto older = ParseMeta(json.dump(), "meta.json");
  ASSERT_TRUE(older.ok()) << older.status();
  EXPECT_FALSE(older->recorded.has_task());
  EXPECT_FALSE(older->recorded.data().has_packing());
  EXPECT_EQ(older->recorded.data().attention(), "document");
  json["sequence_length"] = "long";
  EXPECT_EQ(ParseMeta(json.dump(), "meta.json").status().code(), absl::StatusCode::kDataLoss);
}

// As the first version wrote it, to the letter.
constexpr std::string_view kFirstMeta = R"json({
  "format": "hearth-state",
  "version": 1,
  "job_id": "first-x7k2m",
  "epoch": 2,
  "step": 40,
  "tokens": 40960,
  "next_sample": 640,
  "seed": 1234,
  "world_size": 2,
  "shards": 2,
  "sequence_length": 64,
  "global_batch_tokens": 1024,
  "micro_batch_size": 4,
  "recipe": "fp8",
  "spec_sha256": "ab",
  "validation_loss": 3.5,
  "model": {
    "layers": 2,
    "hidden": 32,
    "rope_theta": 10000.0,
    "tied": true
  },
  "extra": {
    "ladder": {
      "counts": [0, 1, 0, 1, 0, 0],
      "fallback_rung": 0
    },
    "losses": [3.25],
    "log_norms": [-0.5]
  }
}
)json";

TEST_F(CheckpointTest, ParseMeta_OfTheFirstVersion_IsRead) {
  const auto meta = ParseMeta(kFirstMeta, "meta.json");
  ASSERT_TRUE(meta.ok()) << meta.status();
  EXPECT_EQ(meta->job_id, "first-x7k2m");
  EXPECT_EQ(meta->epoch, 2);
  EXPECT_EQ(meta->step, 40);
  EXPECT_EQ(meta->tokens, 40960);
  EXPECT_EQ(meta->next_sample, 640);
  EXPECT_EQ(meta->seed, 1234U);
  EXPECT_EQ(meta->world_size, 2);
  EXPECT_EQ(meta->shards, 2);
  EXPECT_EQ(meta->recorded.data().sequence_length(), 64);
  EXPECT_EQ(meta->global_batch_tokens, 1024);
  EXPECT_EQ(meta->micro_batch_size, 4);
  EXPECT_EQ(meta->recipe, "fp8");
  EXPECT_EQ(meta->spec_sha256, "ab");
  EXPECT_EQ(meta->validation_loss, 3.5);
  EXPECT_EQ(meta->model.hidden(), 32);
  EXPECT_EQ(meta->model.rope_theta(), 10000.0);
  EXPECT_TRUE(meta->model.tied());
  const nlohmann::json extra = nlohmann::json::parse(meta->extra_json);
  EXPECT_EQ(extra["losses"], nlohmann::json({3.25}));
  EXPECT_EQ(extra["ladder"]["counts"].size(), 6U);
  // Before the optimizer could be divided there was no such key.
  nlohmann::json older = nlohmann::json::parse(kFirstMeta);
  older.erase("shards");
  const auto whole = ParseMeta(older.dump(), "meta.json");
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->shards, CheckpointMeta().shards);
}

// A number that no integer holds is another type, not an undefined conversion.
TEST_F(CheckpointTest, ParseMeta_NumberOutsideItsInteger_IsDataLoss) {
  const nlohmann::json json = nlohmann::json::parse(MetaToJson(Content(7).meta));
  for (const nlohmann::json& number : {nlohmann::json(7.06667e29), nlohmann::json(1.5),
                                       nlohmann::json(std::numeric_limits<uint64_t>::max())}) {
    nlohmann::json wrong = json;
    wrong["step"] = number;
    EXPECT_EQ(ParseMeta(wrong.dump(), "meta.json").status().code(), absl::StatusCode::kDataLoss)
        << number;
  }
}

TEST_F(CheckpointTest, Write_SameStateTwice_SameBytes) {
  const auto a = Write(7);
  const auto b = Write(7);  // replaces
  ASSERT_TRUE(a.ok() && b.ok()) << b.status();
  EXPECT_EQ(a->manifest_sha256, b->manifest_sha256);
  EXPECT_THAT(ListCheckpointSteps(Env::Real(), dir_), ElementsAre(7));
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_), fs::directory_iterator()), 1);
}

TEST_F(CheckpointTest, Write_KeepLast_RemovesOldestAndTemporaries) {
  fs::create_directories(dir_ + "/step-00000001.tmp-99999/state");
  fs::create_directories(dir_ + "/notes");
  std::vector<int64_t> removed;
  for (int64_t step = 1; step <= 5; ++step) {
    const auto done = Write(step, 3);
    ASSERT_TRUE(done.ok()) << done.status();
    removed.insert(removed.end(), done->removed_steps.begin(), done->removed_steps.end());
  }
  EXPECT_THAT(removed, ElementsAre(1, 2));
  EXPECT_THAT(ListCheckpointSteps(Env::Real(), dir_), ElementsAre(3, 4, 5));
  ASSERT_TRUE(Write(6, 1).ok());
  EXPECT_THAT(ListCheckpointSteps(Env::Real(), dir_), ElementsAre(5, 6));  // never its predecessor
  EXPECT_FALSE(fs::exists(dir_ + "/step-00000001.tmp-99999"));
  EXPECT_TRUE(fs::exists(dir_ + "/notes"));
}

TEST_F(CheckpointTest, Verify_EachFileDamagedOrMissing_NamesIt) {
  const auto done = Write(3);
  ASSERT_TRUE(done.ok());
  ASSERT_TRUE(VerifyCheckpoint(Env::Real(), done->path, done->manifest_sha256).ok());
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(done->path)) {
    if (entry.is_regular_file()) {
      files.push_back(entry.path());
    }
  }
  EXPECT_EQ(files.size(), 6u);
  for (const std::string& file : files) {
    const std::string bytes = *Env::Real().ReadFile(file);
    std::string damaged = bytes;
    damaged[bytes.size() / 2] ^= 1;
    for (const std::string& bad : {damaged, bytes.substr(0, bytes.size() - 1)}) {
      ASSERT_TRUE(Env::Real().WriteFileAtomically(file, bad).ok());
      const absl::Status status = VerifyCheckpoint(Env::Real(), done->path, done->manifest_sha256);
      EXPECT_TRUE(absl::IsDataLoss(status)) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr(file));
    }
    fs::remove(file);
    const absl::Status status = VerifyCheckpoint(Env::Real(), done->path);
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(file));
    ASSERT_TRUE(Env::Real().WriteFileAtomically(file, bytes).ok());
  }
  EXPECT_TRUE(absl::IsNotFound(VerifyCheckpoint(Env::Real(), dir_ + "/none")));
}

TEST_F(CheckpointTest, Write_AnyNumberOfThreads_SameBytes) {
  std::vector<std::string> digests;
  for (const int threads : {1, 2, 5}) {
    CheckpointContent content = Content(7);
    content.threads = threads;
    const auto done = WriteCheckpoint(Env::Real(), Clock::Real(), dir_, content, 0);
    ASSERT_TRUE(done.ok()) << done.status();
    digests.push_back(done->manifest_sha256);
  }
  EXPECT_EQ(digests[0], digests[1]);
  EXPECT_EQ(digests[0], digests[2]);
}

// A manifest as version 1 wrote it.
std::string OldManifest(const std::string& path) {
  nlohmann::ordered_json json = {{"format", "hearth-checkpoint"}, {"version", 1}, {"step", 3}};
  for (const auto& entry : fs::recursive_directory_iterator(path)) {
    if (entry.is_regular_file() && entry.path().filename() != "MANIFEST.json") {
      json["files"].push_back({{"path", fs::relative(entry.path(), path).string()},
                               {"bytes", entry.file_size()},
                               {"sha256", *Sha256HexOfFile(Env::Real(), entry.path())}});
    }
  }
  return json.dump(2) + "\n";
}

TEST_F(CheckpointTest, Load_OldManifest_VerifiesBySha256) {
  const auto done = Write(3);
  ASSERT_TRUE(done.ok());
  const std::string manifest = OldManifest(done->path);
  ASSERT_TRUE(Env::Real().WriteFileAtomically(done->path + "/MANIFEST.json", manifest).ok());
  const auto loaded =
      LoadCheckpoint(Env::Real(), {{done->path, 3, Sha256Hex(manifest)}}, model_.spec);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const std::string file = done->path + "/state/tensors.safetensors";
  std::string bytes = *Env::Real().ReadFile(file);
  bytes.back() ^= 1;
  ASSERT_TRUE(Env::Real().WriteFileAtomically(file, bytes).ok());
  const absl::Status status = VerifyCheckpoint(Env::Real(), done->path);
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("tensors.safetensors: SHA-256 is "));
}

TEST_F(CheckpointTest, Verify_ManifestOfANewerVersion_SaysSo) {
  const auto done = Write(3);
  ASSERT_TRUE(done.ok());
  const std::string file = done->path + "/MANIFEST.json";
  std::string manifest = *Env::Real().ReadFile(file);
  const std::string version = "\"version\": 2";
  ASSERT_THAT(manifest, HasSubstr(version));
  manifest.replace(manifest.find(version), version.size(), "\"version\": 3");
  ASSERT_TRUE(Env::Real().WriteFileAtomically(file, manifest).ok());
  const absl::Status status = VerifyCheckpoint(Env::Real(), done->path);
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("version is not one of 1 to 2"));
}

TEST_F(CheckpointTest, Load_TornNewest_FallsBackAndSaysSo) {
  const auto a = Write(1);
  const auto b = Write(2);
  const auto c = Write(3);
  fs::resize_file(c->path + "/model.safetensors", 100);
  fs::remove(b->path + "/MANIFEST.json");
  const std::vector<CheckpointCandidate> all = {
      {c->path, 3, ""}, {b->path, 2, ""}, {a->path, 1, ""}};
  const auto loaded = LoadCheckpoint(Env::Real(), all, model_.spec);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->meta.step, 1);
  ASSERT_EQ(loaded->notes.size(), 3u);
  EXPECT_THAT(loaded->notes[0], HasSubstr("step-00000003/model.safetensors: 100 bytes"));
  EXPECT_THAT(loaded->notes[1], HasSubstr("step-00000002/MANIFEST.json: missing"));
  EXPECT_THAT(loaded->notes[2], HasSubstr("falling back to the checkpoint of step 1"));
  const auto none = LoadCheckpoint(Env::Real(), {all[0], all[1]}, model_.spec);
  EXPECT_TRUE(absl::IsDataLoss(none.status()));
  EXPECT_THAT(std::string(none.status().message()), HasSubstr("model.safetensors"));
}

TEST_F(CheckpointTest, Load_OtherModel_NamesTheFields) {
  const auto done = Write(1);
  v1::ModelSpec other = model_.spec;
  other.set_hidden(32);
  other.set_tied(false);
  other.set_init_std(0.5);
  other.set_max_position(999);  // rope: not part of the model
  const auto loaded = LoadCheckpoint(Env::Real(), {{done->path, 1, ""}}, other);
  EXPECT_TRUE(absl::IsFailedPrecondition(loaded.status()));
  EXPECT_THAT(std::string(loaded.status().message()),
              HasSubstr("model.hidden: the checkpoint has 16, the job 32; "
                        "model.tied: the checkpoint has true, the job false"));
  EXPECT_EQ(ModelDifferences(model_.spec, other).size(), 2u);
  // A checkpoint that is older than a field has the field's default.
  v1::ModelSpec older = model_.spec;
  older.clear_qk_norm();
  older.clear_rope_scaling();
  v1::ModelSpec now = older;
  now.set_qk_norm(false);
  EXPECT_THAT(ModelDifferences(older, now), ::testing::IsEmpty());
  now.set_qk_norm(true);
  EXPECT_EQ(ModelDifferences(older, now).size(), 1u);
}

// Another value of the field, in the formats that fields of a model have.
void ChangeValue(const google::protobuf::FieldDescriptor& field, v1::ModelSpec& model) {
  using google::protobuf::FieldDescriptor;
  const auto& reflection = *model.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection.SetInt32(&model, &field, reflection.GetInt32(model, &field) + 1);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return reflection.SetDouble(&model, &field, reflection.GetDouble(model, &field) + 0.25);
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.SetBool(&model, &field, !reflection.GetBool(model, &field));
    case FieldDescriptor::CPPTYPE_STRING:
      return reflection.SetString(&model, &field, "other");
    default:
      ASSERT_EQ(field.name(), "rope_scaling") << "say here how to change it";
      model.mutable_rope_scaling()->set_type("linear");
  }
}

TEST_F(CheckpointTest, ModelDifferences_EveryField_IsComparedUnlessItsRowSaysSameModel) {
  v1::JobSpec job;
  *job.mutable_model() = model_.spec;
  spec::FillRowDefaults(job);
  for (const char* position : {"rope", "learned"}) {
    job.mutable_model()->set_position(position);
    const v1::ModelSpec& model = job.model();
    for (int i = 0; i < v1::ModelSpec::descriptor()->field_count(); ++i) {
      const google::protobuf::FieldDescriptor& field = *v1::ModelSpec::descriptor()->field(i);
      v1::JobSpec other = job;
      ChangeValue(field, *other.mutable_model());
      const std::string& condition = spec::RowOf(field).applies_when();
      const bool idle = !condition.empty() && spec::Evaluate(condition, job) == spec::Truth::kNo;
      if (idle || spec::RowOf(field).same_model()) {
        EXPECT_THAT(ModelDifferences(model, other.model()), ::testing::IsEmpty()) << field.name();
      } else {
        EXPECT_THAT(ModelDifferences(model, other.model()),
                    ::testing::Contains(HasSubstr("model." + field.name() + ": ")));
      }
    }
  }
}

TEST_F(CheckpointTest, Write_DiskFull_KeepsTheOldOneAndLeavesNothing) {
  ASSERT_TRUE(Write(1).ok());
  for (const int64_t space : {0, 100, 5000, 20000}) {
    FaultyEnv env(Env::Real());
    env.SetDiskSpace(space);
    const auto done = Write(2, 1, env);
    EXPECT_TRUE(absl::IsResourceExhausted(done.status())) << done.status();
    EXPECT_THAT(std::string(done.status().message()), HasSubstr("step-00000002.tmp-"));
    EXPECT_EQ(std::distance(fs::directory_iterator(dir_), fs::directory_iterator()), 1);
    EXPECT_TRUE(VerifyCheckpoint(Env::Real(), dir_ + "/step-00000001").ok());
  }
}

TEST_F(CheckpointTest, Write_FailureAtAnyOperation_OldOrNewVerifies) {
  ASSERT_TRUE(Write(1).ok());
  FaultyEnv counting(Env::Real());
  ASSERT_TRUE(Write(2, 3, counting).ok());
  fs::remove_all(dir_ + "/step-00000002");
  for (int64_t n = 1; n <= counting.operations(); ++n) {
    FaultyEnv env(Env::Real());
    env.FailAfter(n, absl::InternalError("injected"), /*sticky=*/true);
    EXPECT_FALSE(Write(2, 3, env).ok() && n < counting.operations()) << n;
    EXPECT_TRUE(VerifyCheckpoint(Env::Real(), dir_ + "/step-00000001").ok()) << n;
    for (const int64_t step : ListCheckpointSteps(Env::Real(), dir_)) {
      EXPECT_TRUE(VerifyCheckpoint(Env::Real(), CheckpointPath(dir_, step)).ok()) << n;
    }
    fs::remove_all(dir_ + "/step-00000002");
  }
}

TEST_F(CheckpointTest, Write_PowerCutAfterReturn_Verifies) {
  FaultyEnv env(Env::Real());
  const auto done = Write(2, 3, env);
  ASSERT_TRUE(done.ok());
  ASSERT_TRUE(env.DropUnsynced().ok());
  EXPECT_TRUE(VerifyCheckpoint(Env::Real(), done->path, done->manifest_sha256).ok());
}

// What rank 0 sees of a network file system that caches: not listed at all, and found at the n-th
// look.
class StaleEnv : public FaultyEnv {
 public:
  StaleEnv(std::string hidden, int until)
      : FaultyEnv(Env::Real()), hidden_(std::move(hidden)), until_(until) {}
  absl::StatusOr<int64_t> FileSize(const std::string& path) override {
    if (path.find(hidden_) != std::string::npos && ++looks_ <= until_) {
      return absl::NotFoundError("stale");
    }
    return FaultyEnv::FileSize(path);
  }
  absl::StatusOr<std::vector<std::string>> ListDir(const std::string& dir) override {
    absl::StatusOr<std::vector<std::string>> names = FaultyEnv::ListDir(dir);
    if (names.ok()) {
      std::erase_if(*names, [this](const std::string& name) {
        return name.find(hidden_) != std::string::npos;
      });
    }
    return names;
  }
  int looks() const { return looks_; }

 private:
  const std::string hidden_;
  const int until_;
  int looks_ = 0;
};

// Waiting makes time pass.
class SteppingClock : public FakeClock {
 public:
  bool AwaitWithTimeout(absl::Mutex& mu,
                        const absl::Condition& condition,
                        absl::Duration timeout) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    mu.AssertHeld();
    Advance(timeout);
    return condition.Eval();
  }
};

class StaleListingTest : public CheckpointTest {
 protected:
  // What rank 0 of two gets.
  absl::StatusOr<CommittedCheckpoint> WriteOfTwo(StaleEnv& env, Clock& clock) {
    LocalKeyValueStore store;
    CheckpointContent content = Content(7);
    content.sharded = {0, 2, &store, absl::Minutes(1)};
    CheckpointContent other = Content(7);
    other.sharded = {1, 2, &store, absl::Minutes(1)};
    const std::vector<float> values = {1.0f, 2.0f, 3.0f};
    other.pieces = {{{"part", TensorDType::kF32, {3}, values.data()}, 0}};
    std::thread writer(
        [&] { EXPECT_TRUE(WriteCheckpoint(Env::Real(), Clock::Real(), dir_, other, 0).ok()); });
    auto done = WriteCheckpoint(env, clock, dir_, content, 0);
    writer.join();
    return done;
  }
};

TEST_F(StaleListingTest, PartOfAnotherHost_IsInTheManifestAlthoughNotListed) {
  SteppingClock clock;
  StaleEnv env("00001-of-00002", 3);
  const auto done = WriteOfTwo(env, clock);
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_GT(env.looks(), 3);
  const auto manifest = Env::Real().ReadFile(done->path + "/MANIFEST.json");
  EXPECT_THAT(*manifest, HasSubstr("optimizer-00001-of-00002"));
  EXPECT_TRUE(VerifyCheckpoint(Env::Real(), done->path).ok());
}

TEST_F(StaleListingTest, PartThatStaysUnseen_FailsTheCheckpointAfterSomeSeconds) {
  SteppingClock clock;
  StaleEnv env("00001-of-00002", 1 << 30);
  const auto done = WriteOfTwo(env, clock);
  EXPECT_TRUE(absl::IsUnavailable(done.status())) << done.status();
  EXPECT_THAT(std::string(done.status().message()), HasSubstr("not in the folder of rank 0"));
}

}  // namespace
}  // namespace hearth::trainer
