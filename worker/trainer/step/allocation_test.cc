// A step allocates nothing after the first: every malloc of the process is counted, whoever calls
// it.
#include <atomic>
#include <cstddef>
#include <tuple>

#include "gtest/gtest.h"
#include "tests/support/common/fake_clock.h"
#include "tests/support/trainer/test_run.h"

#ifndef HEARTH_SANITIZED
namespace {
std::atomic<bool> g_counting{false};
std::atomic<int64_t> g_allocations{0};
}  // namespace

extern "C" {
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming): glibc's own names
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* old, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)

// operator new ends here too.
void* malloc(size_t bytes) {
  g_allocations += g_counting ? 1 : 0;
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  g_allocations += g_counting ? 1 : 0;
  return __libc_calloc(count, bytes);
}
void* realloc(void* old, size_t bytes) {
  g_allocations += g_counting ? 1 : 0;
  return __libc_realloc(old, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  g_allocations += g_counting ? 1 : 0;
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** out, size_t alignment, size_t bytes) {
  g_allocations += g_counting ? 1 : 0;
  *out = __libc_memalign(alignment, bytes);
  return *out == nullptr ? 12 : 0;
}
}

namespace hearth::trainer {
namespace {

void ExpectNoAllocations(const v1::JobSpec& spec, int threads) {
  const std::unique_ptr<Collective> comm = NewSoloCollective();
  const std::unique_ptr<TestRank> rank = MakeRank(spec, *comm, threads);
  ASSERT_TRUE(rank->trainer->Step({}).ok());
  int64_t allocations = 0;
  for (int i = 0; i < 5; ++i) {
    g_allocations = 0;
    g_counting = true;
    const bool ok = rank->trainer->Step({}).ok();
    g_counting = false;
    allocations += g_allocations;
    ASSERT_TRUE(ok);
  }
  EXPECT_EQ(allocations, 0);
}

class AllocationTest : public testing::TestWithParam<std::tuple<std::string, int>> {};

TEST_P(AllocationTest, Step_AfterTheFirst_AllocatesNothing) {
  TempDir dir;
  v1::JobSpec spec = SmallJob(dir.path(), std::get<0>(GetParam()));
  spec.mutable_precision()->set_recipe("bf16");
  spec.mutable_model()->set_dropout(0.1);
  ExpectNoAllocations(spec, std::get<1>(GetParam()));
  g_counting = true;
  std::vector<int>* seen = new std::vector<int>(100);
  g_counting = false;
  delete seen;
  EXPECT_GE(g_allocations, 2) << "the counter does not count";
}

TEST(StepWatch, Await_AllocatesNothing) {
  FakeClock clock;
  const std::unique_ptr<Collective> comm = NewSoloCollective();
  StepWatch watch(*comm, clock);
  int looks = 0;
  g_allocations = 0;
  g_counting = true;
  const bool ok = watch
                      .Await(1,
                             [&]() -> absl::StatusOr<bool> {
                               clock.Advance(absl::Milliseconds(60));
                               return ++looks == 100;
                             })
                      .ok();
  watch.Took(absl::Seconds(6));
  g_counting = false;
  EXPECT_TRUE(ok);
  EXPECT_EQ(g_allocations, 0);
}

TEST(OffloadAllocationTest, Step_AfterTheFirst_AllocatesNothing) {
  TempDir dir;
  v1::JobSpec spec = SmallJob(dir.path());
  spec.mutable_precision()->set_recipe("bf16");
  spec.mutable_offload()->set_optimizer(true);
  spec.mutable_offload()->set_masters(true);
  spec.mutable_offload()->set_activations(true);
  spec.mutable_model()->set_layers(4);
  ExpectNoAllocations(spec, 1);
  ExpectNoAllocations(WithMuon(spec), 1);
}

TEST(ByBucketAllocationTest, Step_AfterTheFirst_AllocatesNothing) {
  TempDir dir;
  v1::JobSpec spec = SmallJob(dir.path());
  spec.mutable_precision()->set_recipe("bf16");
  spec.mutable_batch()->set_global_batch_tokens(32);  // one micro-batch
  v1::JobSpec fused = spec;
  fused.mutable_optimizer()->set_fused(true);
  ExpectNoAllocations(fused, 1);
  ExpectNoAllocations(WithMuon(fused), 1);
  spec.mutable_gradients()->set_store("fp8");
  ExpectNoAllocations(spec, 1);
}

TEST(MuonAllocationTest, Step_AfterTheFirst_AllocatesNothing) {
  TempDir dir;
  v1::JobSpec spec = WithMuon(SmallJob(dir.path()));
  ExpectNoAllocations(spec, 1);
  // A momentum in blocks, weights without masters, and long matrices.
  spec.mutable_precision()->set_recipe("bf16");
  spec.mutable_model()->set_hidden(64);
  spec.mutable_model()->set_head_dim(16);
  spec.mutable_model()->set_ffn_hidden(160);
  spec.mutable_optimizer()->set_state("int8");
  spec.mutable_optimizer()->set_master("none");
  ExpectNoAllocations(spec, 1);
}

INSTANTIATE_TEST_SUITE_P(Families,
                         AllocationTest,
                         testing::Combine(testing::ValuesIn(Families()), testing::Values(1, 2)));

}  // namespace
}  // namespace hearth::trainer
#endif
