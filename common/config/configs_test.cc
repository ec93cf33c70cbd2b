// The files under configs/: model files say what the presets say, job files pass every check.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "common/base/system.h"
#include "common/config/config.h"
#include "common/spec/model/model_shape.h"
#include "common/spec/model/presets.h"
#include "common/spec/plan/plan_inputs.h"
#include "common/spec/resolve/resolve.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"

namespace hearth::config {
namespace {

using ::google::protobuf::util::MessageDifferencer;
namespace fs = std::filesystem;

std::vector<fs::path> YamlFiles(const std::string& folder) {
  // Read once, before any thread: ctest names the source folder.
  const char* source = GetEnv("HEARTH_SOURCE_DIR");
  const fs::path root = fs::path(source == nullptr ? "." : source) / "configs" / folder;
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(root)) {
    if (entry.path().extension() == ".yaml") {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

v1::JobSpec Parse(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  auto job = ParseJobSpec(text, path.filename().string());
  EXPECT_TRUE(job.ok()) << job.status();
  return job.ok() ? *std::move(job) : v1::JobSpec();
}

std::string Problems(v1::JobSpec& job) {
  std::vector<spec::FieldViolation> violations;
  spec::Resolve(job, violations);
  std::string text;
  for (const spec::FieldViolation& violation : violations) {
    text += violation.field + ": " + violation.description + "\n";
  }
  return text;
}

TEST(ConfigsTest, ModelFiles_EqualThePresetsOneForOne) {
  std::set<std::string> seen;
  for (const fs::path& path : YamlFiles("models")) {
    const std::string name = path.stem().string();
    const spec::Preset* preset = spec::FindPreset(name);
    ASSERT_NE(preset, nullptr) << path;
    const v1::JobSpec file = Parse(path);
    EXPECT_TRUE(MessageDifferencer::Equals(file.model(), preset->model))
        << path << "\n"
        << file.model().DebugString() << "is not\n"
        << preset->model.DebugString();
    seen.insert(name);
  }
  for (const spec::Preset& preset : spec::Presets()) {
    EXPECT_EQ(seen.count(std::string(preset.name)), 1u) << preset.name << " has no file";
  }
}

TEST(ConfigsTest, JobFiles_PassEveryCheck) {
  const std::vector<fs::path> files = YamlFiles("jobs");
  EXPECT_GE(files.size(), 10u);
  for (const fs::path& path : files) {
    v1::JobSpec job = Parse(path);
    EXPECT_EQ(job.name(), path.stem().string()) << path;
    EXPECT_EQ(Problems(job), "") << path;
    if (job.model().has_from()) {
      continue;  // the shape is in a folder that is not made yet
    }
    if (!job.model().has_vocab()) {
      job.mutable_model()->set_vocab(2048);
    }
    const auto shape = spec::ResolveModelShape(job.model(), job.data().sequence_length());
    ASSERT_TRUE(shape.ok()) << path << ": " << shape.status();
    const auto batch = spec::ResolveBatchPlan(job, job.batch().micro_batch_size(),
                                              std::max(1, job.resources().workers()));
    EXPECT_TRUE(batch.ok()) << path << ": " << batch.status();
    // What a GPU's kernels ask for: heads of 64 or 128, GEMM sides in whole 16-byte rows in FP8.
    if (job.resources().device() == "cuda") {
      EXPECT_TRUE(shape->head_dim == 64 || shape->head_dim == 128) << path;
      EXPECT_EQ(shape->hidden % 16 + shape->ffn_in_width() % 16 + shape->qkv_width() % 16, 0)
          << path;
    }
  }
}

}  // namespace
}  // namespace hearth::config
