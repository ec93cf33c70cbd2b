#include "common/spec/feasibility/plan_messages.h"

#include <vector>

#include "common/spec/feasibility/feasibility_text.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "tests/support/common/planned_job.h"

namespace hearth::spec {
namespace {

using google::protobuf::util::MessageDifferencer;

TEST(PlanMessagesTest, AJudgement_ComesBackAsItWas) {
  FeasibilityQuery query;
  query.prices = {.per_kwh = 0.3, .per_gpu_hour = 2};
  query.tokens = 1e9;
  for (const char* gpu : {"H200", "RTX 5090", "RTX 3060", "MI300X"}) {
    for (const char* recipe : {"bf16", "fp8"}) {
      const auto f = AssessFeasibility(PlannedJob("hearth-774m", recipe, 8, 2048), GpuNamed(gpu),
                                       CalibrationFor(GpuNamed(gpu)), query);
      ASSERT_TRUE(f.ok()) << f.status();
      const v1::PlanJudgement sent = JudgementOf(*f);
      const Feasibility back = FeasibilityOf(sent);
      EXPECT_EQ(FeasibilityText(back, query, true), FeasibilityText(*f, query, true)) << gpu;
      EXPECT_TRUE(MessageDifferencer::Equals(JudgementOf(back), sent)) << gpu;
      // A field that is added to the message and not to both ways would be missing here.
      std::vector<const google::protobuf::FieldDescriptor*> set;
      sent.GetReflection()->ListFields(sent, &set);
      EXPECT_GT(set.size(), 20U);
    }
  }
}

TEST(PlanMessagesTest, AQuestion_ComesBackAsItWas) {
  FeasibilityQuery query;
  query.gpus = 4;
  query.memory_bytes = int64_t{20} << 30;
  query.host_memory_bytes = int64_t{100} << 30;
  query.tokens = 3e9;
  query.tokens_per_parameter = 20;
  query.wanted_tok_s = 1e5;
  query.prices.per_kwh = 0.3;
  query.prices.per_gpu_hour = 2;
  query.card_price = 1999;
  query.lifetime_hours = 1000;
  query.mtbf_hours = 0;
  query.restart_seconds = 0;
  query.checkpoint_seconds = 3;
  const v1::PlanQuestion sent = QuestionOf(query);
  EXPECT_TRUE(MessageDifferencer::Equals(QuestionOf(QueryOf(sent)), sent));
  std::vector<const google::protobuf::FieldDescriptor*> set;
  sent.GetReflection()->ListFields(sent, &set);
  EXPECT_EQ(set.size(), static_cast<size_t>(v1::PlanQuestion::descriptor()->field_count()));
  // An empty one asks what an untouched query asks.
  EXPECT_TRUE(MessageDifferencer::Equals(QuestionOf(QueryOf({})), QuestionOf({})));
}

}  // namespace
}  // namespace hearth::spec
