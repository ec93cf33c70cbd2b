#include "coordinator/service/identity/call_table.h"

#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "hearth/v1/agent.pb.h"
#include "hearth/v1/coordinator.pb.h"
#include "hearth/v1/generate.pb.h"
#include "hearth/v1/identity.pb.h"
#include "hearth/v1/job.pb.h"
#include "hearth/v1/plan.pb.h"
#include "hearth/v1/worker.pb.h"

namespace hearth::coordinator {
namespace {

struct Table {
  std::map<const google::protobuf::Descriptor*, Call> calls;
  std::string problem;
};

void AddService(const google::protobuf::ServiceDescriptor& service, Table& table) {
  for (int i = 0; i < service.method_count(); ++i) {
    const google::protobuf::MethodDescriptor* method = service.method(i);
    const v1::CallRow& row = method->options().GetExtension(v1::call);
    if (row.role() == v1::ROLE_UNSPECIFIED) {
      table.problem = absl::StrCat(method->full_name(), " does not say which role may make it");
    }
    if (!table.calls.emplace(method->input_type(), Call{method, row}).second) {
      table.problem = absl::StrCat(method->full_name(), " shares its request type");
    }
    if (row.own_job() && method->input_type()->FindFieldByName("job_id") == nullptr) {
      table.problem = absl::StrCat(method->full_name(), " is about a job that it does not name");
    }
  }
}

const Table& CallTable() {
  static const auto* const table = [] {
    auto* made = new Table;
    for (const google::protobuf::FileDescriptor* file :
         {v1::Job::descriptor()->file(), v1::Worker::descriptor()->file(),
          v1::AgentMessage::descriptor()->file(), v1::Token::descriptor()->file(),
          v1::MakeBackupRequest::descriptor()->file(),
          v1::SampleCheckpointRequest::descriptor()->file(),
          v1::PlanJobRequest::descriptor()->file()}) {
      for (int i = 0; i < file->service_count(); ++i) {
        AddService(*file->service(i), *made);
      }
    }
    return made;
  }();
  return *table;
}

}  // namespace

const Call* FindCall(const google::protobuf::Descriptor* request) {
  const auto found = CallTable().calls.find(request);
  return found == CallTable().calls.end() ? nullptr : &found->second;
}

std::string CallTableProblem() {
  return CallTable().problem;
}

std::string RoleName(v1::Role role) {
  if (role == v1::ROLE_UNSPECIFIED) {
    return "nobody";
  }
  absl::string_view name = v1::Role_Name(role);
  absl::ConsumePrefix(&name, "ROLE_");
  return absl::AsciiStrToLower(name);
}

bool RoleAllows(v1::Role has, v1::Role needs) {
  if (has == v1::ROLE_WORKER || needs == v1::ROLE_WORKER) {
    return has == needs;
  }
  return needs != v1::ROLE_UNSPECIFIED && has >= needs;
}

}  // namespace hearth::coordinator
