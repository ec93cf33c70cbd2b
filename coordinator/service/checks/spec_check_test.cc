#include "coordinator/service/checks/spec_check.h"

#include <memory>
#include <string>
#include <vector>

#include "common/spec/gpus/gpus.h"
#include "common/spec/resolve/resolve.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/coordinator/tiny_spec.h"

namespace hearth::coordinator {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<v1::Worker> CpuWorker(int64_t memory) {
  auto worker = std::make_shared<v1::Worker>();
  worker->set_worker_id("w1");
  worker->set_state(v1::WORKER_STATE_IDLE);
  worker->mutable_device()->set_kind("cpu");
  worker->mutable_device()->set_threads(1);
  worker->mutable_device()->set_memory_bytes(memory);
  return worker;
}

// Fewer ranks hold larger parts of a divided optimizer.
TEST(CheckMemory, FitsWithAllWorkersButNotWithTheFewest_IsRefusedAndSaysSo) {
  v1::JobSpec job = TinySpec();
  job.mutable_model()->set_vocab(256);
  job.mutable_batch()->clear_global_batch_tokens();
  job.mutable_batch()->set_micro_batch_size(1);
  job.mutable_parallel()->set_shard("optimizer");
  job.mutable_resources()->set_workers(8);
  job.mutable_resources()->set_min_workers(8);
  std::vector<spec::FieldViolation> violations;
  spec::Resolve(job, violations);
  ASSERT_TRUE(violations.empty()) << spec::ViolationsToStatus(violations);
  const auto check = [&job](int64_t memory) { return CheckMemory(job, {CpuWorker(memory)}); };
  // The least memory that all eight need.
  int64_t low = 0;
  int64_t high = int64_t{1} << 40;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (check(middle).ok() ? high : low) = middle;
  }
  EXPECT_TRUE(check(high).ok());
  job.mutable_resources()->set_min_workers(2);
  const absl::Status fewer = check(high);
  EXPECT_EQ(fewer.code(), absl::StatusCode::kResourceExhausted) << fewer;
  EXPECT_THAT(std::string(fewer.message()), HasSubstr("when 2 of 8 workers are left"));
  EXPECT_TRUE(check(int64_t{1} << 40).ok());
}

v1::JobSpec Resolved(v1::JobSpec job);

TEST(CheckMemoryUnseen, JobOfAPebibyte_IsRefusedWithoutAWorkersAnswer) {
  v1::JobSpec job = TinySpec();
  job.mutable_batch()->clear_global_batch_tokens();
  EXPECT_TRUE(CheckMemoryUnseen(Resolved(job), {}).ok()) << "nothing is known of the vocabulary";
  EXPECT_TRUE(CheckMemoryUnseen(Resolved(job), {CpuWorker(int64_t{4} << 30)}).ok());
  job.mutable_model()->set_layers(1024);
  job.mutable_model()->set_hidden(65536);
  job.mutable_model()->set_heads(512);
  job.mutable_model()->set_ffn_hidden(262144);
  for (const auto& workers :
       {std::vector<WorkerPtr>{}, std::vector<WorkerPtr>{CpuWorker(int64_t{4} << 30)}}) {
    const absl::Status refused = CheckMemoryUnseen(Resolved(job), workers);
    EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr(workers.empty() ? "the largest host known" : "(w1)"));
  }
  job.mutable_model()->Clear();
  job.mutable_model()->set_from("/models/of-unknown-size");
  EXPECT_TRUE(CheckMemoryUnseen(Resolved(job), {}).ok());
}

TEST(CheckMemory, Gpu_LeavesRoomForCuda) {
  v1::JobSpec job = TinySpec();
  job.mutable_model()->set_vocab(256);
  job.mutable_batch()->clear_global_batch_tokens();
  job.mutable_resources()->set_device("cuda");
  const auto worker = CpuWorker(spec::kProcessOverheadBytes);
  worker->mutable_device()->set_kind("cuda");
  EXPECT_TRUE(absl::IsResourceExhausted(CheckMemory(Resolved(job), {worker})));
  worker->mutable_device()->set_memory_bytes(2 * spec::kProcessOverheadBytes);
  EXPECT_TRUE(CheckMemory(Resolved(job), {worker}).ok());
}

// Two GPUs of one host.
TEST(CheckMemory, Offload_BeyondTheMemoryOfEachHost_IsRefusedWithTheFigure) {
  v1::JobSpec job = TinySpec();
  job.mutable_model()->set_vocab(256);
  job.mutable_batch()->clear_global_batch_tokens();
  job.mutable_precision()->set_recipe("bf16");
  job.mutable_resources()->set_device("cuda");
  job.mutable_offload()->set_optimizer(true);
  const auto first = CpuWorker(int64_t{80} << 30);
  first->mutable_device()->set_kind("cuda");
  first->set_host("box");
  const auto second = std::make_shared<v1::Worker>(*first);
  second->set_worker_id("w2");
  const auto check = [&](int64_t host_bytes, int ranks) {
    for (const auto& worker : {first, second}) {
      worker->mutable_device()->set_host_memory_bytes(host_bytes);
    }
    job.mutable_resources()->set_workers(ranks);
    return CheckMemory(Resolved(job), {first, second});
  };
  EXPECT_TRUE(check(0, 1).ok()) << "not known";
  // The least that one rank needs; each of two has half of the host.
  int64_t low = 1;
  int64_t high = int64_t{1} << 40;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (check(middle, 1).ok() ? high : low) = middle;
  }
  const absl::Status refused = check(low, 1);
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              ::testing::AllOf(HasSubstr("offload needs "), HasSubstr(" for it (w1); "),
                               HasSubstr("move less to the host: offload.optimizer: false")));
  job.mutable_parallel()->set_shard("off");
  EXPECT_FALSE(check(high, 2).ok());
  EXPECT_TRUE(check(2 * high, 2).ok());
  second->set_host("another");
  EXPECT_TRUE(check(high, 2).ok()) << "one rank on each host";
  job.clear_offload();
  EXPECT_TRUE(check(1, 2).ok()) << "others are not asked for it";
}

v1::JobSpec Resolved(v1::JobSpec job) {
  std::vector<spec::FieldViolation> violations;
  spec::Resolve(job, violations);
  EXPECT_TRUE(violations.empty()) << spec::ViolationsToStatus(violations);
  return job;
}

TEST(SpecDifferences, WhatAWorkerAdded_IsNone) {
  const v1::JobSpec submitted = Resolved(TinySpec());
  v1::JobSpec kept = submitted;
  v1::PathInfo dataset;
  dataset.set_path("/data/train");
  dataset.set_kind("raw");
  dataset.set_tokens(1000);
  dataset.set_vocab(256);
  ASSERT_TRUE(ApplyFacts(kept, {dataset}, "w1").ok());
  ASSERT_EQ(kept.model().vocab(), 256);
  EXPECT_TRUE(SpecDifferences(kept, submitted).empty());
  EXPECT_TRUE(SpecDifferences(submitted, kept).empty());
  v1::JobSpec other = submitted;
  other.mutable_train()->set_steps(4);
  const std::vector<std::string> lines = SpecDifferences(kept, other);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_THAT(lines[0], HasSubstr("train.steps: 3 -> 4"));
}

TEST(SpecDifferences, ModelFolder_IsFilledFromTheOther) {
  v1::JobSpec job = TinySpec();
  job.mutable_model()->Clear();
  job.mutable_model()->set_from("/models/tiny");
  const v1::JobSpec submitted = Resolved(job);
  v1::PathInfo dataset;
  dataset.set_path("/data/train");
  dataset.set_kind("raw");
  dataset.set_tokens(1000);
  dataset.set_vocab(200);
  v1::PathInfo model;
  model.set_path("/models/tiny");
  model.set_kind("model");
  *model.mutable_model() = TinySpec().model();
  model.mutable_model()->set_vocab(256);
  v1::JobSpec kept = submitted;
  ASSERT_TRUE(ApplyFacts(kept, {dataset, model}, "w1").ok());
  EXPECT_TRUE(SpecDifferences(kept, submitted).empty());
  v1::JobSpec other = submitted;
  other.mutable_model()->set_from("/models/other");
  EXPECT_FALSE(SpecDifferences(kept, other).empty());
}

TEST(ApplyFacts, APathThatAWorkerCannotUse_NamesTheWorkerAndThePathOnce) {
  v1::JobSpec job = Resolved(TinySpec());
  v1::PathInfo dataset;
  dataset.set_path("/data/train");
  dataset.set_error("/data/train: no such file or folder");
  const absl::Status missing = ApplyFacts(job, {dataset}, "w7");
  EXPECT_TRUE(absl::IsInvalidArgument(missing)) << missing;
  EXPECT_THAT(std::string(missing.message()),
              HasSubstr("data.train[0].path: on worker w7: /data/train: no such file or folder"));
  dataset.set_error("the worker did not say");
  EXPECT_THAT(std::string(ApplyFacts(job, {dataset}, "w7").message()),
              HasSubstr("on worker w7: /data/train: the worker did not say"));
}

TEST(ApplyFacts, TokenizersThatDiffer_AreRefusedUnlessAllowed) {
  v1::JobSpec job = TinySpec();
  job.mutable_model()->Clear();
  job.mutable_model()->set_from("/models/qwen");
  job = Resolved(job);
  v1::PathInfo dataset;
  dataset.set_path("/data/train");
  dataset.set_kind("dataset");
  dataset.set_tokens(1000);
  dataset.set_vocab(256);
  dataset.mutable_tokenizer()->set_kind("bytes");
  v1::PathInfo model;
  model.set_path("/models/qwen");
  model.set_kind("model");
  *model.mutable_model() = TinySpec().model();
  model.mutable_model()->set_vocab(256);
  model.mutable_tokenizer()->set_kind("bpe");
  model.mutable_tokenizer()->set_file("tokenizer.json");
  v1::JobSpec checked = job;
  EXPECT_THAT(std::string(ApplyFacts(checked, {dataset, model}, "w1").message()),
              ::testing::AllOf(HasSubstr("/data/train has the tokenizer bytes"),
                               HasSubstr("/models/qwen has the tokenizer bpe")));
  checked = job;
  checked.mutable_data()->set_allow_other_tokenizer(true);
  EXPECT_TRUE(ApplyFacts(checked, {dataset, model}, "w1").ok());
}

}  // namespace
}  // namespace hearth::coordinator
