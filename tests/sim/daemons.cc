// Agents and the gangs' data plane.
#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/sim/world.h"

namespace hearth::sim {
namespace {

// Bytes of its device's memory: three sizes, so that a job may find a larger one.
int64_t MemoryOf(const Daemon& daemon) {
  return int64_t{1 + daemon.index % 3} << 33;
}

}  // namespace

void World::StartDaemon(Daemon& daemon) {
  daemon.up = true;
  daemon.unhealthy = false;
  daemon.stopping = false;
  daemon.incarnation = absl::StrCat(daemon.name, "-", Pick(0, INT32_MAX));
  daemon.generation = 0;
  Dial(daemon);
  Beat(daemon, daemon.incarnation);
}

// kill -9: its trainers die with it, and what it had buffered is lost.
void World::CrashDaemon(Daemon& daemon) {
  if (!daemon.up) {
    return;
  }
  Say(absl::StrCat(daemon.name, " crashes"));
  daemon.up = false;
  std::vector<TaskKey> died;
  for (auto& [key, task] : daemon.tasks) {
    if (task.running) {
      died.push_back(key);
    }
  }
  for (const TaskKey& key : died) {
    Exit(daemon, key, v1::EXIT_REASON_KILLED, false);
  }
  daemon.tasks.clear();
  if (const uint64_t link = daemon.link; link != 0) {
    daemon.link = 0;
    After(Ms(0, 9000), [this, link] { BreakLink(link); });
  }
  After(Ms(200, 20000), [this, &daemon] { StartDaemon(daemon); });
}

// SIGTERM: it says so at once, its tasks end, and then it says goodbye and is gone for a while.
void World::StopDaemon(Daemon& daemon) {
  if (!daemon.up || daemon.stopping) {
    return;
  }
  Say(absl::StrCat(daemon.name, " is asked to end"));
  daemon.stopping = true;
  SayAlive(daemon);
  const auto later = [this, &daemon, incarnation = daemon.incarnation](absl::Duration after,
                                                                       auto act) {
    After(after, [&daemon, incarnation, act] {
      if (daemon.up && daemon.incarnation == incarnation) {
        act();
      }
    });
  };
  for (const auto& [key, task] : daemon.tasks) {
    later(Ms(0, 3000),
          [this, &daemon, key = key] { Exit(daemon, key, v1::EXIT_REASON_STOPPED, true); });
  }
  const absl::Duration leaves = Ms(3000, 8000);
  later(leaves, [this, &daemon] {
    if (daemon.welcomed) {
      SendUp(daemon, core::AgentGoodbye{daemon.link, {}});
    }
  });
  later(leaves + absl::Milliseconds(100), [this, &daemon] { CrashDaemon(daemon); });
}

void World::Dial(Daemon& daemon) {
  if (!daemon.up || daemon.link != 0) {
    return;
  }
  const std::string incarnation = daemon.incarnation;
  auto again = [this, &daemon, incarnation] {
    After(Ms(100, 2000), [this, &daemon, incarnation] {
      if (daemon.incarnation == incarnation) {
        Dial(daemon);
      }
    });
  };
  if (daemon.mute || daemon.deaf || core_ == nullptr) {
    again();
    return;
  }
  const uint64_t id = next_link_++;
  links_[id] = {&daemon, incarnation, true, absl::ZeroDuration(), absl::ZeroDuration()};
  daemon.link = id;
  daemon.welcomed = false;
  core::AgentConnected connected;
  connected.connection_id = id;
  v1::Hello& hello = connected.hello;
  hello.set_worker_id(daemon.name);
  hello.set_incarnation(incarnation);
  hello.set_host(daemon.host);
  hello.mutable_device()->set_kind("cpu");
  hello.mutable_device()->set_index(daemon.index);
  hello.mutable_device()->set_threads(1);
  hello.mutable_device()->set_memory_bytes(MemoryOf(daemon));
  hello.set_checkpoint_root("/" + daemon.root_uuid);
  hello.set_root_uuid(daemon.root_uuid);
  hello.set_generation(daemon.generation);
  hello.set_unhealthy_reason(daemon.unhealthy ? "cannot free its device" : "");
  hello.set_stopping(daemon.stopping);
  for (const auto& [key, task] : daemon.tasks) {
    v1::TaskStatus& status = *hello.add_tasks();
    status.set_job_id(key.first);
    status.set_epoch(key.second);
    status.set_rank(task.task.rank());
    status.set_running(task.running);
    status.set_last_seq(task.next_seq - 1);
    status.set_step(task.step);
    status.set_first_unacked_seq(task.unacked.empty() ? 0 : task.unacked.front().seq());
  }
  SendUp(daemon, connected);
}

void World::Beat(Daemon& daemon, const std::string& incarnation) {
  if (!daemon.up || daemon.incarnation != incarnation) {
    return;
  }
  After(core::CoreOptions{}.heartbeat, [this, &daemon, incarnation] { Beat(daemon, incarnation); });
  SayAlive(daemon);
}

void World::SayAlive(Daemon& daemon) {
  if (!daemon.welcomed) {
    return;
  }
  core::AgentHeartbeat beat;
  beat.connection_id = daemon.link;
  for (const auto& [key, task] : daemon.tasks) {
    if (task.running) {
      beat.heartbeat.set_job_id(key.first);
      beat.heartbeat.set_epoch(key.second);
      beat.heartbeat.set_step(task.step);
    }
  }
  beat.heartbeat.set_unhealthy_reason(daemon.unhealthy ? "cannot free its device" : "");
  beat.heartbeat.set_stopping(daemon.stopping);
  SendUp(daemon, beat);
}

// Both ends see it, the coordinator perhaps much later.
void World::BreakLink(uint64_t id) {
  auto it = links_.find(id);
  if (it == links_.end() || !it->second.open) {
    return;
  }
  it->second.open = false;
  Say(absl::StrCat(it->second.daemon->name, " link ", id, " breaks"));
  Daemon& daemon = *it->second.daemon;
  if (daemon.link == id && daemon.incarnation == it->second.incarnation) {
    daemon.link = 0;
    daemon.welcomed = false;
    After(Ms(50, 1500), [this, &daemon, incarnation = daemon.incarnation] {
      if (daemon.incarnation == incarnation) {
        Dial(daemon);
      }
    });
  }
  After(Ms(0, Chance(0.1) ? 9000 : 300), [this, id] { Give(core::AgentDisconnected{id}); });
}

void World::SendUp(Daemon& daemon, core::Command command) {
  const uint64_t id = daemon.link;
  auto it = links_.find(id);
  if (it == links_.end() || !it->second.open || daemon.mute) {
    return;
  }
  Link& link = it->second;
  // A stream keeps its order: nothing overtakes what was sent before it.
  link.to_coordinator = std::max(link.to_coordinator, clock_.Monotonic() + Ms(0, 60));
  const int64_t generation = generation_;
  After(link.to_coordinator - clock_.Monotonic(),
        [this, id, generation, held = std::move(command)]() mutable {
          // Lost with its stream, or meant for a coordinator that is gone.
          if (!links_[id].open || generation != generation_ || links_[id].daemon->mute) {
            return;
          }
          Give(std::move(held), [this, id](const core::Reply& reply) {
            if (!reply.status.ok()) {
              BreakLink(id);
            }
          });
        });
}

void World::SendDown(const core::OutgoingMessage& out) {
  auto it = links_.find(out.connection_id);
  if (it == links_.end() || !it->second.open) {
    return;
  }
  Link& link = it->second;
  link.to_agent = std::max(link.to_agent, clock_.Monotonic() + Ms(0, 60));
  if (link.to_agent == absl::InfiniteDuration()) {
    return;
  }
  After(link.to_agent - clock_.Monotonic(), [this, id = out.connection_id, sent = out.message] {
    const Link& arrived = links_[id];
    if (arrived.open && !arrived.daemon->deaf && arrived.daemon->link == id &&
        arrived.to_agent != absl::InfiniteDuration()) {
      Receive(*arrived.daemon, sent);
    }
  });
}

void World::Receive(Daemon& daemon, const v1::CoordinatorMessage& message) {
  if (message.generation() < daemon.generation) {
    return;
  }
  daemon.generation = message.generation();
  if (message.has_welcome()) {
    TakeWelcome(daemon, message.welcome());
  } else if (message.has_ack()) {
    TakeAck(daemon, message.ack());
  } else if (message.has_start()) {
    TakeStart(daemon, message.start().task());
  } else if (message.has_kv_value()) {
    TakeKv(daemon, message.kv_value());
  } else if (message.has_control()) {
    const TaskKey key{message.control().job_id(), message.control().epoch()};
    if (gangs_.count(key) > 0) {
      // The ranks' all-reduce takes the maximum: the strongest word wins.
      gangs_[key].bit = std::max<int>(gangs_[key].bit, message.control().bit());
    }
  } else if (message.has_kill()) {
    const TaskKey key{message.kill().job_id(), message.kill().epoch()};
    After(Ms(10, 1500), [this, &daemon, key, incarnation = daemon.incarnation] {
      if (daemon.incarnation == incarnation) {
        Exit(daemon, key, v1::EXIT_REASON_KILLED, true);
      }
    });
  } else if (message.has_forget()) {
    const TaskKey key{message.forget().job_id(), message.forget().epoch()};
    Exit(daemon, key, v1::EXIT_REASON_KILLED, false);
    daemon.tasks.erase(key);
  } else if (message.has_delete_checkpoint()) {
    Remove(message.delete_checkpoint());
  } else if (message.has_list_checkpoints()) {
    // Reading the disk takes a while, in which things change.
    After(Ms(1, 3000),
          [this, &daemon, link = daemon.link, id = message.list_checkpoints().request_id()] {
            if (daemon.link == link) {
              ListFolders(daemon, id);
            }
          });
  }
}

void World::TakeWelcome(Daemon& daemon, const v1::Welcome& welcome) {
  daemon.welcomed = true;
  for (const v1::ReportAck& ack : welcome.acks()) {
    TakeAck(daemon, ack);
  }
  for (auto& [key, task] : daemon.tasks) {
    for (const v1::TaskReport& report : task.unacked) {
      SendReport(daemon, report);
    }
    for (const std::string& name : task.waits) {
      AskKv(daemon, key, name);
    }
  }
}

void World::TakeAck(Daemon& daemon, const v1::ReportAck& ack) {
  auto it = daemon.tasks.find({ack.job_id(), ack.epoch()});
  if (it == daemon.tasks.end()) {
    return;
  }
  Task& task = it->second;
  while (!task.unacked.empty() && task.unacked.front().seq() <= ack.seq()) {
    task.unacked.pop_front();
  }
  if (!task.running && task.unacked.empty()) {
    daemon.tasks.erase(it);
  }
}

void World::TakeStart(Daemon& daemon, const v1::Task& start) {
  const TaskKey key{start.job_id(), start.epoch()};
  if (daemon.tasks.count(key) > 0) {
    return;
  }
  for (const auto& [other, task] : daemon.tasks) {
    if (task.running) {
      Fail(absl::StrCat(daemon.name, " is given ", key.first, "/", key.second, " while it runs ",
                        other.first, "/", other.second));
    }
  }
  if (!start.resume_path().empty()) {
    bool exists = false;
    for (const auto& [epoch, step] : folders_[start.job_id()]) {
      exists =
          exists || start.resume_path() == absl::StrCat("/", daemon.root_uuid, "/", start.job_id(),
                                                        "/e", epoch, "/step-", step, ".");
    }
    if (!exists) {
      Fail(absl::StrCat(daemon.name, " is to resume from ", start.resume_path(),
                        ", which is not there"));
    }
  }
  Task& task = daemon.tasks[key];
  task.task = start;
  task.step = start.resume_step();
  Gang& gang = gangs_[key];
  gang.ranks.resize(static_cast<size_t>(start.world_size()));
  gang.step = start.resume_step();
  gang.total = start.spec().train().steps();
  gang.every = start.spec().checkpoint().every_steps();
  Rank& rank = gang.ranks[static_cast<size_t>(start.rank())];
  rank.daemon = &daemon;
  rank.alive = true;
  if (daemon.stopping) {  // it was sent before its word came
    Exit(daemon, key, v1::EXIT_REASON_ABORTED, true);
    return;
  }
  v1::TaskReport put;
  put.mutable_kv_put()->set_key(absl::StrCat("rank", start.rank()));
  put.mutable_kv_put()->set_value("address");
  Report(daemon, key, std::move(put));
  for (int i = 0; i < start.world_size(); ++i) {
    const std::string name = absl::StrCat("rank", i);
    task.waits.insert(name);
    AskKv(daemon, key, name);
  }
}

void World::AskKv(Daemon& daemon, const TaskKey& key, const std::string& name) {
  core::AgentKvWait wait;
  wait.connection_id = daemon.link;
  wait.wait.set_job_id(key.first);
  wait.wait.set_epoch(key.second);
  wait.wait.set_rank(daemon.tasks[key].task.rank());
  wait.wait.set_key(name);
  SendUp(daemon, wait);
}

void World::TakeKv(Daemon& daemon, const v1::TaskKvValue& value) {
  const TaskKey key{value.job_id(), value.epoch()};
  auto it = daemon.tasks.find(key);
  if (it == daemon.tasks.end() || !it->second.running) {
    return;
  }
  Gang& gang = gangs_[key];
  if (it->second.task.rank() != value.rank()) {
    Fail("a key-value answer went to the wrong rank");
  }
  it->second.waits.erase(value.value().key());
  gang.ranks[static_cast<size_t>(value.rank())].keys.insert(value.value().key());
  const bool ready = std::all_of(gang.ranks.begin(), gang.ranks.end(), [&gang](const Rank& rank) {
    return rank.alive && rank.keys.size() == gang.ranks.size();
  });
  if (ready && !gang.stepping) {
    gang.stepping = true;
    v1::TaskReport info;
    info.mutable_run_info()->set_start_step(gang.step);
    Report(*gang.ranks[0].daemon, key, std::move(info));
    After(Ms(50, 1000), [this, key] { Step(key); });
  }
}

void World::Report(Daemon& daemon, const TaskKey& key, v1::TaskReport report) {
  auto it = daemon.tasks.find(key);
  if (it == daemon.tasks.end()) {
    return;
  }
  report.set_job_id(key.first);
  report.set_epoch(key.second);
  report.set_rank(it->second.task.rank());
  report.set_seq(it->second.next_seq++);
  it->second.unacked.push_back(report);
  if (!daemon.welcomed) {
    return;
  }
  if (AllFaults() && !healed_ && Chance(0.003)) {
    After(Ms(0, 10000), [this, link = daemon.link] { BreakLink(link); });  // lost: leaves a gap
  } else {
    SendReport(daemon, report);
  }
}

void World::SendReport(Daemon& daemon, const v1::TaskReport& report) {
  core::AgentReport command;
  command.connection_id = daemon.link;
  command.report = report;
  SendUp(daemon, command);
  // Twice now and then, as when an acknowledgement is lost: the second must change nothing.
  if (Chance(0.02)) {
    SendUp(daemon, command);
  }
}

void World::Exit(Daemon& daemon, const TaskKey& key, v1::ExitReason reason, bool report) {
  auto it = daemon.tasks.find(key);
  if (it == daemon.tasks.end() || !it->second.running) {
    return;
  }
  it->second.running = false;
  Rank& rank = gangs_[key].ranks[static_cast<size_t>(it->second.task.rank())];
  rank.alive = false;
  if (report) {
    v1::TaskReport last;
    last.mutable_exit()->mutable_exit()->set_reason(reason);
    last.mutable_exit()->mutable_exit()->set_message("simulated");
    last.mutable_exit()->mutable_exit()->set_device_too_small(reason == v1::EXIT_REASON_DEVICE);
    const bool clean = healed_ || !AllFaults() || !Chance(0.01);
    last.mutable_exit()->set_clean(clean);
    if (!clean) {
      daemon.unhealthy = true;
      After(Ms(5000, 20000), [this, &daemon] { CrashDaemon(daemon); });  // its operator looks
    }
    Report(daemon, key, std::move(last));
  }
  if (!rank.leaving) {
    PeerDied(key);
  }
}

void World::Die(Daemon& daemon, const TaskKey& key) {
  Task& task = daemon.tasks[key];
  gangs_[key].ranks[static_cast<size_t>(task.task.rank())].alive = false;
  v1::TaskReport notice;
  notice.mutable_dying()->mutable_exit()->set_reason(v1::EXIT_REASON_KILLED);
  notice.mutable_dying()->mutable_exit()->set_message("simulated");
  Report(daemon, key, std::move(notice));
  After(Ms(300, 12000), [this, &daemon, key, incarnation = daemon.incarnation] {
    if (daemon.incarnation == incarnation) {
      Exit(daemon, key, v1::EXIT_REASON_KILLED, true);
    }
  });
}

void World::PeerDied(const TaskKey& key) {
  for (Rank& peer : gangs_[key].ranks) {
    if (peer.alive && !Chance(0.2)) {  // else it hangs until it is killed
      Daemon* daemon = peer.daemon;
      After(Ms(100, 8000), [this, daemon, key] { Exit(*daemon, key, v1::EXIT_REASON_COMM, true); });
    }
  }
}

void World::Announce(const TaskKey& key, Gang& gang) {
  Daemon& daemon = *gang.ranks[0].daemon;
  v1::TaskReport report;
  v1::CheckpointAnnouncement& announcement = *report.mutable_checkpoint();
  announcement.set_step(gang.step);
  announcement.set_path(
      absl::StrCat(daemon.tasks[key].task.checkpoint_dir(), "/step-", gang.step, "."));
  const std::pair<int64_t, int64_t> place{key.second, gang.step};
  written_[key.first][place] = clock_.Now();
  if (AllFaults() && Chance(0.05)) {
    temporaries_[key.first].insert(place);  // the writer is killed before the rename
    Exit(daemon, key, v1::EXIT_REASON_KILLED, true);
    return;
  }
  folders_[key.first].insert(place);
  Report(daemon, key, std::move(report));
}

void World::Remove(const v1::DeleteCheckpointFolder& message) {
  const auto named = [&message](const char* end) {
    return [&message, end](const std::pair<int64_t, int64_t>& folder) {
      return absl::EndsWith(message.path(),
                            absl::StrCat("/e", folder.first, "/step-", folder.second, end));
    };
  };
  std::erase_if(temporaries_[message.job_id()], named(".tmp-"));
  std::erase_if(folders_[message.job_id()], named("."));
}

void World::ListFolders(Daemon& daemon, int64_t request_id) {
  core::AgentFolders command;
  command.connection_id = daemon.link;
  command.folders.set_request_id(request_id);
  const auto add = [&](const std::string& job, std::pair<int64_t, int64_t> place, bool complete) {
    v1::CheckpointFolder& folder = *command.folders.add_folders();
    folder.set_job_id(job);
    folder.set_epoch(place.first);
    folder.set_step(place.second);
    folder.set_name(absl::StrCat("step-", place.second, complete ? "." : ".tmp-"));
    folder.set_kind(complete ? v1::CHECKPOINT_FOLDER_KIND_COMPLETE
                             : v1::CHECKPOINT_FOLDER_KIND_TEMPORARY);
    folder.mutable_change_time()->set_seconds(absl::ToUnixSeconds(written_[job][place]));
  };
  // Roots differ in workers, not in what this world keeps of them: the gang's root has the folder.
  for (const auto& [job, places] : folders_) {
    for (const auto& place : places) {
      add(job, place, true);
    }
  }
  for (const auto& [job, places] : temporaries_) {
    for (const auto& place : places) {
      add(job, place, false);
    }
  }
  SendUp(daemon, command);
}

void World::LeaveAll(const TaskKey& key, v1::ExitReason reason) {
  for (Rank& rank : gangs_[key].ranks) {
    rank.leaving = true;
    Daemon* daemon = rank.daemon;
    After(Ms(0, 800), [this, daemon, key, reason] { Exit(*daemon, key, reason, true); });
  }
}

// One step of the gang: possible only while every rank lives.
void World::Step(const TaskKey& key) {
  Gang& gang = gangs_[key];
  for (const Rank& rank : gang.ranks) {
    if (!rank.alive) {
      return;
    }
  }
  const bool done = gang.step >= gang.total;
  if (!done) {
    ++gang.step;
    for (Rank& rank : gang.ranks) {
      rank.daemon->tasks[key].step = gang.step;
    }
    v1::TaskReport report;
    report.mutable_step()->set_step(gang.step);
    Report(*gang.ranks[0].daemon, key, std::move(report));
    for (Rank& rank : gang.ranks) {
      v1::TaskReport logs;
      logs.mutable_logs()->add_lines()->set_text(absl::StrCat(++rank.log_lines));
      Report(*rank.daemon, key, std::move(logs));
    }
  }
  if (gang.step >= gang.total || gang.bit >= v1::CONTROL_BIT_PAUSE) {
    if (!done) {
      Announce(key, gang);
    }
    LeaveAll(key, gang.step >= gang.total             ? v1::EXIT_REASON_FINISHED
                  : gang.bit == v1::CONTROL_BIT_PAUSE ? v1::EXIT_REASON_PAUSED
                                                      : v1::EXIT_REASON_STOPPED);
    return;
  }
  if (gang.every > 0 && gang.step % gang.every == 0) {
    Announce(key, gang);
  }
  if (AllFaults() && Chance(0.004)) {
    const v1::ExitReason reasons[] = {v1::EXIT_REASON_INTERNAL, v1::EXIT_REASON_DEVICE,
                                      v1::EXIT_REASON_IO, v1::EXIT_REASON_BAD_DATA};
    Rank& victim =
        gang.ranks[static_cast<size_t>(Pick(0, static_cast<int64_t>(gang.ranks.size()) - 1))];
    Exit(*victim.daemon, key, reasons[Pick(0, 3)], true);
    return;
  }
  After(Ms(100, 1200), [this, key] { Step(key); });
}

}  // namespace hearth::sim
