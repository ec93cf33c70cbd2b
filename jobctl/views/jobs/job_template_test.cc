// The template of a job file: it is a job file, and so it is when keys are switched on.
#include "jobctl/views/jobs/job_template.h"

#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/config/config.h"
#include "common/spec/fields/facts.h"
#include "common/spec/model/presets.h"
#include "common/spec/resolve/resolve.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "re2/re2.h"
#include "tests/support/common/valid_job.h"

namespace hearth::jobctl {
namespace {

using ::google::protobuf::util::MessageDifferencer;
using ::testing::HasSubstr;

// The template with every key switched on that has a value. A # stands right before a key and its
// indent of two spaces a level; one space behind it begins prose, which may start with "word:" too.
std::string SwitchedOn(std::string text) {
  RE2::GlobalReplace(&text, R"((?m)^( *)#((?:  )*[a-z_0-9]+:.*)$)", R"(\1\2)");
  std::vector<std::string> kept;
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  for (size_t i = lines.size(); i-- > 0;) {
    const size_t indent = lines[i].find_first_not_of(' ');
    const bool key = indent != std::string::npos && lines[i][indent] != '#';
    const bool has_value = key && (lines[i].back() != ':' ||
                                   (!kept.empty() && kept.back().find_first_not_of(' ') > indent));
    if (has_value) {
      kept.push_back(lines[i]);
    }
  }
  return absl::StrJoin(kept.rbegin(), kept.rend(), "\n");
}

TEST(JobTemplate, EachPreset_ReadsBackToTheSpec) {
  for (const spec::Preset& preset : spec::Presets()) {
    v1::JobSpec job = spec::ValidJob();
    job.mutable_model()->set_preset(std::string(preset.name));
    job.mutable_data()->add_validation()->set_path("/data/held out: 1");
    job.mutable_batch()->set_micro_batch_size(0);
    (*job.mutable_labels())["team"] = "a";
    const auto read = config::ParseJobSpec(JobTemplate(job), "job.yaml");
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(MessageDifferencer::Equals(*read, job)) << JobTemplate(job);
  }
}

TEST(JobTemplate, EachField_StandsThere) {
  const std::string text = JobTemplate(spec::ValidJob());
  for (const spec::FieldFacts& facts : spec::JobFileFields()) {
    const bool of_element =
        facts.path.find('[') != std::string::npos || facts.path.find("NAME") != std::string::npos;
    if (!of_element) {
      EXPECT_TRUE(RE2::PartialMatch(text, "(?m)^ *#? *" + facts.field->name() + ":")) << facts.path;
    }
  }
}

TEST(JobTemplate, LinesFitAndCommentsStandAboveTheirKey) {
  const std::string text = JobTemplate(spec::ValidJob());
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(text, '\n'))) {
    EXPECT_LE(line.size(), 120u) << line;
  }
  EXPECT_THAT(text, HasSubstr("# Optimizer steps, 1..2^40. Required.\n  steps: 1000\n"));
  EXPECT_THAT(text, HasSubstr("#  # Peak learning rate, > 0.\n#  lr: 3e-4\n"));
  EXPECT_THAT(text,
              HasSubstr("  # Key/value heads; divides heads. Default: heads.\n  #kv_heads:\n"));
}

TEST(JobTemplate, KeysThatAreSwitchedOn_HaveTheirDefaults) {
  const std::string text = SwitchedOn(JobTemplate(spec::ValidJob()));
  const auto read = config::ParseJobSpec(text, "job.yaml");
  ASSERT_TRUE(read.ok()) << read.status() << "\n" << text;
  EXPECT_EQ(read->model().norm(), "rmsnorm");
  EXPECT_DOUBLE_EQ(read->optimizer().eps(), 1e-8);
  EXPECT_EQ(read->checkpoint().grace_seconds(), 60);
}

}  // namespace
}  // namespace hearth::jobctl
