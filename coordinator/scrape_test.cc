// Neither the event loop nor the scheduler, which runs on it, holds up a scrape.
#include <string>
#include <thread>

#include "absl/synchronization/notification.h"
#include "coordinator/coordinator.h"
#include "gtest/gtest.h"
#include "tests/support/common/temp_dir.h"
#include "tests/support/coordinator/loopback_options.h"

namespace hearth::coordinator {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(10);

TEST(Scrape, EventLoopBusy_IsAnswered) {
  const TempDir root;
  auto coordinator = Coordinator::Start(LoopbackOptions(root.path() + "/data"));
  ASSERT_TRUE(coordinator.ok()) << coordinator.status();
  absl::Notification busy;
  absl::Notification release;
  (*coordinator)->OnLoop([&] {
    busy.Notify();
    release.WaitForNotification();
  });
  EXPECT_TRUE(busy.WaitForNotificationWithTimeout(kPatience));
  absl::Notification scraped;
  std::thread scraper([&] {
    EXPECT_EQ((*coordinator)->TimeScrapes(3).size(), 3u);
    scraped.Notify();
  });
  EXPECT_TRUE(scraped.WaitForNotificationWithTimeout(kPatience));
  release.Notify();
  scraper.join();
}

}  // namespace
}  // namespace hearth::coordinator
