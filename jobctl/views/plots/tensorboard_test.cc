#include "jobctl/views/plots/tensorboard.h"

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "common/io/crc32c.h"
#include "gmock/gmock.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/wire_format_lite.h"
#include "gtest/gtest.h"
#include "tests/support/common/valid_job.h"

namespace hearth::jobctl {
namespace {

using google::protobuf::internal::WireFormatLite;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

uint64_t Load(const std::string& bytes, size_t at, int count) {
  uint64_t value = 0;
  for (int i = count; i-- > 0;) {
    value = value << 8 | static_cast<uint8_t>(bytes[at + static_cast<size_t>(i)]);
  }
  return value;
}

uint32_t Masked(const std::string& bytes) {
  Crc32c sum;
  sum.Extend(bytes);
  return ((sum.value() >> 15) | (sum.value() << 17)) + 0xa282ead8u;
}

// The data of the records, whose sums are checked as readers do.
std::vector<std::string> Records(const std::string& file) {
  std::vector<std::string> records;
  size_t at = 0;
  while (at < file.size()) {
    const uint64_t length = Load(file, at, 8);
    EXPECT_EQ(Load(file, at + 8, 4), Masked(file.substr(at, 8)));
    records.push_back(file.substr(at + 12, length));
    EXPECT_EQ(Load(file, at + 12 + length, 4), Masked(records.back()));
    at += 16 + length;
  }
  EXPECT_EQ(at, file.size());
  return records;
}

// The fields of a message by number: strings, and other values as 8 bytes.
std::multimap<int, std::string> Fields(const std::string& bytes) {
  std::multimap<int, std::string> fields;
  google::protobuf::io::CodedInputStream in(reinterpret_cast<const uint8_t*>(bytes.data()),
                                            static_cast<int>(bytes.size()));
  while (const uint32_t tag = in.ReadTag()) {
    uint64_t number = 0;
    uint32_t small = 0;
    std::string text;
    switch (WireFormatLite::GetTagWireType(tag)) {
      case WireFormatLite::WIRETYPE_LENGTH_DELIMITED:
        EXPECT_TRUE(in.ReadVarint32(&small) && in.ReadString(&text, static_cast<int>(small)));
        break;
      case WireFormatLite::WIRETYPE_FIXED64:
        EXPECT_TRUE(in.ReadLittleEndian64(&number));
        break;
      case WireFormatLite::WIRETYPE_FIXED32:
        EXPECT_TRUE(in.ReadLittleEndian32(&small));
        number = small;
        break;
      default:
        EXPECT_TRUE(in.ReadVarint64(&number));
    }
    if (text.empty()) {
      text.assign(reinterpret_cast<const char*>(&number), sizeof(number));
    }
    fields.emplace(WireFormatLite::GetTagFieldNumber(tag), text);
  }
  return fields;
}

std::string Only(const std::multimap<int, std::string>& fields, int number) {
  EXPECT_EQ(fields.count(number), 1u) << number;
  const auto found = fields.find(number);
  return found == fields.end() ? std::string(8, '\0') : found->second;
}

template <typename T>
T As(const std::string& bytes) {
  T value{};
  std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

v1::Job SomeJob() {
  v1::Job job;
  job.set_job_id("run-a");
  *job.mutable_spec() = spec::ValidJob();
  job.mutable_spec()->mutable_optimizer()->set_lr(0.25);
  job.mutable_spec()->mutable_resources()->set_device("cuda");
  job.mutable_spec()->mutable_model()->set_tied(true);
  job.mutable_create_time()->set_seconds(1'700'000'000);
  job.mutable_end_time()->set_seconds(1'700'000'100);
  return job;
}

// The content for the plugin HPARAMS in a record.
std::multimap<int, std::string> HParamsOf(const std::string& record, const std::string& tag) {
  const auto value = Fields(Only(Fields(Only(Fields(record), 5)), 1));
  EXPECT_EQ(Only(value, 1), tag);
  EXPECT_EQ(value.count(8), 1u) << "readers leave values without a tensor out";
  const auto plugin = Fields(Only(Fields(Only(value, 9)), 1));
  EXPECT_EQ(Only(plugin, 1), "hparams");
  return Fields(Only(plugin, 2));
}

TEST(EventRecord, Framing_IsTensorFlows) {
  // The sums were computed apart from this code, bit by bit.
  EXPECT_EQ(EventRecord("abc"),
            std::string("\x03\0\0\0\0\0\0\0", 8) + "\xb0\x99\x49\x0e" + "abc" + "\x6e\x57\xf1\x21");
}

TEST(EventFile, Head_HasTheVersionAndTheJobFile) {
  const v1::Job job = SomeJob();
  EXPECT_EQ(EventFileName(job), "events.out.tfevents.1700000000.hearth");
  const std::vector<std::string> records = Records(EventFileHead(job));
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(Only(Fields(records[0]), 3), "brain.Event:2");
  EXPECT_EQ(As<double>(Only(Fields(records[0]), 1)), 1.7e9);

  const auto start = Fields(Only(HParamsOf(records[1], "_hparams_/session_start_info"), 3));
  EXPECT_EQ(Only(start, 4), "run-a");
  EXPECT_EQ(As<double>(Only(start, 5)), 1.7e9);
  std::map<std::string, google::protobuf::Value> hparams;
  for (auto [it, end] = start.equal_range(1); it != end; ++it) {
    const auto entry = Fields(it->second);
    ASSERT_TRUE(hparams[Only(entry, 1)].ParseFromString(Only(entry, 2)));
  }
  EXPECT_EQ(hparams["optimizer.lr"].number_value(), 0.25);
  EXPECT_EQ(hparams["resources.device"].string_value(), "cuda");
  EXPECT_TRUE(hparams["model.tied"].bool_value());
  EXPECT_EQ(hparams.count("train.seed"), 0u) << "not set";
  EXPECT_EQ(hparams.count("optimizer"), 0u) << "sections have no value";
}

TEST(StepEvents, Numbers_AreWhatPlotKnowsAndEntries) {
  v1::StepReport step;
  step.set_step(12);
  step.set_loss(2.5);
  step.mutable_time()->set_seconds(1'700'000'050);
  step.mutable_time()->set_nanos(500'000'000);
  v1::EvaluationResult& result = *step.add_evaluations();
  result.set_name("quiz");
  result.set_accuracy(0.75);
  const std::vector<std::string> records = Records(StepEvents(SomeJob(), step));
  ASSERT_EQ(records.size(), 1u);
  const auto fields = Fields(records[0]);
  EXPECT_EQ(As<double>(Only(fields, 1)), 1'700'000'050.5);
  EXPECT_EQ(As<int64_t>(Only(fields, 2)), 12);
  std::map<std::string, float> values;
  const auto summary = Fields(Only(fields, 5));
  for (auto [it, end] = summary.equal_range(1); it != end; ++it) {
    const auto value = Fields(it->second);
    values[Only(value, 1)] = As<float>(Only(value, 2));
  }
  EXPECT_EQ(values["loss"], 2.5F);
  EXPECT_EQ(values["accuracy/quiz"], 0.75F);
  EXPECT_EQ(values.count("validation_loss"), 0u) << "not measured in this step";
  EXPECT_EQ(values.count("power_watts"), 0u);
}

TEST(StepEvents, ARewind_IsARestartOfTheSession) {
  v1::Rewind rewind;
  rewind.set_to_step(10);
  const std::vector<std::string> records = Records(RewindEvent(SomeJob(), rewind));
  ASSERT_EQ(records.size(), 1u);
  const auto fields = Fields(records[0]);
  EXPECT_EQ(As<int64_t>(Only(fields, 2)), 11);
  EXPECT_EQ(As<int64_t>(Only(Fields(Only(fields, 7)), 1)), 1);
}

TEST(EndEvent, State_BecomesTheStatusOfTheSession) {
  v1::Job job = SomeJob();
  job.set_state(v1::JOB_STATE_RUNNING);
  EXPECT_THAT(EndEvent(job), IsEmpty());
  const auto status = [&job](v1::JobState state) {
    job.set_state(state);
    const std::vector<std::string> records = Records(EndEvent(job));
    const auto end = Fields(Only(HParamsOf(records.at(0), "_hparams_/session_end_info"), 4));
    EXPECT_EQ(As<double>(Only(end, 2)), 1'700'000'100);
    return As<int64_t>(Only(end, 1));
  };
  EXPECT_EQ(status(v1::JOB_STATE_SUCCEEDED), 1);
  EXPECT_EQ(status(v1::JOB_STATE_FAILED), 2);
  EXPECT_EQ(status(v1::JOB_STATE_CANCELLED), 2);
}

}  // namespace
}  // namespace hearth::jobctl
