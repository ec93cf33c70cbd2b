// What updates and steps leave behind, in bits, whatever part of it each rank has.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/trainer/test_run.h"
#include "worker/trainer/optim/optimizer.h"

namespace hearth::trainer {

inline std::string Bytes(const kernels::TensorView& view) {
  return {view.as<char>(), view.bytes()};
}

// With one micro-batch of each rank in a step.
inline v1::JobSpec OneEach(v1::JobSpec spec, int ranks) {
  spec.mutable_batch()->set_global_batch_tokens(int64_t{spec.batch().micro_batch_size()} *
                                                spec.data().sequence_length() * ranks);
  return spec;
}

// One update of every piece with gradients that depend on the element alone.
inline void UpdatePieces(Engine& engine, int64_t step, WholeGradients* whole = nullptr) {
  const ParameterStore& p = engine.parameters();
  for (const StorePiece& piece : p.pieces()) {
    float* gradient = piece.gradient.as<float>();
    for (int64_t e = 0; e < piece.place.elements; ++e) {
      const int64_t element = piece.place.first_element + e;
      gradient[e] = std::sin(static_cast<float>(piece.place.parameter + 3 * element + 7 * step));
    }
  }
  engine.step_inputs()->learning_rate = 1e-2;
  engine.step_inputs()->step = step;
  engine.optimizer().Scalars(step, absl::MakeSpan(engine.step_inputs()->optimizer));
  const float scale = 0.5F;
  UpdateArgs args;
  args.inputs = engine.step_inputs();
  args.grad_scale = &scale;
  args.whole = whole;
  ASSERT_TRUE(engine.optimizer().Step(engine.exec(), args).ok());
}

// What updates change, tensor by tensor: what the ranks have of each, one piece behind the other.
// So it does not depend on how buckets cut tensors into pieces.
class Changed {
 public:
  void Add(const ParameterStore& parameters) {
    for (const StorePiece& piece : parameters.pieces()) {
      Add(piece, "master", piece.master);
      for (size_t k = 0; k < piece.states.size(); ++k) {
        Add(piece, "state " + std::to_string(k), piece.states[k]);
      }
      Add(piece, "weight", piece.weight);
      Add(piece, "blocks", piece.blocks);
    }
  }
  std::map<std::string, std::string> Whole() const {
    std::map<std::string, std::string> whole;
    for (const auto& [key, bytes] : pieces_) {
      whole[key.first] += bytes;
    }
    return whole;
  }

 private:
  void Add(const StorePiece& piece, const std::string& what, const kernels::TensorView& view) {
    const std::string name = std::to_string(piece.place.parameter) + " " + what;
    if (view.empty()) {  // weights in blocks have neither masters nor weights
      return;
    }
    pieces_[{name, piece.place.first_element}] = Bytes(view);
  }

  std::map<std::pair<std::string, int64_t>, std::string> pieces_;
};

// What three steps leave behind. The losses of rank 0 go to `losses` unless it is null.
inline std::map<std::string, std::string> Train(const v1::JobSpec& job,
                                                int ranks,
                                                std::vector<double>* losses = nullptr) {
  const v1::JobSpec spec = OneEach(job, ranks);
  std::vector<std::unique_ptr<Collective>> comms = NewThreadCollectives(ranks);
  std::vector<std::unique_ptr<TestRank>> made(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      std::unique_ptr<TestRank>& rank = made[static_cast<size_t>(r)];
      rank = MakeRank(spec, *comms[static_cast<size_t>(r)]);
      for (int step = 0; step < 3; ++step) {
        const absl::StatusOr<StepResult> result = rank->trainer->Step({});
        ASSERT_TRUE(result.ok()) << result.status();
        ASSERT_EQ(result->verdict, Verdict::kGood);
        if (r == 0 && losses != nullptr) {
          losses->push_back(result->facts.loss);
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  Changed changed;
  for (const std::unique_ptr<TestRank>& rank : made) {
    changed.Add(rank->engine->parameters());
  }
  return changed.Whole();
}

}  // namespace hearth::trainer
