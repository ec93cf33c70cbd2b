#include "common/dataset/build/ordered_batches.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace hearth::dataset {
namespace {

struct Number {
  int value = 0;
  int squared = 0;
};

// Squares of 0 .. count - 1, in the order in which two stages see them. `fails`: where a stage has
// an error, -1 nowhere.
struct Outcome {
  absl::Status status;
  std::vector<int> first;
  std::vector<int> second;
  int most_in_memory = 0;
};
Outcome Squares(int threads, int count, int fails_in_work, int fails_in_second) {
  Outcome outcome;
  int next = 0;
  std::atomic<int> in_memory = 0;
  OrderedBatches<Number>::Steps steps;
  steps.read = [&](Number& number) -> absl::StatusOr<bool> {
    if (next == count) {
      return false;
    }
    outcome.most_in_memory = std::max(outcome.most_in_memory, ++in_memory);
    number.value = next++;
    return true;
  };
  const auto error = [](int value) { return absl::InternalError(std::to_string(value)); };
  steps.stages.push_back({false, [&](Number& number) {
                            // Some are overtaken by later ones.
                            for (int i = 0; i < number.value % 7; ++i) {
                              std::this_thread::yield();
                            }
                            number.squared = number.value * number.value;
                            return number.value >= fails_in_work && fails_in_work >= 0
                                       ? error(number.value)
                                       : absl::OkStatus();
                          }});
  steps.stages.push_back({true, [&](Number& number) {
                            outcome.first.push_back(number.squared);
                            return absl::OkStatus();
                          }});
  steps.stages.push_back({true, [&](Number& number) {
                            --in_memory;
                            if (number.value == fails_in_second) {
                              return error(number.value);
                            }
                            outcome.second.push_back(number.squared);
                            return absl::OkStatus();
                          }});
  outcome.status = OrderedBatches<Number>(threads, std::move(steps)).Run();
  return outcome;
}

TEST(OrderedBatches, AnyNumberOfThreads_SameOrder) {
  for (const int threads : {1, 2, 7}) {
    const Outcome outcome = Squares(threads, 300, -1, -1);
    EXPECT_TRUE(outcome.status.ok());
    ASSERT_EQ(outcome.first.size(), 300u) << threads;
    for (int i = 0; i < 300; ++i) {
      ASSERT_EQ(outcome.first[static_cast<size_t>(i)], i * i);
    }
    EXPECT_EQ(outcome.first, outcome.second);
    EXPECT_LE(outcome.most_in_memory, threads + 2);
  }
  EXPECT_TRUE(Squares(3, 0, -1, -1).first.empty());
}

TEST(OrderedBatches, Error_IsThatOfTheFirstBatch) {
  for (const int threads : {1, 2, 7}) {
    const Outcome in_work = Squares(threads, 300, 40, -1);
    EXPECT_EQ(in_work.status.message(), "40") << threads;
    EXPECT_EQ(in_work.first.size(), 40u);
    EXPECT_EQ(in_work.second.size(), 40u);
    const Outcome in_second = Squares(threads, 300, 60, 40);
    EXPECT_EQ(in_second.status.message(), "40") << threads;
    EXPECT_EQ(in_second.second.size(), 40u);
    EXPECT_LE(in_second.first.size(), 60u);
  }
}

}  // namespace
}  // namespace hearth::dataset
