#include "jobctl/report/cost.h"

#include <cmath>

#include "gtest/gtest.h"

namespace hearth::jobctl {
namespace {

v1::MetricRecord Step(int64_t step, double joules) {
  v1::MetricRecord record;
  record.mutable_step()->set_step(step);
  record.mutable_step()->set_tokens(step * 1000);
  record.mutable_step()->set_step_seconds(2.0);
  record.mutable_step()->set_energy_joules(joules);
  return record;
}

v1::Job RunningJob() {
  v1::Job job;
  job.set_state(v1::JOB_STATE_RUNNING);
  job.set_step(10);
  job.mutable_spec()->mutable_train()->set_steps(30);
  job.set_running_seconds(3600);
  job.add_workers("w0");
  job.add_workers("w1");
  return job;
}

History TenSteps(double joules) {
  History history;
  for (int64_t step = 1; step <= 10; ++step) {
    Append(history, Step(step, joules));
  }
  return history;
}

TEST(CostPerBillionTokens, RentedByTheHour_IsPriceOverSpeed) {
  Prices prices;
  prices.per_gpu_hour = 0.50;
  EXPECT_NEAR(CostPerBillionTokens(196e3, 575, 1, prices), 0.709, 0.0005);
  EXPECT_NEAR(CostPerBillionTokens(196e3, 575, 2, prices), 1.417, 0.0005);
}

TEST(CostPerBillionTokens, PaidByEnergy_IsPriceOverTokensPerJoule) {
  Prices prices;
  prices.per_kwh = 0.10;
  EXPECT_NEAR(CostPerBillionTokens(196e3, 575, 1, prices), 0.0815, 0.00005);
  EXPECT_EQ(CostPerBillionTokens(0, 575, 1, prices), 0.0);
}

TEST(UsageOf, RunOfTheExamples_CostsThePricePerBillionTokens) {
  // An hour of one GPU at 196k tok/s and 575 W, as a job's history has it.
  v1::Job job = RunningJob();
  job.mutable_workers()->RemoveLast();
  v1::MetricRecord record;
  record.mutable_step()->set_step(10);
  record.mutable_step()->set_tokens(int64_t{196000} * 3600);
  record.mutable_step()->set_energy_joules(575.0 * 3600);
  History history;
  Append(history, record);
  Prices rented;
  rented.per_gpu_hour = 0.50;
  EXPECT_NEAR(*UsageOf(job, history, rented).cost_per_billion_tokens, 0.709, 0.0005);
  Prices owned;
  owned.per_kwh = 0.10;
  EXPECT_NEAR(*UsageOf(job, history, owned).cost_per_billion_tokens, 0.0815, 0.00005);
}

TEST(UsageOf, TwoDevicesForAnHour_CountsBothAndReckonsTheRest) {
  Prices prices;
  prices.per_gpu_hour = 3.0;
  prices.per_kwh = 0.5;
  const Usage usage = UsageOf(RunningJob(), TenSteps(3.6e5), prices);
  EXPECT_EQ(usage.tokens, 10000);
  EXPECT_DOUBLE_EQ(*usage.joules, 3.6e6);
  EXPECT_DOUBLE_EQ(*usage.tokens_per_joule, 10000 / 3.6e6);
  EXPECT_DOUBLE_EQ(*usage.cost, 6.5);
  EXPECT_DOUBLE_EQ(*usage.seconds_left, 40.0);
  EXPECT_DOUBLE_EQ(*usage.cost_left, 2 * 0.5 + 40.0 / 3600 * 2 * 3.0);
}

TEST(UsageOf, NothingMeasured_HasNoEnergyAndNoCostByEnergy) {
  Prices prices;
  prices.per_kwh = 0.5;
  const Usage usage = UsageOf(RunningJob(), TenSteps(0.0), prices);
  EXPECT_FALSE(usage.joules.has_value());
  EXPECT_FALSE(usage.cost.has_value());
  EXPECT_EQ(EnergySentence(usage), "not measured");
  EXPECT_EQ(CostSentence(usage, "$"), "");
  EXPECT_TRUE(UsageCells(usage, "$").empty());
}

TEST(UsageOf, EndedJob_CostsNothingMore) {
  v1::Job job = RunningJob();
  job.set_state(v1::JOB_STATE_SUCCEEDED);
  job.mutable_workers()->Clear();
  job.mutable_run_info()->set_world_size(2);
  Prices prices;
  prices.per_gpu_hour = 3.0;
  const Usage usage = UsageOf(job, TenSteps(0.0), prices);
  EXPECT_DOUBLE_EQ(*usage.cost, 6.0);
  EXPECT_DOUBLE_EQ(*usage.cost_left, 0.0);
  EXPECT_EQ(CostSentence(usage, "EUR"),
            "6.000 EUR so far, 0.00 EUR to the end, 600000.00 EUR per billion tokens");
}

TEST(UsageOf, JobThatGaveUp_HasNoEndToPayFor) {
  Prices prices;
  prices.per_gpu_hour = 3.0;
  for (const v1::JobState state : {v1::JOB_STATE_FAILED, v1::JOB_STATE_CANCELLED}) {
    v1::Job job = RunningJob();
    job.set_state(state);
    const Usage usage = UsageOf(job, TenSteps(0.0), prices);
    EXPECT_TRUE(usage.cost.has_value());
    EXPECT_FALSE(usage.cost_left.has_value());
    EXPECT_FALSE(usage.seconds_left.has_value());
    EXPECT_EQ(CostSentence(usage, "$"), "$6.000 so far, $600000.00 per billion tokens");
    EXPECT_EQ(UsageCells(usage, "$").back().text, "-");
  }
}

TEST(Append, Rewind_TakesStepsBackButNotTheirEnergy) {
  History history = TenSteps(5.0);
  v1::MetricRecord rewind;
  rewind.mutable_rewind()->set_to_step(7);
  Append(history, rewind);
  Append(history, Step(8, 5.0));
  ASSERT_EQ(history.steps.size(), 8U);
  EXPECT_EQ(history.steps.back().step(), 8);
  EXPECT_EQ(history.voided_steps, 3);
  EXPECT_DOUBLE_EQ(history.energy_joules, 55.0);
}

TEST(UsageCells, EnergyAndPrices_ShowFourColumns) {
  Prices prices;
  prices.per_gpu_hour = 3.0;
  const auto cells = UsageCells(UsageOf(RunningJob(), TenSteps(1.0), prices), "$");
  ASSERT_EQ(cells.size(), 4U);
  EXPECT_EQ(cells[0].header + "=" + cells[0].text, "ENERGY=10J");
  EXPECT_EQ(cells[1].header + "=" + cells[1].text, "TOK/J=1000.0");
  EXPECT_EQ(cells[2].header + "=" + cells[2].text, "COST=$6.000");
  EXPECT_EQ(cells[3].header + "=" + cells[3].text, "TO-END=$0.06667");
}

TEST(MoneyText, Amounts_KeepFourDigits) {
  EXPECT_EQ(MoneyText(0.70862, "$"), "$0.7086");
  EXPECT_EQ(MoneyText(0.0815, "€"), "€0.08150");
  EXPECT_EQ(MoneyText(1234.567, "EUR"), "1234.57 EUR");
  EXPECT_EQ(MoneyText(0, "$"), "$0.00");
}

TEST(EnergyText, Joules_GetUnitsAndKwh) {
  EXPECT_EQ(EnergyText(512), "512 J");
  EXPECT_EQ(EnergyText(1.52e6), "1.52 MJ (0.422 kWh)");
}

}  // namespace
}  // namespace hearth::jobctl
