// `sim_test` runs 1,000 seeds; `sim_test --seed N` replays one; `sim_test --seeds FROM COUNT` runs
// a range.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <string>

#include "gtest/gtest.h"
#include "tests/sim/world.h"

namespace hearth::sim {
namespace {

uint64_t first_seed = 1;
uint64_t seed_count = 1000;

Mode ModeOf(uint64_t seed) {
  switch (seed % 8) {
    case 0:
      return Mode::kCalm;
    case 1:
      return Mode::kControlPlane;
    case 2:
      return Mode::kCutOff;
    case 3:
      return Mode::kDisk;
    default:
      return Mode::kEverything;
  }
}

TEST(Simulation, EverySeed_KeepsTheInvariants) {
  int64_t commands = 0;
  int64_t epochs = 0;
  int64_t overtakings = 0;
  int64_t aged = 0;
  int64_t told = 0;
  int64_t refused = 0;
  int64_t waited = 0;
  int64_t extended = 0;
  int64_t unbacked = 0;
  absl::Duration virtual_time;
  std::map<std::string, int64_t> reasons;
  for (uint64_t seed = first_seed; seed < first_seed + seed_count; ++seed) {
    World world(seed, ModeOf(seed));
    if (seed_count == 1) {
      world.Trace();
    }
    const std::string failure = world.Run();
    ASSERT_EQ(failure, "") << "replay: sim_test --seed " << seed;
    commands += world.commands();
    epochs += world.epochs();
    overtakings += world.overtakings();
    aged += world.aged();
    told += world.told();
    refused += world.refused();
    waited += world.started_after_waiting();
    extended += world.extended();
    unbacked += world.unbacked();
    virtual_time += world.virtual_time();
    for (const auto& [reason, count] : world.reasons()) {
      reasons[reason] += count;
    }
  }
  std::cout << seed_count << " seeds from " << first_seed << ": " << commands << " commands, "
            << epochs << " gang starts, " << absl::FormatDuration(virtual_time)
            << " of virtual time\n  " << overtakings << " starts ahead of older jobs, " << aged
            << " ahead of jobs of higher priority\n  " << told << " notifications told, " << refused
            << " refused, " << waited << " starts after a time or another job\n  " << extended
            << " jobs extended after their success, " << unbacked
            << " messages that left before a commit that never came\n";
  for (const auto& [reason, count] : reasons) {
    std::cout << "  " << reason << ": " << count << "\n";
  }
  // Else the order of the queue was not put to the test.
  if (seed_count >= 1000) {
    EXPECT_GT(overtakings, 0);
    EXPECT_GT(aged, 0);
    EXPECT_GT(told, 0);
    EXPECT_GT(refused, 0);
    EXPECT_GT(waited, 0);
    EXPECT_GT(extended, 0);
    EXPECT_GT(unbacked, 0);
  }
}

}  // namespace

void SetSeeds(uint64_t first, uint64_t count) {
  first_seed = first;
  seed_count = count;
}

}  // namespace hearth::sim

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc == 3 && std::strcmp(argv[1], "--seed") == 0) {
    hearth::sim::SetSeeds(std::strtoull(argv[2], nullptr, 10), 1);
  } else if (argc == 4 && std::strcmp(argv[1], "--seeds") == 0) {
    hearth::sim::SetSeeds(std::strtoull(argv[2], nullptr, 10), std::strtoull(argv[3], nullptr, 10));
  } else if (argc != 1) {
    std::fprintf(stderr, "usage: sim_test [--seed N | --seeds FROM COUNT]\n");
    return 2;
  }
  return RUN_ALL_TESTS();
}
