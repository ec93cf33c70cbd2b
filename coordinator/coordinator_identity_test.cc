// What each kind of caller may do: each call of the API, found by reflection.
#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "common/base/system.h"
#include "common/io/env.h"
#include "common/rpc/bearer.h"
#include "common/rpc/channel.h"
#include "common/rpc/grpc_status.h"
#include "common/time/clock.h"
#include "coordinator/coordinator.h"
#include "coordinator/service/identity/call_table.h"
#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/dynamic_message.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "gtest/gtest.h"
#include "hearth/v1/agent.grpc.pb.h"
#include "hearth/v1/identity.grpc.pb.h"
#include "hearth/v1/job.grpc.pb.h"
#include "hearth/v1/worker.grpc.pb.h"
#include "tests/support/common/temp_dir.h"
#include "tests/support/coordinator/tiny_spec.h"

namespace hearth::coordinator {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(20);

// Wall time that the test moves; a timer is as long as the real one.
class MovedClock : public Clock {
 public:
  absl::Time Now() override { return Clock::Real().Now() + absl::Seconds(moved_.load()); }
  absl::Duration Monotonic() override { return Clock::Real().Monotonic(); }
  bool AwaitWithTimeout(absl::Mutex& mu,
                        const absl::Condition& condition,
                        absl::Duration timeout) override ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return Clock::Real().AwaitWithTimeout(mu, condition, timeout);
  }
  void Move(int64_t seconds) { moved_ = seconds; }

 private:
  std::atomic<int64_t> moved_{0};
};

class IdentityTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SetEnv("HEARTH_HOME", root_.c_str());
    options_.store.data_dir = root_ + "/data";
    options_.listen = options_.http = "127.0.0.1:0";
    Start();
    local_ = *rpc::FindToken(coordinator_->listen_address(), "", rpc::LocalToken::kAdmin);
    local_worker_ = *rpc::FindToken(coordinator_->listen_address(), "", rpc::LocalToken::kWorker);
    ASSERT_FALSE(local_.empty());
    ASSERT_FALSE(local_worker_.empty());
  }
  void TearDown() override {
    coordinator_.reset();
    UnsetEnv("HEARTH_HOME");
  }

  // Keeps the address over a restart.
  void Start() {
    auto started = Coordinator::Start(options_, clock_);
    ASSERT_TRUE(started.ok()) << started.status();
    coordinator_ = *std::move(started);
    options_.listen = coordinator_->listen_address();
    channel_ =
        grpc::CreateChannel(coordinator_->listen_address(), grpc::InsecureChannelCredentials());
  }

  // Any call, by its descriptor: the request, then the end of the stream.
  absl::Status Send(const google::protobuf::MethodDescriptor& method,
                    const google::protobuf::Message& request,
                    const rpc::Credentials& credentials,
                    google::protobuf::Message* response = nullptr) {
    grpc::ClientContext context;
    rpc::SetDeadline(context, kPatience);
    rpc::Authorize(context, credentials);
    grpc::GenericStub stub(channel_);
    grpc::CompletionQueue queue;
    const auto call = stub.PrepareCall(
        &context, absl::StrCat("/", method.service()->full_name(), "/", method.name()), &queue);
    const auto wait = [&queue] {
      void* tag = nullptr;
      bool ok = false;
      return queue.Next(&tag, &ok) && ok;
    };
    call->StartCall(nullptr);
    bool ok = wait();
    if (ok) {
      const grpc::Slice slice(request.SerializeAsString());
      call->WriteLast(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(), nullptr);
      wait();
    }
    grpc::ByteBuffer buffer;
    call->Read(&buffer, nullptr);
    ok = wait();
    if (ok && response != nullptr) {
      std::vector<grpc::Slice> slices;
      buffer.Dump(&slices).ok();
      std::string bytes;
      for (const grpc::Slice& slice : slices) {
        bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
      }
      response->ParseFromString(bytes);
    }
    if (ok) {
      context.TryCancel();  // of a stream that would go on
    }
    grpc::Status status;
    call->Finish(&status, nullptr);
    wait();
    return ok ? absl::OkStatus() : rpc::FromGrpc(status);
  }

  // Each call of the API with an empty request.
  std::map<std::string, absl::Status> SendAll(const std::string& token) {
    std::map<std::string, absl::Status> out;
    google::protobuf::DynamicMessageFactory factory;
    for (const google::protobuf::MethodDescriptor* method : Methods()) {
      const std::unique_ptr<google::protobuf::Message> request(
          factory.GetPrototype(method->input_type())->New());
      out[method->full_name()] = Send(*method, *request, {token, ""});
    }
    return out;
  }

  static std::vector<const google::protobuf::MethodDescriptor*> Methods() {
    std::vector<const google::protobuf::MethodDescriptor*> out;
    const auto& pool = *google::protobuf::DescriptorPool::generated_pool();
    for (const char* name :
         {"JobService", "WorkerService", "AgentService", "IdentityService", "CoordinatorService"}) {
      const auto* service = pool.FindServiceByName(absl::StrCat("hearth.v1.", name));
      for (int i = 0; i < service->method_count(); ++i) {
        out.push_back(service->method(i));
      }
    }
    return out;
  }

  template <typename Response, typename Request>
  absl::StatusOr<Response> Call(const Request& request, const rpc::Credentials& credentials) {
    Response response;
    const coordinator::Call* call = FindCall(Request::descriptor());
    absl::Status status = Send(*call->method, request, credentials, &response);
    return status.ok() ? absl::StatusOr<Response>(response) : status;
  }

  // The secret of a new token, made by the local admin.
  std::string Token(const std::string& name, v1::Role role, int64_t seconds = 0) {
    v1::CreateTokenRequest request;
    request.set_name(name);
    request.set_role(role);
    if (role == v1::ROLE_WORKER) {
      request.set_worker_id(name);
    }
    if (seconds > 0) {
      request.mutable_expires_in()->set_seconds(seconds);
    }
    const auto made = Call<v1::CreateTokenResponse>(request, {local_, ""});
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? made->secret() : "";
  }

  absl::StatusOr<v1::Job> Submit(const rpc::Credentials& credentials) {
    v1::CreateJobRequest request;
    *request.mutable_spec() = TinySpec();
    return Call<v1::Job>(request, credentials);
  }
  absl::StatusOr<v1::Job> Cancel(const std::string& job_id, const rpc::Credentials& credentials) {
    v1::CancelJobRequest request;
    request.set_job_id(job_id);
    return Call<v1::Job>(request, credentials);
  }

  MovedClock clock_;
  CoordinatorOptions options_;
  const TempDir temp_;
  const std::string root_ = temp_.path();
  std::string local_;
  std::string local_worker_;
  std::unique_ptr<Coordinator> coordinator_;
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(IdentityTest, EachCall_HasARole) {
  EXPECT_EQ(CallTableProblem(), "");
  EXPECT_GE(Methods().size(), 30u);
}

// The rows are what the next tests read, so what matters most stands here once more.
TEST_F(IdentityTest, WhatAViewerMayCall_IsWhatOnlyReads) {
  std::vector<std::string> calls;
  for (const google::protobuf::MethodDescriptor* method : Methods()) {
    if (method->options().GetExtension(v1::call).role() == v1::ROLE_VIEWER) {
      calls.push_back(method->name());
    }
  }
  EXPECT_THAT(calls, testing::UnorderedElementsAre("GetJob", "ListJobs", "WatchJob",
                                                   "StreamMetrics", "StreamLogs", "ListEvents",
                                                   "ListCheckpoints", "GetCheckpoint", "GetVersion",
                                                   "ListWorkers", "GetWorker", "WhoAmI"));
}

TEST_F(IdentityTest, EachCall_WithoutAToken_IsRefused) {
  for (const std::string token : {"", "hearth_0123", "hearth_local_0123"}) {
    for (const auto& [method, status] : SendAll(token)) {
      EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated) << method << ": " << status;
    }
  }
}

TEST_F(IdentityTest, EachCall_OfARoleThatIsTooSmall_IsRefused) {
  const std::map<v1::Role, std::string> tokens = {
      {v1::ROLE_VIEWER, Token("eve", v1::ROLE_VIEWER)},
      {v1::ROLE_OPERATOR, Token("olga", v1::ROLE_OPERATOR)},
      {v1::ROLE_ADMIN, local_},
      {v1::ROLE_WORKER, Token("w1", v1::ROLE_WORKER)}};
  std::map<v1::Role, int> refused;
  for (const auto& [role, token] : tokens) {
    for (const auto& [method, status] : SendAll(token)) {
      const auto& row = google::protobuf::DescriptorPool::generated_pool()
                            ->FindMethodByName(method)
                            ->options()
                            .GetExtension(v1::call);
      const bool denied = absl::IsPermissionDenied(status);
      EXPECT_EQ(denied, !RoleAllows(role, row.role()))
          << RoleName(role) << " " << method << ": " << status;
      EXPECT_FALSE(absl::IsUnauthenticated(status)) << method;
      refused[role] += denied ? 1 : 0;
    }
  }
  // The agent's call for all people; what changes something for viewers; all but one for workers.
  EXPECT_EQ(refused[v1::ROLE_ADMIN], 1);
  EXPECT_GT(refused[v1::ROLE_OPERATOR], 6);
  EXPECT_GT(refused[v1::ROLE_VIEWER], refused[v1::ROLE_OPERATOR] + 6);
  EXPECT_EQ(refused[v1::ROLE_WORKER], static_cast<int>(Methods().size()) - 1);
}

TEST_F(IdentityTest, Operators_ChangeTheirOwnJobs_AdminsAll) {
  const rpc::Credentials olga = {Token("olga", v1::ROLE_OPERATOR), ""};
  const rpc::Credentials otto = {Token("otto", v1::ROLE_OPERATOR), ""};
  const rpc::Credentials admin = {local_, ""};
  const auto job = Submit(olga);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->owner(), "olga");
  const auto stranger = Cancel(job->job_id(), otto);
  EXPECT_EQ(stranger.status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(stranger.status().message()), HasSubstr("belongs to olga"));
  EXPECT_TRUE(Cancel(job->job_id(), olga).ok());
  const auto second = Submit(otto);
  ASSERT_TRUE(second.ok());
  EXPECT_TRUE(Cancel(second->job_id(), admin).ok());
  // A job that is not there says so to everyone.
  EXPECT_TRUE(absl::IsNotFound(Cancel("none", otto).status()));
}

TEST_F(IdentityTest, WithoutAuth_EveryoneMayChangeAJobThatHasAnOwner) {
  const auto job = Submit({Token("olga", v1::ROLE_OPERATOR), ""});
  ASSERT_TRUE(job.ok()) << job.status();
  coordinator_.reset();
  options_.no_auth = true;
  Start();
  const auto cancelled = Cancel(job->job_id(), {"", ""});
  EXPECT_TRUE(cancelled.ok()) << cancelled.status();
}

TEST_F(IdentityTest, ActAs_GivesAnAdminTheUsersJobs_AndNobodyElse) {
  const rpc::Credentials as_olga = {local_, "olga"};
  const auto job = Submit(as_olga);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->owner(), "olga");
  EXPECT_TRUE(Cancel(job->job_id(), {Token("olga", v1::ROLE_OPERATOR), ""}).ok());
  EXPECT_TRUE(
      absl::IsPermissionDenied(Submit({Token("otto", v1::ROLE_OPERATOR), "olga"}).status()));
  const auto me = Call<v1::Caller>(v1::WhoAmIRequest(), as_olga);
  ASSERT_TRUE(me.ok());
  EXPECT_EQ(me->user(), "olga");
  EXPECT_EQ(me->role(), v1::ROLE_OPERATOR);
  EXPECT_FALSE(me->real_user().empty());
  EXPECT_EQ(me->token(), "local");
}

TEST_F(IdentityTest, AWorkersToken_SpeaksForThatWorkerAlone) {
  const auto connect = [this](const std::string& token, const std::string& worker_id) {
    v1::AgentMessage message;
    v1::Hello& hello = *message.mutable_hello();
    hello.set_worker_id(worker_id);
    hello.set_incarnation(RandomHex(16));
    hello.set_host("testhost");
    hello.mutable_device()->set_kind("cpu");
    hello.mutable_device()->set_memory_bytes(1 << 30);
    hello.mutable_device()->set_threads(1);
    hello.set_http_address("127.0.0.1:7080");
    hello.set_checkpoint_root("/root");
    hello.set_root_uuid("root-uuid");
    return Send(*FindCall(v1::AgentMessage::descriptor())->method, message, {token, ""});
  };
  const std::string token = Token("w1", v1::ROLE_WORKER);
  EXPECT_TRUE(connect(token, "w1").ok());
  const absl::Status stolen = connect(token, "w2");
  EXPECT_TRUE(absl::IsPermissionDenied(stolen)) << stolen;
  EXPECT_THAT(std::string(stolen.message()), HasSubstr("worker w1, not of w2"));
  EXPECT_TRUE(connect(local_worker_, "w3").ok());
}

TEST_F(IdentityTest, Tokens_EndWhenTheyExpireOrAreRevoked_AndOutliveARestart) {
  const rpc::Credentials brief = {Token("brief", v1::ROLE_VIEWER, 60), ""};
  const rpc::Credentials lasting = {Token("lasting", v1::ROLE_VIEWER), ""};
  coordinator_.reset();
  Start();
  EXPECT_TRUE(Call<v1::Caller>(v1::WhoAmIRequest(), brief).ok());
  EXPECT_TRUE(Call<v1::Caller>(v1::WhoAmIRequest(), {local_, ""}).ok());
  clock_.Move(61);
  const auto late = Call<v1::Caller>(v1::WhoAmIRequest(), brief);
  EXPECT_TRUE(absl::IsUnauthenticated(late.status()));
  EXPECT_THAT(std::string(late.status().message()), HasSubstr("expired at"));
  EXPECT_TRUE(Call<v1::Caller>(v1::WhoAmIRequest(), lasting).ok());
  v1::RevokeTokenRequest revoke;
  revoke.set_name("lasting");
  EXPECT_TRUE(Call<v1::Token>(revoke, {local_, ""}).ok());
  EXPECT_TRUE(absl::IsUnauthenticated(Call<v1::Caller>(v1::WhoAmIRequest(), lasting).status()));
  EXPECT_TRUE(absl::IsNotFound(Call<v1::Token>(revoke, {local_, ""}).status()));
}

TEST_F(IdentityTest, AStream_EndsWithItsToken) {
  const rpc::Credentials olga = {Token("olga", v1::ROLE_OPERATOR), ""};
  const auto job = Submit(olga);
  ASSERT_TRUE(job.ok()) << job.status();
  const auto stub = v1::JobService::NewStub(channel_);
  grpc::ClientContext context;
  rpc::SetDeadline(context, kPatience);
  rpc::Authorize(context, olga);
  v1::WatchJobRequest request;
  request.set_job_id(job->job_id());
  const auto reader = stub->WatchJob(&context, request);
  v1::WatchJobResponse response;
  ASSERT_TRUE(reader->Read(&response));
  v1::RevokeTokenRequest revoke;
  revoke.set_name("olga");
  ASSERT_TRUE(Call<v1::Token>(revoke, {local_, ""}).ok());
  // Another token of the same name is another token.
  EXPECT_NE(Token("olga", v1::ROLE_OPERATOR), "");
  while (reader->Read(&response)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAUTHENTICATED);
}

TEST_F(IdentityTest, TheAuditLog_SaysWhoDidWhat_AndWhoWasRefused) {
  const rpc::Credentials olga = {Token("olga", v1::ROLE_OPERATOR), ""};
  const rpc::Credentials eve = {Token("eve", v1::ROLE_VIEWER), ""};
  const auto job = Submit(olga);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_FALSE(Cancel(job->job_id(), eve).ok());
  EXPECT_TRUE(Cancel(job->job_id(), {local_, "olga"}).ok());
  EXPECT_FALSE(Cancel("none", {local_, ""}).ok());
  coordinator_.reset();
  Start();  // it is on the disk
  const auto all = Call<v1::ListAuditResponse>(v1::ListAuditRequest(), {local_, ""});
  ASSERT_TRUE(all.ok()) << all.status();
  ASSERT_EQ(all->records_size(), 6) << all->DebugString();
  const auto line = [&all](int i) {
    const v1::AuditRecord& record = all->records(i);
    return absl::StrCat(record.caller().real_user().empty() ? "" : "(admin) ",
                        record.caller().token() == "local" && record.caller().real_user().empty()
                            ? "admin"
                            : record.caller().user(),
                        " ", record.method(), " ", record.outcome());
  };
  EXPECT_EQ(line(0), "admin CancelJob NOT_FOUND");
  EXPECT_EQ(line(1), "(admin) olga CancelJob OK");
  EXPECT_EQ(line(2), "eve CancelJob PERMISSION_DENIED");
  EXPECT_EQ(line(3), "olga CreateJob OK");
  EXPECT_EQ(line(4), "admin CreateToken OK");
  EXPECT_EQ(all->records(1).target(), job->job_id());
  EXPECT_EQ(all->records(3).target(), job->job_id());
  EXPECT_EQ(all->records(4).target(), "eve");
  EXPECT_EQ(all->records(4).message(), "viewer eve");
  EXPECT_EQ(all->records(0).number(), 6);
  EXPECT_EQ(all->records(2).caller().address(), "127.0.0.1");
  v1::ListAuditRequest refused;
  refused.set_refused_only(true);
  EXPECT_EQ(Call<v1::ListAuditResponse>(refused, {local_, ""})->records_size(), 1);
}

TEST_F(IdentityTest, Events_NameTheUser) {
  const rpc::Credentials olga = {Token("olga", v1::ROLE_OPERATOR), ""};
  const auto job = Submit(olga);
  ASSERT_TRUE(job.ok()) << job.status();
  ASSERT_TRUE(Cancel(job->job_id(), {local_, ""}).ok());
  v1::ListEventsRequest request;
  request.set_job_id(job->job_id());
  const auto events = Call<v1::ListEventsResponse>(request, olga);
  ASSERT_TRUE(events.ok());
  EXPECT_EQ(events->events(0).actor(), "user:olga");
  const std::string last = events->events(events->events_size() - 1).actor();
  EXPECT_THAT(last, HasSubstr("user:"));
  EXPECT_NE(last, "user:olga");
}

TEST_F(IdentityTest, ASecret_IsNowhereInTheDataDir) {
  const std::string secret = Token("olga", v1::ROLE_OPERATOR);
  coordinator_.reset();
  for (const auto& entry : std::filesystem::recursive_directory_iterator(options_.store.data_dir)) {
    if (entry.is_regular_file()) {
      const auto text = Env::Real().ReadFile(entry.path().string());
      ASSERT_TRUE(text.ok());
      EXPECT_EQ(text->find(secret), std::string::npos) << entry.path();
    }
  }
}

}  // namespace
}  // namespace hearth::coordinator
