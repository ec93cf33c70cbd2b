// A small job on made-up data, for tests of the step and of a rank's life.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "common/dataset/dataset_writer.h"
#include "common/facts/complete_spec.h"
#include "common/spec/fields/rows.h"
#include "common/spec/resolve/resolve.h"
#include "gtest/gtest.h"
#include "tests/support/common/temp_dir.h"
#include "tests/support/trainer/test_model.h"
#include "worker/trainer/comm/collective.h"
#include "worker/trainer/rank/open_loader.h"
#include "worker/trainer/step/trainer.h"

namespace hearth::trainer {

// Headerless uint16 tokens below 37 with structure to learn: runs of an arithmetic sequence.
inline std::string WriteTokens(const std::string& dir, std::string_view name, int count) {
  const std::string path = dir + "/" + std::string(name);
  // A rank that is still there has mapped the file: writing it again would cut it off under a
  // thread that reads ahead.
  std::error_code missing;
  if (std::filesystem::file_size(path, missing) == static_cast<uintmax_t>(count) * 2 && !missing) {
    return path;
  }
  std::ofstream out(path, std::ios::binary);
  uint32_t state = 17;
  uint16_t token = 0;
  for (int i = 0; i < count; ++i) {
    state = state * 1664525U + 1013904223U;
    token = static_cast<uint16_t>((state >> 28) == 0 ? (state >> 8) % 37 : (token + 3) % 37);
    out.write(reinterpret_cast<const char*>(&token), sizeof(token));
  }
  return path;
}

// Resolved: a two-layer Llama on `dir`/train.bin, global batch of 8 sequences of 16 tokens.
inline v1::JobSpec SmallJob(const std::string& dir, std::string_view family = "llama") {
  v1::JobSpec spec;
  spec.set_name("small");
  *spec.mutable_model() = TinyModel(family);
  spec.mutable_data()->add_train()->set_path(WriteTokens(dir, "train.bin", 4000));
  spec.mutable_data()->add_validation()->set_path(WriteTokens(dir, "val.bin", 700));
  spec.mutable_data()->set_sequence_length(16);
  spec.mutable_batch()->set_micro_batch_size(2);
  spec.mutable_batch()->set_global_batch_tokens(128);
  spec.mutable_precision()->set_recipe("fp32");
  spec.mutable_optimizer()->set_lr(1e-2);
  spec.mutable_schedule()->set_name("cosine");
  spec.mutable_schedule()->set_warmup_steps(10);
  spec.mutable_train()->set_steps(50);
  spec.mutable_train()->set_eval_every(0);
  spec.mutable_train()->set_eval_batches(2);
  spec.mutable_checkpoint()->set_every_steps(0);
  std::vector<spec::FieldViolation> violations;
  spec::Resolve(spec, violations);
  EXPECT_TRUE(violations.empty()) << spec::ViolationsToStatus(violations).ToString();
  EXPECT_TRUE(facts::CompleteSpec(spec, Env::Real()).ok());
  return spec;
}

// Makes every extent of a SmallJob a multiple of 128, which the widest Hadamard transform takes.
inline void SetExtentsOf128(v1::JobSpec& spec) {
  spec.mutable_model()->set_hidden(128);
  spec.mutable_model()->set_head_dim(32);
  spec.mutable_model()->set_ffn_hidden(128);
  spec.mutable_data()->set_sequence_length(32);
  spec.mutable_batch()->set_micro_batch_size(4);
  spec.mutable_batch()->set_global_batch_tokens(256);
}

// A resolved job with another optimizer, whose options have the values that a job file without
// them has.
inline v1::JobSpec WithOptimizer(v1::JobSpec spec, std::string_view name) {
  spec.mutable_optimizer()->set_name(std::string(name));
  spec::FillRowDefaults(spec);
  return spec;
}
inline v1::JobSpec WithMuon(v1::JobSpec spec) {
  return WithOptimizer(std::move(spec), "muon");
}

// A SmallJob in bf16 whose matrices have 4096 elements and more, so that state formats and weight
// stores in blocks take them. The rows of the down projection, 96, are no whole blocks of nvfp4.
inline v1::JobSpec BlockSizedJob(const std::string& dir, std::string_view optimizer) {
  v1::JobSpec spec = WithOptimizer(SmallJob(dir, "qwen2"), optimizer);
  spec.mutable_precision()->set_recipe("bf16");
  spec.mutable_model()->set_hidden(64);
  spec.mutable_model()->set_head_dim(16);
  spec.mutable_model()->set_ffn_hidden(96);
  spec.mutable_model()->set_vocab(131);  // padded
  return spec;
}

// A dataset of `count` documents of 2 to 31 tokens: arithmetic sequences, then the end token 36.
inline std::string WriteDocuments(const std::string& dir, std::string_view name, int count) {
  dataset::DatasetWriter::Options options;
  options.info.vocab = 37;
  options.info.eos = 36;
  const std::string path = dir + "/" + std::string(name);
  auto writer = dataset::DatasetWriter::Create(path, options);
  EXPECT_TRUE(writer.ok()) << writer.status().ToString();
  uint32_t state = 23;
  for (int d = 0; d < count; ++d) {
    state = state * 1664525U + 1013904223U;
    std::vector<int32_t> tokens(1 + (state >> 8) % 30);
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<int32_t>(((state >> 16) + 3 * i) % 36);
    }
    EXPECT_TRUE((*writer)->AddDocument(tokens).ok());
  }
  EXPECT_TRUE((*writer)->Finish().ok());
  return path;
}

// SmallJob on documents that are packed and see nothing of one another.
inline v1::JobSpec DocumentJob(const std::string& dir, std::string_view family = "llama") {
  v1::JobSpec spec = SmallJob(dir, family);
  v1::DataSpec& data = *spec.mutable_data();
  data.mutable_train(0)->set_path(WriteDocuments(dir, "documents", 300));
  data.mutable_validation(0)->set_path(WriteDocuments(dir, "held_out", 60));
  data.set_packing("best_fit");
  data.set_attention("document");
  return spec;
}

// A dataset with a mask of `count` conversations: a question of 2 to 9 tokens, the answer, an
// arithmetic sequence that begins with the question's last token and counts, and 1 to 3 tokens that
// no answer follows, which depend on `tail` alone.
inline std::string WriteChats(const std::string& dir,
                              std::string_view name,
                              int count,
                              uint32_t tail = 0) {
  dataset::DatasetWriter::Options options;
  options.info.vocab = 37;
  options.info.eos = 36;
  options.info.loss_tokens = 0;
  options.shard_tokens = 1000;
  const std::string path = dir + "/" + std::string(name);
  auto writer = dataset::DatasetWriter::Create(path, options);
  EXPECT_TRUE(writer.ok()) << writer.status().ToString();
  uint32_t state = 29;
  for (int d = 0; d < count; ++d) {
    state = state * 1664525U + 1013904223U;
    const uint32_t question = 2 + (state >> 8) % 8;
    const uint32_t answer = 1 + (state >> 12) % 12;
    const uint32_t rest = 1 + (state >> 16) % 3;
    std::string packed;
    std::string mask;
    for (uint32_t i = 0; i < question + answer + rest; ++i) {
      const bool behind = i >= question + answer;
      const uint32_t token = behind ? (i + tail) % 37 : ((state >> 20) + 3 * i) % 36;
      dataset::AppendToken((*writer)->width(), static_cast<int32_t>(token), &packed);
      mask.push_back(i >= question && !behind ? '\1' : '\0');
    }
    mask.back() = '\2';
    EXPECT_TRUE((*writer)->AddPackedDocument(packed, question + answer + rest, mask).ok());
  }
  EXPECT_TRUE((*writer)->Finish().ok());
  return path;
}

// Supervised fine-tuning on such conversations; packing and attention are the task's defaults.
inline v1::JobSpec ChatJob(const std::string& dir,
                           std::string_view family = "llama",
                           uint32_t tail = 0) {
  v1::JobSpec spec = SmallJob(dir, family);
  v1::DataSpec& data = *spec.mutable_data();
  data.mutable_train(0)->set_path(WriteChats(dir, "chats", 300, tail));
  data.mutable_validation(0)->set_path(WriteChats(dir, "held_out_chats", 60, tail));
  data.clear_packing();
  data.clear_attention();
  spec.set_task("sft");
  std::vector<spec::FieldViolation> violations;
  spec::Resolve(spec, violations);
  EXPECT_TRUE(violations.empty()) << spec::ViolationsToStatus(violations).ToString();
  EXPECT_TRUE(facts::CompleteSpec(spec, Env::Real()).ok());
  return spec;
}

// One rank with everything it needs, initialised from the seed.
struct TestRank {
  std::unique_ptr<Loader> train;
  std::unique_ptr<Loader> validation;
  std::unique_ptr<Engine> engine;
  spec::BatchPlan batch;
  std::unique_ptr<Trainer> trainer;

  std::vector<float> Weights() const {
    std::vector<float> all;
    for (int i = 0; i < engine->parameters().size(); ++i) {
      const kernels::TensorView& master = engine->parameters().master(i);
      all.insert(all.end(), master.as<float>(), master.as<float>() + master.numel());
    }
    return all;
  }
};

// parallel.shard says what ranks divide; nothing with auto.
inline std::unique_ptr<TestRank> MakeRank(const v1::JobSpec& spec,
                                          Collective& comm,
                                          int threads = 1) {
  auto rank = std::make_unique<TestRank>();
  EngineOptions options;
  options.spec = spec;
  options.micro_batch = spec.batch().micro_batch_size();
  options.threads = threads;
  options.world_size = comm.world_size();
  options.rank = comm.rank();
  options.shard = spec::AllowedShardLevels(spec, comm.world_size()).front();
  auto engine = Engine::Create(options);
  EXPECT_TRUE(engine.ok()) << engine.status().ToString();
  rank->engine = *std::move(engine);
  EXPECT_TRUE(rank->engine->Initialise().ok());
  rank->train = *OpenLoader(spec, spec.data().train(), true, Env::Real());
  rank->validation = *OpenLoader(spec, spec.data().validation(), false, Env::Real());
  rank->batch = *spec::ResolveBatchPlan(spec, options.micro_batch, comm.world_size());
  Trainer::Parts parts;
  parts.engine = rank->engine.get();
  parts.comm = &comm;
  parts.train = rank->train.get();
  parts.validation = rank->validation.get();
  parts.clock = &Clock::Real();
  parts.batch = rank->batch;
  rank->trainer = std::make_unique<Trainer>(parts, 0);
  return rank;
}

}  // namespace hearth::trainer
