#include "jobctl/commands/workers/top.h"

#include "gtest/gtest.h"

namespace hearth::jobctl {
namespace {

v1::Worker GpuWorker(const std::string& name, const std::string& job) {
  v1::Worker worker;
  worker.set_worker_id(name);
  worker.set_state(job.empty() ? v1::WORKER_STATE_IDLE : v1::WORKER_STATE_BUSY);
  worker.set_job_id(job);
  worker.mutable_device()->set_kind("cuda");
  worker.mutable_device()->set_memory_bytes(int64_t{80} << 30);
  v1::DeviceStatus& status = *worker.mutable_device_status();
  status.set_memory_used_bytes(int64_t{61} << 29);
  status.set_power_watts(575.4);
  status.set_temperature_celsius(64);
  status.set_utilization_ratio(0.985);
  return worker;
}

TEST(RenderTop, GpuAndCpuWorkers_ShowsSharesAndDashes) {
  v1::Job job;
  job.set_state(v1::JOB_STATE_RUNNING);
  job.add_workers("g0");
  job.add_workers("g1");
  job.mutable_last_report()->set_tokens_per_second(196000);
  v1::Worker cpu;
  cpu.set_worker_id("cpu0");
  cpu.set_state(v1::WORKER_STATE_IDLE);
  cpu.mutable_device()->set_kind("cpu");
  cpu.mutable_device()->set_memory_bytes(int64_t{16} << 30);
  v1::Worker lost = GpuWorker("g2", "");
  lost.set_state(v1::WORKER_STATE_OFFLINE);
  EXPECT_EQ(RenderTop({cpu, GpuWorker("g0", "run"), GpuWorker("g1", "run"), lost}, {{"run", job}}),
            "4 workers, 2 busy, 196k tok/s, 1151 W\n"
            "NAME  STATE    JOB  TOK/S  POWER  TEMP  MEMORY        UTIL\n"
            "cpu0  IDLE     -    -      -      -     -/16.0GiB     -\n"
            "g0    BUSY     run  98.0k  575W   64C   30.5/80.0GiB  98%\n"
            "g1    BUSY     run  98.0k  575W   64C   30.5/80.0GiB  98%\n"
            "g2    OFFLINE  -    -      -      -     -/80.0GiB     -\n");
}

TEST(RenderTop, JobThatRestsOrIsGone_HasNoSpeed) {
  v1::Job job;
  job.set_state(v1::JOB_STATE_RECOVERING);
  job.add_workers("g0");
  job.mutable_last_report()->set_tokens_per_second(196000);
  const std::string text =
      RenderTop({GpuWorker("g0", "run"), GpuWorker("g1", "gone")}, {{"run", job}});
  EXPECT_EQ(text.find("196k"), std::string::npos) << text;
  EXPECT_NE(text.find("gone"), std::string::npos) << text;
}

TEST(FitScreen, LongTable_IsCutBothWays) {
  EXPECT_EQ(FitScreen("abcdef\nx\n\nyz\n", 3, 2), "abc\nx\n");
  EXPECT_EQ(FitScreen("ab\n", 80, 24), "ab\n");
}

}  // namespace
}  // namespace hearth::jobctl
