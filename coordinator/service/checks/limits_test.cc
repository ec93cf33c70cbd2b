#include "coordinator/service/checks/limits.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hearth/v1/generate.pb.h"
#include "hearth/v1/identity.pb.h"
#include "hearth/v1/plan.pb.h"
#include "hearth/v1/worker.pb.h"

namespace hearth::coordinator {
namespace {

using testing::HasSubstr;

// Every string of every request, by reflection: no field has no limit.
TEST(LimitsTest, EveryStringOfEveryRequest_IsBounded) {
  int strings = 0;
  for (const google::protobuf::FileDescriptor* file :
       {v1::Job::descriptor()->file(), v1::Worker::descriptor()->file(),
        v1::Token::descriptor()->file(), v1::SampleCheckpointRequest::descriptor()->file(),
        v1::PlanJobRequest::descriptor()->file()}) {
    for (int i = 0; i < file->service_count(); ++i) {
      for (int k = 0; k < file->service(i)->method_count(); ++k) {
        const google::protobuf::Descriptor* const type = file->service(i)->method(k)->input_type();
        for (int f = 0; f < type->field_count(); ++f) {
          const google::protobuf::FieldDescriptor* const field = type->field(f);
          if (field->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_STRING) {
            continue;
          }
          const std::unique_ptr<google::protobuf::Message> request(
              google::protobuf::MessageFactory::generated_factory()->GetPrototype(type)->New());
          const std::string huge(2 << 20, 'x');
          field->is_repeated() ? request->GetReflection()->AddString(request.get(), field, huge)
                               : request->GetReflection()->SetString(request.get(), field, huge);
          const absl::Status status = CheckRequest(*request);
          EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << field->full_name();
          EXPECT_THAT(std::string(status.message()), HasSubstr(field->name()));
          ++strings;
        }
      }
    }
  }
  EXPECT_GT(strings, 20);
}

TEST(LimitsTest, Spec_PathsListsAndWhole) {
  v1::CreateJobRequest request;
  v1::DataSpec& data = *request.mutable_spec()->mutable_data();
  data.add_train()->set_path(std::string(5000, 'p'));
  EXPECT_THAT(std::string(CheckRequest(request).message()),
              HasSubstr("spec.data.train[0].path has 5000 bytes; the limit is 4096"));
  data.mutable_train(0)->set_path("/a\nb");
  EXPECT_THAT(std::string(CheckRequest(request).message()), HasSubstr("control character 0x0a"));
  data.mutable_train(0)->set_path("/a");
  EXPECT_TRUE(CheckRequest(request).ok());
  for (int i = 0; i < 1024; ++i) {
    data.add_train()->set_path("/a");
  }
  EXPECT_THAT(std::string(CheckRequest(request).message()),
              HasSubstr("spec.data.train has 1025 entries; the limit is 1024"));
  data.clear_train();
  for (int i = 0; i < 100; ++i) {
    data.add_train()->set_path(std::string(4000, 'p'));
  }
  EXPECT_THAT(std::string(CheckRequest(request).message()), HasSubstr("spec has 4"));
}

TEST(LimitsTest, ListEntry_HugeJob_IsShortened) {
  v1::Job job;
  job.set_job_id("big");
  job.mutable_spec()->set_name("big");
  job.set_state(v1::JOB_STATE_RUNNING);
  EXPECT_EQ(ListEntry(job).SerializeAsString(), job.SerializeAsString());
  job.mutable_spec()->mutable_data()->add_train()->set_path(std::string(14 << 20, 'p'));
  const v1::Job shorter = ListEntry(job);
  EXPECT_LT(shorter.ByteSizeLong(), 1000);
  EXPECT_EQ(shorter.job_id(), "big");
  EXPECT_EQ(shorter.state(), v1::JOB_STATE_RUNNING);
  EXPECT_THAT(shorter.warnings(0), HasSubstr("whole job has 146"));
  (*job.mutable_spec()->mutable_labels())["a"] = std::string(1 << 20, 'v');
  job.mutable_spec()->set_name(std::string(1 << 20, 'n'));
  EXPECT_LT(ListEntry(job).ByteSizeLong(), static_cast<size_t>(kListEntryBytes));
}

TEST(LimitsTest, ListEntry_HugeWorker_IsShortened) {
  v1::Worker worker;
  worker.set_worker_id("w");
  for (int i = 0; i < 180'000; ++i) {
    (*worker.mutable_labels())[std::to_string(i)] = "value";
  }
  const v1::Worker shorter = ListEntry(worker);
  EXPECT_LT(shorter.ByteSizeLong(), 1000);
  EXPECT_EQ(shorter.worker_id(), "w");
}

}  // namespace
}  // namespace hearth::coordinator
