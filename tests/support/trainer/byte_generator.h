// A generator over bytes, one text at a time, with random weights.
#pragma once

#include <cstdint>
#include <memory>

#include "gtest/gtest.h"
#include "tests/support/trainer/test_model.h"
#include "worker/trainer/generate/generator.h"

namespace hearth::trainer {

struct ByteGeneratorOptions {
  int64_t prompt = 8;
  int64_t length = 68;
  double temperature = 0.7;
  double repetition_penalty = 1.0;
};

inline std::unique_ptr<Generator> MakeByteGenerator(const ByteGeneratorOptions& wanted = {}) {
  GeneratorOptions options;
  options.model = TinyModel("llama");
  options.model.set_vocab(257);
  options.recipe = "fp32";
  options.prompt = wanted.prompt;
  options.length = wanted.length;
  options.rule.temperature = wanted.temperature;
  options.rule.repetition_penalty = wanted.repetition_penalty;
  absl::StatusOr<std::unique_ptr<Generator>> generator = Generator::Create(options);
  EXPECT_TRUE(generator.ok()) << generator.status();
  EXPECT_TRUE((*generator)->parameters().Initialise((*generator)->exec(), 3).ok());
  EXPECT_TRUE((*generator)->Prepare().ok());
  return *std::move(generator);
}

}  // namespace hearth::trainer
