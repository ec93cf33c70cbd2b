// Every scalar field of every message of an agent, set to extreme values by reflection: first past
// the edge (agent_rules.h), then past it unchecked, into the core, the metrics, the view and the
// store, and from the store into a core again. Nothing may abort.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "coordinator/service/agents/agent_route.h"
#include "coordinator/service/agents/agent_rules.h"
#include "coordinator/service/agents/inspector.h"
#include "coordinator/service/checks/spec_check.h"
#include "coordinator/service/metrics/coordinator_metrics.h"
#include "coordinator/service/view/view.h"
#include "coordinator/store/store.h"
#include "gtest/gtest.h"
#include "tests/support/common/fake_clock.h"
#include "tests/support/coordinator/cpu_hello.h"
#include "tests/support/coordinator/played_worker.h"

namespace hearth::coordinator {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr int kValues = 8;

// Value number `n` of 0..kValues-1 into a field, or an entry of it; false when there is no such.
bool SetExtreme(Message& message, const FieldDescriptor* field, int n) {
  const Reflection& r = *message.GetReflection();
  const std::string texts[kValues] = {"",
                                      std::string(100'000, 'x'),
                                      "\x1b[31m\n\r\x01",
                                      "/etc/../etc",
                                      std::string("a\0b", 3),
                                      "../../../x",
                                      "-1",
                                      "\xf0\x9f\x94\xa5"};
  const double numbers[kValues] = {std::nan(""),
                                   std::numeric_limits<double>::infinity(),
                                   -std::numeric_limits<double>::infinity(),
                                   std::numeric_limits<double>::max(),
                                   std::numeric_limits<double>::lowest(),
                                   -1.0,
                                   1e300,
                                   std::numeric_limits<double>::denorm_min()};
  const int64_t integers[kValues] = {std::numeric_limits<int64_t>::max(),
                                     std::numeric_limits<int64_t>::min(),
                                     -1,
                                     int64_t{1} << 62,
                                     std::numeric_limits<int64_t>::max() - 1,
                                     0,
                                     int64_t{1} << 53,
                                     int64_t{1} << 40};
  const bool many = field->is_repeated();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      many ? r.AddString(&message, field, texts[n]) : r.SetString(&message, field, texts[n]);
      return true;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      many ? r.AddDouble(&message, field, numbers[n]) : r.SetDouble(&message, field, numbers[n]);
      return true;
    case FieldDescriptor::CPPTYPE_INT64:
      many ? r.AddInt64(&message, field, integers[n]) : r.SetInt64(&message, field, integers[n]);
      return true;
    case FieldDescriptor::CPPTYPE_UINT64:
      r.SetUInt64(&message, field, static_cast<uint64_t>(integers[n]));
      return true;
    case FieldDescriptor::CPPTYPE_INT32: {
      const auto value = static_cast<int32_t>(integers[n] >> (n % 2 == 0 ? 32 : 0));
      many ? r.AddInt32(&message, field, value) : r.SetInt32(&message, field, value);
      return true;
    }
    case FieldDescriptor::CPPTYPE_ENUM:
      r.SetEnumValue(&message, field, static_cast<int>((integers[n] >> 32) + n));
      return true;
    case FieldDescriptor::CPPTYPE_BOOL:
      r.SetBool(&message, field, n % 2 == 0);
      return n < 2;
    default:
      return false;
  }
}

// Calls `visit` with a copy of `whole` for each scalar field at or below `path` set to each
// extreme.
template <typename Visit>
void Mutate(const Message& whole, std::vector<const FieldDescriptor*>& path, const Visit& visit) {
  const google::protobuf::Descriptor* const type =
      path.empty() ? whole.GetDescriptor() : path.back()->message_type();
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* const field = type->field(i);
    path.push_back(field);
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      if (path.size() < 8) {
        Mutate(whole, path, visit);
      }
    } else {
      for (int n = 0; n < kValues; ++n) {
        const std::unique_ptr<Message> copy(whole.New());
        copy->CopyFrom(whole);
        Message* inner = copy.get();
        for (size_t depth = 0; depth + 1 < path.size(); ++depth) {
          const Reflection& r = *inner->GetReflection();
          const FieldDescriptor* const step = path[depth];
          if (!step->is_repeated()) {
            inner = r.MutableMessage(inner, step);
          } else {
            inner = r.FieldSize(*inner, step) > 0 ? r.MutableRepeatedMessage(inner, step, 0)
                                                  : r.AddMessage(inner, step);
          }
        }
        if (SetExtreme(*inner, field, n)) {
          visit(*copy, absl::StrCat(field->full_name(), " value ", n));
        }
      }
    }
    path.pop_back();
  }
}

v1::AgentMessage HelloMessage(const std::string& job_id) {
  v1::AgentMessage message;
  *message.mutable_hello() = CpuHello();
  v1::TaskStatus& task = *message.mutable_hello()->add_tasks();
  task.set_job_id(job_id);
  task.set_epoch(1);
  task.set_running(true);
  task.set_last_seq(2);
  return message;
}

// A message of each kind, all of a worker that runs rank 0 of `job_id` and has reported step 1.
std::vector<v1::AgentMessage> Messages(const std::string& job_id) {
  std::vector<v1::AgentMessage> out = {HelloMessage(job_id)};
  v1::Heartbeat& beat = *out.emplace_back().mutable_heartbeat();
  beat.set_job_id(job_id);
  beat.set_epoch(1);
  beat.set_step(2);
  const auto report = [&]() -> v1::TaskReport& {
    v1::TaskReport& next = *out.emplace_back().mutable_report();
    next.set_job_id(job_id);
    next.set_epoch(1);
    next.set_seq(2);
    return next;
  };
  report().mutable_run_info()->set_start_step(0);
  report().mutable_step()->set_step(2);
  report().mutable_logs()->add_lines()->set_text("line");
  v1::CheckpointAnnouncement& checkpoint = *report().mutable_checkpoint();
  checkpoint.set_step(2);
  checkpoint.set_path(absl::StrCat("/ck/", job_id, "/e1/step-00000002"));
  report().mutable_kv_put()->set_key("key");
  report().mutable_exit()->set_clean(true);
  report().mutable_dying()->set_seconds(1);
  report().mutable_trial()->set_text("text");
  v1::TaskKvWait& wait = *out.emplace_back().mutable_kv_wait();
  wait.set_job_id(job_id);
  wait.set_epoch(1);
  wait.set_key("key");
  v1::InspectPathsResult& inspected = *out.emplace_back().mutable_inspect_result();
  inspected.set_request_id(1);
  inspected.add_paths()->set_path("/data");
  inspected.mutable_paths(0)->set_kind("dataset");
  out.emplace_back().mutable_checkpoint_bytes()->set_request_id(2);
  out.emplace_back().mutable_written()->set_request_id(3);
  v1::CheckpointFolders& listing = *out.emplace_back().mutable_checkpoint_folders();
  listing.set_request_id(1);
  v1::CheckpointFolder& folder = *listing.add_folders();
  folder.set_job_id(job_id);
  folder.set_epoch(1);
  folder.set_name("step-00000002");
  folder.set_step(2);
  folder.set_kind(v1::CHECKPOINT_FOLDER_KIND_COMPLETE);
  out.emplace_back().mutable_goodbye()->set_reason("bye");
  return out;
}

class AgentFuzzTest : public testing::Test {
 protected:
  // Thousands of small logs are made durable, each by itself.
  static std::filesystem::path MemoryFolder() {
    return access("/dev/shm", W_OK) == 0 ? std::filesystem::path("/dev/shm")
                                         : std::filesystem::temp_directory_path();
  }

  AgentFuzzTest() : dir_((MemoryFolder() / absl::StrCat("hearth-fuzz-", RandomHex(6))).string()) {
    OpenStore();
  }
  ~AgentFuzzTest() override {
    store_.reset();
    std::filesystem::remove_all(dir_);
  }

  void OpenStore() {
    store_.reset();
    StoreOptions options;
    options.data_dir = dir_;
    auto store = Store::Open(options);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    auto state = store_->Load();
    ASSERT_TRUE(state.ok()) << state.status();
    state_ = *std::move(state);
    metrics_ = std::make_unique<CoordinatorMetrics>(1);
    view_ = std::make_unique<View>(EventBounds{100});
  }

  Effects Apply(Core& core, const Command& command) {
    now_.monotonic += absl::Milliseconds(10);
    now_.wall += absl::Milliseconds(10);
    Effects effects = core.Apply(command, now_);
    batch_.push_back(effects);
    return effects;
  }

  void Deliver(Core& core, const v1::AgentMessage& message) {
    if (message.has_hello()) {
      Apply(core, AgentConnected{2, message.hello(), "", ""});
      return;
    }
    v1::AgentMessage taken = message;
    AgentRoute route = RouteAgentMessage(1, taken);
    if (route.command.has_value()) {
      Apply(core, *route.command);
    } else if (route.answer_to.has_value()) {
      Answer(core, *route.answer_to, std::move(taken));
    }
  }

  // To an inspector that has asked one question of each kind; what a worker says of the paths of a
  // job that waits for it goes on into the core.
  void Answer(Core& core, int64_t id, v1::AgentMessage message) {
    FakeClock clock;
    AgentHub hub;
    ASSERT_TRUE(hub.Add(1, "here", std::make_shared<DeafLink>()).ok());
    Inspector inspector(hub, clock, 1);
    inspector.Inspect(1, "cpu", {"/data"}, [&](absl::StatusOr<std::vector<v1::PathInfo>> answers) {
      if (answers.ok()) {
        const CreateJob asked = SmallJob(absl::StrCat("asked-", ++asked_));
        Apply(core, asked);
        InspectionDone done;
        done.job_id = asked.job_id;
        done.spec = asked.spec;
        done.spec->mutable_data()->add_train()->set_path("/data");
        done.status = ApplyFacts(*done.spec, *answers, "w");
        Apply(core, std::move(done));
        inspected_ = *core.FindJob(asked.job_id);
      }
      ++answered_;
    });
    inspector.Read(1, {}, [this](const auto&) { ++answered_; });
    inspector.Write(1, {}, [this](const auto&) { ++answered_; });
    inspector.OnAnswer(1, id, std::move(message));
    inspector.OnDisconnected(1);
    EXPECT_GE(answered_, 3) << "each question has its end";
    answered_ = 0;
  }

  // A core with one running job, one message, and what follows from it.
  void Play(const v1::AgentMessage& message, const std::string& job_id) {
    RestoredState state;
    state.last_revision = revision_;
    Core core(CoreOptions{}, state, now_);
    v1::AgentMessage hello = HelloMessage(job_id);
    hello.mutable_hello()->clear_tasks();
    Apply(core, AgentConnected{1, hello.hello(), "", ""});
    CreateJob create = SmallJob(job_id);
    create.paths_checked = true;
    Apply(core, create);
    Apply(core, Tick{});
    v1::TaskReport step;
    step.set_job_id(job_id);
    step.set_epoch(1);
    step.set_seq(1);
    step.mutable_step()->set_step(1);
    Apply(core, AgentReport{1, step});
    ASSERT_EQ(core.FindJob(job_id)->job().state(), v1::JOB_STATE_RUNNING);
    Deliver(core, message);
    step.set_seq(3);
    step.mutable_step()->set_step(3);
    Apply(core, AgentReport{1, step});
    for (int i = 0; i < 3; ++i) {
      now_.monotonic += absl::Seconds(1);
      Apply(core, Tick{});
    }
    revision_ = core.last_revision();
    ASSERT_LE(core.FindJob(job_id)->job().step(), 100);
    ASSERT_GE(core.FindJob(job_id)->job().step(), 0);
    ASSERT_GE(core.FindJob(job_id)->log_cursor(), 0);
  }

  void CommitBatch() {
    ASSERT_TRUE(store_->Commit(batch_).ok());
    metrics_->Observe(batch_, *view_);
    view_->Apply(absl::MakeSpan(batch_));
    batch_.clear();
  }

  void Fuzz(bool through_the_edge) {
    int played = 0;
    int refused = 0;
    const size_t kinds = Messages("x").size();
    for (size_t kind = 0; kind < kinds; ++kind) {
      const v1::AgentMessage base = Messages("job-0")[kind];
      std::vector<const FieldDescriptor*> path = {
          base.GetDescriptor()->FindFieldByNumber(base.message_case())};
      Mutate(base, path, [&](const Message& mutated, const std::string& what) {
        SCOPED_TRACE(what);
        v1::AgentMessage message;
        message.CopyFrom(mutated);
        if (through_the_edge && !CheckAgentMessage(message, "/ck").ok()) {
          ++refused;
          return;
        }
        const std::string job_id = absl::StrCat("job-", ++jobs_);
        // The same message, of this round's job.
        if (message.has_report() && message.report().job_id() == "job-0") {
          message.mutable_report()->set_job_id(job_id);
        }
        if (message.has_heartbeat() && message.heartbeat().job_id() == "job-0") {
          message.mutable_heartbeat()->set_job_id(job_id);
        }
        if (message.has_hello() && message.hello().tasks(0).job_id() == "job-0") {
          message.mutable_hello()->mutable_tasks(0)->set_job_id(job_id);
        }
        Play(message, job_id);
        if (++played % 50 == 0) {
          CommitBatch();
        }
      });
    }
    CommitBatch();
    EXPECT_GT(played, 300);
    EXPECT_TRUE(!through_the_edge || refused > 300) << refused;
    EXPECT_FALSE(metrics_->Render(*view_).empty());
    // What was stored can be read, and a core goes on with it.
    OpenStore();
    EXPECT_GT(asked_, 10);
    EXPECT_EQ(state_.core.jobs.size(), static_cast<size_t>(jobs_ + asked_));
    Core core(CoreOptions{}, state_.core, now_);
    view_->Load(core, state_.events, state_.core);
    Apply(core, Tick{});
    CommitBatch();
    EXPECT_FALSE(metrics_->Render(*view_).empty());
  }

  const std::string dir_;
  std::unique_ptr<Store> store_;
  LoadedState state_;
  std::unique_ptr<CoordinatorMetrics> metrics_;
  std::unique_ptr<View> view_;
  std::vector<Effects> batch_;
  Now now_{absl::FromUnixSeconds(1'700'000'000), absl::Seconds(1000)};
  int64_t revision_ = 0;
  int jobs_ = 0;
  int asked_ = 0;  // jobs whose paths a worker was asked about
  int answered_ = 0;
  v1::JobRecord inspected_;  // the last of those, after the answer
};

// A kind that is not played here is one that nobody has tried.
TEST(AgentMessages, EachKind_IsPlayed) {
  std::set<int> played;
  for (const v1::AgentMessage& message : Messages("x")) {
    played.insert(message.message_case());
  }
  const auto* const kinds = v1::AgentMessage::descriptor()->FindOneofByName("message");
  for (int i = 0; i < kinds->field_count(); ++i) {
    EXPECT_TRUE(played.contains(kinds->field(i)->number())) << kinds->field(i)->name();
  }
}

TEST_F(AgentFuzzTest, WhatTheEdgeLetsThrough_HarmsNothing) {
  Fuzz(true);
}

TEST_F(AgentFuzzTest, EvenUnchecked_NothingAborts) {
  Fuzz(false);
}

// Else the answers above would be played to a job that takes none.
TEST_F(AgentFuzzTest, AnswerAboutPaths_IsTakenByTheJobThatWaitsForIt) {
  std::vector<v1::AgentMessage> messages = Messages("job-1");
  const auto answer = std::find_if(messages.begin(), messages.end(),
                                   [](const auto& each) { return each.has_inspect_result(); });
  v1::PathInfo& path = *answer->mutable_inspect_result()->mutable_paths(0);
  path.set_vocab(64);
  path.set_tokens(10'000);
  Play(*answer, "job-1");
  EXPECT_EQ(inspected_.job().state(), v1::JOB_STATE_QUEUED) << inspected_.job().reason();
  EXPECT_TRUE(inspected_.paths_checked());
  ASSERT_EQ(inspected_.job().spec().data().train_size(), 1);
  EXPECT_EQ(inspected_.job().spec().data().train(0).path(), "/data");
  path.set_error("it is not there");
  Play(*answer, "job-2");
  EXPECT_EQ(inspected_.job().state(), v1::JOB_STATE_FAILED);
  EXPECT_NE(inspected_.job().reason().find("it is not there"), std::string::npos);
}

// What a store may hold of a coordinator that did not check: the next line overflows the cursor.
TEST_F(AgentFuzzTest, StoredCursorsAtTheEnd_CostLinesAndNotTheProcess) {
  Play(Messages("job-1")[4], "job-1");
  RestoredState state;
  for (const Effects& effects : batch_) {
    for (const JobRow& row : effects.jobs) {
      state.jobs = {row.record};
    }
    for (const WorkerRow& row : effects.workers) {
      state.workers = {row.record};
    }
  }
  batch_.clear();
  state.last_revision = revision_;
  state.jobs[0].set_log_cursor(std::numeric_limits<int64_t>::max() - 1);
  state.jobs[0].set_history_cursor(std::numeric_limits<int64_t>::max());
  state.jobs[0].mutable_ranks(0)->set_applied_seq(std::numeric_limits<int64_t>::max());
  Core core(CoreOptions{}, state, now_);
  Apply(core, AgentConnected{7, HelloMessage("job-1").hello(), "", ""});
  v1::TaskReport report;
  report.set_job_id("job-1");
  report.set_epoch(1);
  report.set_seq((int64_t{1} << 60) + 1);
  report.mutable_logs()->add_lines()->set_text("one");
  report.mutable_logs()->add_lines()->set_text("two");
  report.mutable_logs()->set_dropped(int64_t{1} << 40);
  const Effects effects = Apply(core, AgentReport{7, report});
  ASSERT_EQ(effects.logs.size(), 1);
  EXPECT_TRUE(effects.logs[0].lines.empty());
  EXPECT_EQ(effects.logs[0].dropped, (int64_t{1} << 40) + 2);
  CommitBatch();
}

}  // namespace
}  // namespace hearth::coordinator
