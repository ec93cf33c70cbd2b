// The kept inputs of every fuzz target, through the same entries, in every build.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "common/base/system.h"
#include "gtest/gtest.h"
#include "hearth/v1/agent.pb.h"
#include "tests/fuzz/targets.h"

namespace hearth::fuzz {
namespace {

std::filesystem::path Corpus() {
  const char* const root = GetEnv("HEARTH_SOURCE_DIR");
  return std::filesystem::path(root == nullptr ? "." : root) / "tests/fuzz/corpus";
}

class ReplayTest : public testing::TestWithParam<Target> {};

TEST_P(ReplayTest, KeptInputs_DoNoHarm) {
  int taken = 0;
  int refused = 0;
  for (const auto& entry : std::filesystem::directory_iterator(Corpus() / GetParam().name)) {
    SCOPED_TRACE(entry.path());
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)),
                            std::istreambuf_iterator<char>());
    ++(GetParam().run(bytes) ? taken : refused);
    for (size_t cut = 0; cut < bytes.size(); cut += 1 + bytes.size() / 20) {
      GetParam().run(std::string_view(bytes).substr(0, cut));
    }
  }
  EXPECT_GE(taken, 1) << "the inputs reach the parser";
  EXPECT_GE(refused, 1);
}

INSTANTIATE_TEST_SUITE_P(Targets, ReplayTest, testing::ValuesIn(Targets()), [](const auto& row) {
  return std::string(row.param.name);
});

TEST(Corpus, OfAgentMessages_HasEachKind) {
  std::set<int> kinds;
  for (const auto& entry : std::filesystem::directory_iterator(Corpus() / "agent_message")) {
    std::ifstream file(entry.path(), std::ios::binary);
    for (int high = file.get(); file.good(); high = file.get()) {
      const int low = file.get();
      if (!file.good()) {
        break;  // it was cut off
      }
      std::string bytes(static_cast<size_t>(256 * high + low), '\0');
      file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
      v1::AgentMessage message;
      if (message.ParseFromString(bytes)) {
        kinds.insert(message.message_case());
      }
    }
  }
  const auto* const all = v1::AgentMessage::descriptor()->FindOneofByName("message");
  for (int i = 0; i < all->field_count(); ++i) {
    EXPECT_TRUE(kinds.contains(all->field(i)->number())) << all->field(i)->name();
  }
}

TEST(Corpus, HasNoFolderWithoutATarget) {
  for (const auto& entry : std::filesystem::directory_iterator(Corpus())) {
    EXPECT_NE(FindTarget(entry.path().filename().string()), nullptr) << entry.path();
  }
}

}  // namespace
}  // namespace hearth::fuzz
