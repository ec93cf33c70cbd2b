#include "jobctl/views/plots/tensorboard.h"

#include <cmath>
#include <cstdint>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "common/config/yaml_writer.h"
#include "common/io/crc32c.h"
#include "common/metrics/step_metrics.h"
#include "common/spec/fields/conditions.h"
#include "common/spec/fields/rows.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/wire_format_lite.h"
#include "jobctl/views/output/output.h"

namespace hearth::jobctl {
namespace {

using google::protobuf::internal::WireFormatLite;

// Numbers of fields in tensorflow/core/util/event.proto, framework/summary.proto,
// framework/tensor.proto and tensorboard/plugins/hparams/{plugin_data,api}.proto. They never change
// there: files of all versions stay readable.
namespace event {
constexpr int kWallTime = 1;
constexpr int kStep = 2;
constexpr int kFileVersion = 3;
constexpr int kSummary = 5;
constexpr int kSessionLog = 7;
}  // namespace event
namespace session_log {
constexpr int kStatus = 1;
constexpr int kStart = 1;  // a value of the status
}  // namespace session_log
namespace summary {
constexpr int kValue = 1;
constexpr int kTag = 1;  // from here on of a value
constexpr int kSimpleValue = 2;
constexpr int kTensor = 8;
constexpr int kMetadata = 9;
constexpr int kPluginData = 1;  // of metadata
constexpr int kPluginName = 1;  // from here on of plugin data
constexpr int kContent = 2;
}  // namespace summary
namespace tensor {
constexpr int kType = 1;
constexpr int kFloat = 1;  // a value of the type
constexpr int kShape = 2;
constexpr int kDimension = 2;  // of the shape
constexpr int kSize = 1;       // of a dimension
constexpr int kFloatValues = 5;
}  // namespace tensor
namespace hparams {
constexpr int kSessionStart = 3;
constexpr int kSessionEnd = 4;
constexpr int kValues = 1;  // from here on of the start
constexpr int kGroup = 4;
constexpr int kStartSeconds = 5;
constexpr int kKey = 1;  // of an entry of the map
constexpr int kValue = 2;
constexpr int kStatus = 1;  // from here on of the end
constexpr int kEndSeconds = 2;
constexpr int kSuccess = 1;  // values of the status
constexpr int kFailure = 2;
}  // namespace hparams

// A message that is written field by field.
class Message {
 public:
  Message& Double(int field, double value) {
    return Put([=](auto* out) { WireFormatLite::WriteDouble(field, value, out); });
  }
  Message& Float(int field, float value) {
    return Put([=](auto* out) { WireFormatLite::WriteFloat(field, value, out); });
  }
  Message& Int(int field, int64_t value) {
    return Put([=](auto* out) { WireFormatLite::WriteInt64(field, value, out); });
  }
  Message& Bytes(int field, const std::string& value) {
    return Put([&](auto* out) { WireFormatLite::WriteBytes(field, value, out); });
  }
  Message& Add(int field, const Message& value) { return Bytes(field, value.bytes_); }
  const std::string& bytes() const { return bytes_; }

 private:
  template <typename Write>
  Message& Put(const Write& write) {
    google::protobuf::io::StringOutputStream stream(&bytes_);
    google::protobuf::io::CodedOutputStream coded(&stream);
    write(&coded);
    return *this;
  }

  std::string bytes_;
};

double Seconds(const google::protobuf::Timestamp& time) {
  return static_cast<double>(time.seconds()) + time.nanos() * 1e-9;
}

double TimeOfStep(const v1::Job& job, const v1::StepReport& step) {
  return Seconds(step.has_time() ? step.time() : job.create_time());
}

std::string Little(uint64_t value, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) {
    out.push_back(static_cast<char>((value >> (8 * i)) & 0xff));
  }
  return out;
}

// As TensorFlow stores a checksum: a sum over bytes that hold their own sum would be weak.
uint32_t MaskedSum(std::string_view bytes) {
  Crc32c sum;
  sum.Extend(bytes);
  const uint32_t value = sum.value();
  return ((value >> 15) | (value << 17)) + 0xa282ead8u;
}

std::string Record(const Message& message) {
  return EventRecord(message.bytes());
}

// As the page HPARAMS sorts and filters it: a number, true or false, or a text.
google::protobuf::Value HParam(const std::string& text) {
  google::protobuf::Value value;
  double number = 0.0;
  if (text == "true" || text == "false") {
    value.set_bool_value(text == "true");
  } else if (absl::SimpleAtod(text, &number) && std::isfinite(number)) {
    value.set_number_value(number);
  } else {
    const bool quoted = text.size() > 1 && text.front() == '"' && text.back() == '"';
    value.set_string_value(quoted ? text.substr(1, text.size() - 2) : text);
  }
  return value;
}

// The fields that the job's spec sets, with all defaults.
Message SessionStart(const v1::Job& job) {
  Message start;
  spec::ForEachField([&](const std::string& path, const google::protobuf::FieldDescriptor& field) {
    const spec::Place place = spec::FindPlace(job.spec(), path);
    // A section has no value itself; its fields are visited, too.
    if (spec::HasRows(field) || place.message == nullptr) {
      return;
    }
    const std::string text = config::WriteFlow(*place.message, *place.field);
    if (text != "unset") {
      start.Add(hparams::kValues, Message()
                                      .Bytes(hparams::kKey, path)
                                      .Bytes(hparams::kValue, HParam(text).SerializeAsString()));
    }
  });
  return start.Bytes(hparams::kGroup, job.job_id())
      .Double(hparams::kStartSeconds, Seconds(job.create_time()));
}

// An event of the HPARAMS plugin, whose data is in the metadata; the value must be a tensor.
std::string HParamsEvent(double time, const std::string& tag, const Message& data) {
  const Message nothing =
      Message()
          .Int(tensor::kType, tensor::kFloat)
          .Add(tensor::kShape, Message().Add(tensor::kDimension, Message().Int(tensor::kSize, 1)))
          .Float(tensor::kFloatValues, 0.0F);
  const Message plugin =
      Message().Bytes(summary::kPluginName, "hparams").Bytes(summary::kContent, data.bytes());
  const Message value = Message()
                            .Bytes(summary::kTag, tag)
                            .Add(summary::kTensor, nothing)
                            .Add(summary::kMetadata, Message().Add(summary::kPluginData, plugin));
  return Record(Message()
                    .Double(event::kWallTime, time)
                    .Add(event::kSummary, Message().Add(summary::kValue, value)));
}

}  // namespace

std::string EventRecord(std::string_view data) {
  // The length has a checksum of its own: a reader must be able to trust it before it reads on.
  const std::string length = Little(data.size(), 8);
  std::string out = length + Little(MaskedSum(length), 4);
  out.append(data);
  return out + Little(MaskedSum(data), 4);
}

std::string EventFileName(const v1::Job& job) {
  return absl::StrCat("events.out.tfevents.", job.create_time().seconds(), ".hearth");
}

std::string EventFileHead(const v1::Job& job) {
  const double time = Seconds(job.create_time());
  const Message version =
      Message().Double(event::kWallTime, time).Bytes(event::kFileVersion, "brain.Event:2");
  return Record(version) + HParamsEvent(time, "_hparams_/session_start_info",
                                        Message().Add(hparams::kSessionStart, SessionStart(job)));
}

std::string StepEvents(const v1::Job& job, const v1::StepReport& step) {
  Message values;
  for (const metrics::StepMetric& row : metrics::StepMetrics()) {
    if (row.is_text() || (row.option().plot().empty() && !row.of_entries())) {
      continue;
    }
    const auto add = [&](const std::string& tag, double value) {
      values.Add(summary::kValue, Message()
                                      .Bytes(summary::kTag, tag)
                                      .Float(summary::kSimpleValue, static_cast<float>(value)));
    };
    if (row.of_entries()) {
      row.ForEach(step, [&](const std::string& label, double value) {
        add(absl::StrCat(row.field(), "/", label), value);
      });
    } else if (const std::optional<double> value = row.Value(step); value.has_value()) {
      add(row.field(), *value);
    }
  }
  return Record(Message()
                    .Double(event::kWallTime, TimeOfStep(job, step))
                    .Int(event::kStep, step.step())
                    .Add(event::kSummary, values));
}

std::string RewindEvent(const v1::Job& job, const v1::Rewind& rewind) {
  // When a session starts at a step, TensorBoard drops what it had from that step on. These steps
  // are trained again, and their new values follow.
  return Record(
      Message()
          .Double(event::kWallTime, Seconds(job.create_time()))
          .Int(event::kStep, rewind.to_step() + 1)
          .Add(event::kSessionLog, Message().Int(session_log::kStatus, session_log::kStart)));
}

std::string EndEvent(const v1::Job& job) {
  if (!Ended(job.state())) {
    return "";
  }
  const int status = job.state() == v1::JOB_STATE_SUCCEEDED ? hparams::kSuccess : hparams::kFailure;
  const double time = Seconds(job.end_time());
  const Message end = Message().Int(hparams::kStatus, status).Double(hparams::kEndSeconds, time);
  return HParamsEvent(time, "_hparams_/session_end_info", Message().Add(hparams::kSessionEnd, end));
}

}  // namespace hearth::jobctl
