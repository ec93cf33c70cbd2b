#include "worker/daemon/device/energy_meter.h"

#include "gtest/gtest.h"

namespace hearth::worker {
namespace {

TEST(EnergyMeterTest, Since_CountsFromTheCallBefore_AndNeverBackwards) {
  EnergyMeter meter;
  EXPECT_EQ(meter.Since(1000.0), 0.0);
  EXPECT_EQ(meter.Since(1070.0), 70.0);
  EXPECT_EQ(meter.Since(std::nullopt), 0.0);
  EXPECT_EQ(meter.Since(1100.0), 30.0) << "nothing is lost while the counter cannot be read";
  EXPECT_EQ(meter.Since(5.0), 0.0) << "the driver was loaded again";
  EXPECT_EQ(meter.Since(9.0), 4.0);
}

TEST(EnergyMeterTest, Total_CountsFromTheFirstHeartbeat) {
  EnergyMeter meter;
  EXPECT_EQ(meter.Total(500.0), 0.0);
  meter.Begin(0.0);
  meter.Begin(400.0);
  meter.Begin(450.0);
  EXPECT_EQ(meter.Total(500.0), 100.0);
  EXPECT_EQ(meter.Total(10.0), 0.0);
}

}  // namespace
}  // namespace hearth::worker
