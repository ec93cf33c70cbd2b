#include "coordinator/http/http.h"

#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace hearth::coordinator {
namespace {

using ::testing::HasSubstr;

class HttpTest : public testing::Test {
 protected:
  void PutWorker(const std::string& id, v1::WorkerState state, const std::string& address) {
    Effects effects;
    v1::Worker& worker = *effects.workers.emplace_back().record.mutable_worker();
    worker.set_worker_id(id);
    worker.set_state(state);
    worker.set_host("node\"1");
    worker.set_http_address(address);
    view_.Apply({&effects, 1});
  }

  // As after a restart at which the store knew an idle worker "w1" and a stopped one "w2".
  void Restart() {
    RestoredState restored;
    for (const char* id : {"w1", "w2"}) {
      v1::Worker& worker = *restored.workers.emplace_back().mutable_worker();
      worker.set_worker_id(id);
      worker.set_state(std::string(id) == "w1" ? v1::WORKER_STATE_IDLE : v1::WORKER_STATE_OFFLINE);
    }
    const Core core({}, restored, Now{absl::UnixEpoch(), absl::ZeroDuration()});
    view_.Load(core, {}, restored);
  }

  HttpParts Parts() {
    return {view_,
            metrics_,
            [this] { return grace_; },
            [this] { return serving_; },
            [](std::string_view) { return nullptr; },
            [](std::string_view) { return nullptr; }};
  }

  bool grace_ = false;
  bool serving_ = true;
  View view_{EventBounds{10}};
  CoordinatorMetrics metrics_{1};
};

TEST_F(HttpTest, ServiceDiscovery_NoWorkers_IsAnEmptyList) {
  const auto response = ServiceDiscovery(Parts());
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.content_type, "application/json");
  EXPECT_EQ(response.body, "[]");
}

TEST_F(HttpTest, ServiceDiscovery_ListsOnlineWorkersWithLabels) {
  PutWorker("w1", v1::WORKER_STATE_BUSY, "node1:7080");
  PutWorker("w2", v1::WORKER_STATE_OFFLINE, "node1:7081");
  PutWorker("w3", v1::WORKER_STATE_IDLE, "");
  const nlohmann::json list = nlohmann::json::parse(ServiceDiscovery(Parts()).body);
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0]["targets"], nlohmann::json::array({"node1:7080"}));
  EXPECT_EQ(list[0]["labels"]["worker_id"], "w1");
  EXPECT_EQ(list[0]["labels"]["host"], "node\"1");
  for (const auto& [key, value] : list[0]["labels"].items()) {
    EXPECT_TRUE(value.is_string()) << key;
  }
}

TEST_F(HttpTest, ServiceDiscovery_ExpectedWorkerMissing_Is503OnlyDuringTheGrace) {
  Restart();
  grace_ = true;
  const auto missing = ServiceDiscovery(Parts());
  EXPECT_EQ(missing.status, 503);
  EXPECT_THAT(missing.body, HasSubstr("w1"));
  PutWorker("w1", v1::WORKER_STATE_IDLE, "node1:7080");
  EXPECT_EQ(ServiceDiscovery(Parts()).status, 200);
}

TEST_F(HttpTest, ServiceDiscovery_AfterTheGrace_ListsWhoIsThere) {
  Restart();
  EXPECT_EQ(ServiceDiscovery(Parts()).status, 200);
}

TEST_F(HttpTest, Handlers_MetricsAndHealth) {
  auto handlers = MakeHttpHandlers(Parts());
  const auto scrape = handlers.at("/metrics")({"/metrics", ""});
  EXPECT_EQ(scrape.status, 200);
  EXPECT_THAT(scrape.content_type, HasSubstr("version=0.0.4"));
  EXPECT_THAT(scrape.body, HasSubstr("hearth_workers{state=\"idle\"} 0"));
  EXPECT_EQ(handlers.at("/healthz")({"/healthz", ""}).status, 200);
  serving_ = false;
  EXPECT_EQ(handlers.at("/healthz")({"/healthz", ""}).status, 503);
}

}  // namespace
}  // namespace hearth::coordinator
