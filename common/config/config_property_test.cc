// Round trips of random specs, and random damage to a valid file. Seeds are fixed and printed on
// failure.
#include <cmath>
#include <cstdint>
#include <random>

#include "absl/strings/ascii.h"
#include "common/config/config.h"
#include "common/spec/fields/rows.h"
#include "common/spec/resolve/resolve.h"
#include "google/protobuf/descriptor.pb.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"

namespace hearth::config {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using Random = std::mt19937_64;

int64_t Below(Random& random, int64_t n) {
  return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
}

std::string RandomString(Random& random) {
  static constexpr const char* kPieces[] = {"a",
                                            "Z",
                                            "0",
                                            "010",
                                            "no",
                                            "true",
                                            "null",
                                            "~",
                                            " ",
                                            "\n",
                                            "\t",
                                            "\"",
                                            "'",
                                            "\\",
                                            ":",
                                            ": ",
                                            "#",
                                            " #",
                                            "-",
                                            "- ",
                                            "[",
                                            "]",
                                            "{",
                                            "}",
                                            ",",
                                            "&",
                                            "*",
                                            "!",
                                            "|",
                                            ">",
                                            "%",
                                            "@",
                                            "`",
                                            "?",
                                            "/",
                                            ".",
                                            "..",
                                            "---",
                                            "\xc3\xa9",
                                            "\xe2\x80\xa8",
                                            "\x01",
                                            "\x7f",
                                            "\r",
                                            "\xc2\x85",
                                            "\xef\xbb\xbf",
                                            "\xf0\x9f\x94\xa5",
                                            "auto",
                                            "1e3",
                                            "=",
                                            "<<"};
  std::string text;
  const int64_t pieces = Below(random, 5);
  for (int64_t i = 0; i < pieces; ++i) {
    text += kPieces[Below(random, std::size(kPieces))];
  }
  return text;
}

int64_t RandomInteger(Random& random) {
  const int64_t bits = static_cast<int64_t>(random());
  return bits >> Below(random, 64);
}

double RandomDouble(Random& random) {
  switch (Below(random, 4)) {
    case 0:
      return static_cast<double>(RandomInteger(random));
    case 1:
      return std::ldexp(static_cast<double>(RandomInteger(random)),
                        static_cast<int>(Below(random, 1800)) - 1000);
    case 2:
      return static_cast<double>(Below(random, 1000)) / 1000.0;
    default:
      return -1e-300 * static_cast<double>(Below(random, 10));
  }
}

// In a field that names values, a truth value is read as one of the names (config_test.cc), so it
// does not read back as it is.
std::string RandomText(Random& random, const FieldDescriptor& field) {
  std::string text = RandomString(random);
  const std::string word = absl::AsciiStrToLower(text);
  const bool truth = word == "true" || word == "false";
  return truth && !spec::NamesOf(spec::RowOf(field)).empty() ? "name" : text;
}

void Fill(Random& random, Message& message);

void FillField(Random& random, Message& message, const FieldDescriptor& field) {
  const auto* reflection = message.GetReflection();
  if (field.is_repeated()) {
    for (int64_t i = Below(random, 3); i >= 0; --i) {
      if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
        reflection->AddString(&message, &field, RandomText(random, field));
      } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_INT32) {
        reflection->AddInt32(&message, &field, static_cast<int32_t>(RandomInteger(random)));
      } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_INT64) {
        reflection->AddInt64(&message, &field, RandomInteger(random));
      } else {
        Fill(random, *reflection->AddMessage(&message, &field));
      }
    }
    return;
  }
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      reflection->SetString(&message, &field, RandomText(random, field));
      break;
    case FieldDescriptor::CPPTYPE_BOOL:
      reflection->SetBool(&message, &field, Below(random, 2) == 0);
      break;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      reflection->SetDouble(&message, &field, RandomDouble(random));
      break;
    case FieldDescriptor::CPPTYPE_INT64:
      reflection->SetInt64(&message, &field, RandomInteger(random));
      break;
    case FieldDescriptor::CPPTYPE_INT32:
      reflection->SetInt32(&message, &field, static_cast<int32_t>(RandomInteger(random)));
      break;
    case FieldDescriptor::CPPTYPE_MESSAGE:
      Fill(random, *reflection->MutableMessage(&message, &field));
      break;
    default:
      FAIL() << "the job spec has a field of a new type: " << field.full_name();
  }
}

void Fill(Random& random, Message& message) {
  if (message.GetDescriptor()->full_name() == "google.protobuf.Duration") {
    google::protobuf::Duration duration;
    const int64_t sign = Below(random, 2) == 0 ? 1 : -1;
    duration.set_seconds(sign * Below(random, 315576000000));
    duration.set_nanos(
        Below(random, 2) == 0 ? 0 : static_cast<int32_t>(sign * Below(random, 1000000000)));
    message.CopyFrom(duration);
    return;
  }
  if (message.GetDescriptor()->full_name() == "google.protobuf.Timestamp") {
    google::protobuf::Timestamp time;
    time.set_seconds(Below(random, 315537897600) - 62135596800);  // the years 1..9999
    time.set_nanos(Below(random, 2) == 0 ? 0 : static_cast<int32_t>(Below(random, 1000000000)));
    message.CopyFrom(time);
    return;
  }
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(i);
    const bool entry = message.GetDescriptor()->options().map_entry();
    if (entry || Below(random, 2) == 0) {
      FillField(random, message, field);
    }
  }
}

TEST(ToYamlPropertyTest, RandomSpecs_ReadBackEqual) {
  for (uint64_t seed = 1; seed <= 1500; ++seed) {
    Random random(seed);
    v1::JobSpec job;
    Fill(random, job);
    // Through the wire once: reflection may leave two entries of one key in a map.
    ASSERT_TRUE(job.ParseFromString(job.SerializeAsString()));
    const std::string yaml = ToYaml(job);
    const auto read = ParseJobSpec(yaml, "job.yaml");
    ASSERT_TRUE(read.ok()) << "seed " << seed << ": " << read.status() << '\n' << yaml;
    std::string difference;
    google::protobuf::util::MessageDifferencer differencer;
    differencer.ReportDifferencesToString(&difference);
    ASSERT_TRUE(differencer.Compare(job, *read)) << "seed " << seed << ": " << difference << '\n'
                                                 << yaml;
  }
}

constexpr char kValid[] = R"(name: fuzz
labels: {team: research, "a b": "c\td"}
model:
  preset: hearth-nano
  rope_scaling: {type: linear, factor: 2.0}
data:
  train:
  - /data/a
  - {path: /data/b, weight: 0.5}
  sequence_length: 128
batch: {micro_batch_size: auto, global_batch_tokens: 4096}
precision: {recipe: fp32, fallback: [bf16]}
optimizer: {lr: 3.0e-4, groups: {norm: {lr_scale: 1}}}
train: &anchor
  steps: 100
  deterministic: auto
resources: {workers: 2, time_limit: 1h30m, selector: {gpu: "yes"}}
# comment
)";

std::string Mutate(Random& random, std::string text) {
  static constexpr char kInteresting[] = "\n :-[]{},#&*!|>'\"%@`?~<=\\\t0e.";
  const int64_t edits = 1 + Below(random, 4);
  for (int64_t i = 0; i < edits && !text.empty(); ++i) {
    const auto at = static_cast<size_t>(Below(random, static_cast<int64_t>(text.size())));
    const char byte = Below(random, 2) == 0 ? kInteresting[Below(random, sizeof(kInteresting) - 1)]
                                            : static_cast<char>(random());
    switch (Below(random, 4)) {
      case 0:
        text[at] = byte;
        break;
      case 1:
        text.insert(at, 1, byte);
        break;
      case 2:
        text.erase(at, 1 + static_cast<size_t>(Below(random, 10)));
        break;
      default: {
        const auto from = static_cast<size_t>(Below(random, static_cast<int64_t>(text.size())));
        text.insert(at, text.substr(from, static_cast<size_t>(Below(random, 40))));
        break;
      }
    }
  }
  return text;
}

TEST(ParseJobSpecFuzzTest, RandomDamage_NeverCrashesAndErrorsAreNamed) {
  ASSERT_TRUE(ParseJobSpec(kValid, "job.yaml").ok()) << ParseJobSpec(kValid, "job.yaml").status();
  int parsed = 0;
  for (uint64_t seed = 1; seed <= 4000; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const std::string text = Mutate(random, kValid);
    auto job = ParseJobSpec(text, "job.yaml");
    if (!job.ok()) {
      EXPECT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_EQ(std::string(job.status().message()).rfind("job.yaml:", 0), 0u);
      continue;
    }
    ++parsed;
    std::vector<spec::FieldViolation> violations;
    spec::Resolve(*job, violations);
    const auto again = ParseJobSpec(ToYaml(*job), "again.yaml");
    ASSERT_TRUE(again.ok()) << again.status() << '\n' << text;
  }
  // Damage that always breaks the file would test the YAML library alone.
  EXPECT_GT(parsed, 100);
}

TEST(ApplyOverrideFuzzTest, RandomAssignments_NeverCrash) {
  static constexpr const char* kPaths[] = {"train.steps",
                                           "labels.a",
                                           "data.train",
                                           "model",
                                           "precision.fallback",
                                           "resources.time_limit",
                                           "optimizer.groups.norm.lr_scale",
                                           "batch.micro_batch_size"};
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    v1::JobSpec job;
    std::vector<std::string> changes;
    const std::string assignment = Mutate(
        random, std::string(kPaths[Below(random, std::size(kPaths))]) + "=" + RandomString(random));
    const absl::Status status = ApplyOverride(job, assignment);
    if (!status.ok()) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    }
    ApplyResumeOverride(job, assignment, changes).IgnoreError();
  }
}

}  // namespace
}  // namespace hearth::config
