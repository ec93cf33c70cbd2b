#include "jobctl/client/download.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <vector>

#include "common/io/sha256.h"
#include "common/weights/manifest.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/temp_dir.h"
#include "tests/support/jobctl/unary_client.h"

namespace hearth::jobctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kInTheWeights = 5;

// A coordinator with one checkpoint, in pieces of 10 bytes.
class FakeClient : public UnaryClient {
 public:
  absl::Status DownloadCheckpoint(const v1::DownloadCheckpointRequest& request,
                                  const StreamSink<v1::DownloadCheckpointResponse>& sink) override {
    requests.push_back(request);
    const int64_t step = request.step() == 0 ? newest : request.step();
    const auto checkpoint = files.find(step);
    if (checkpoint == files.end()) {
      return absl::NotFoundError("no such checkpoint");
    }
    const std::string name = request.file().empty() ? "MANIFEST.json" : request.file();
    const std::string& bytes = checkpoint->second.at(name);
    auto at = static_cast<size_t>(request.offset());
    bool first = true;
    do {
      if (breaks_after == 0) {
        breaks_after = -1;
        return absl::UnavailableError("worker w1: gone");
      }
      breaks_after -= breaks_after > 0 && !request.file().empty() ? 1 : 0;
      v1::DownloadCheckpointResponse response;
      response.set_data(bytes.substr(at, 10));
      response.set_file_bytes(static_cast<int64_t>(bytes.size()));
      if (first) {
        response.mutable_checkpoint()->set_step(step);
        response.mutable_checkpoint()->set_manifest_sha256(
            Sha256Hex(checkpoint->second.at("MANIFEST.json")));
      }
      first = false;
      at += response.data().size();
      if (!sink(response)) {
        return absl::OkStatus();
      }
    } while (at < bytes.size());
    return absl::OkStatus();
  }

  // A checkpoint of these files, as a trainer writes it.
  void Put(int64_t step, std::map<std::string, std::string> contents) {
    const std::string folder = ::testing::TempDir() + "/download_source";
    std::vector<weights::ManifestEntry> entries;
    for (const auto& [name, bytes] : contents) {
      entries.push_back({name, static_cast<int64_t>(bytes.size()), {Sha256Hex(bytes)}});
    }
    contents["MANIFEST.json"] = weights::ManifestToJson(step, entries);
    files[step] = std::move(contents);
    newest = std::max(newest, step);
  }

  std::vector<v1::DownloadCheckpointRequest> requests;
  std::map<int64_t, std::map<std::string, std::string>> files;
  int64_t newest = 0;
  int breaks_after = -1;  // messages of files but MANIFEST.json; -1 = never

 private:
  absl::Status CallUnary(const google::protobuf::Message&, google::protobuf::Message&) override {
    return absl::UnimplementedError("");
  }
};

class DownloadTest : public ::testing::Test {
 protected:
  void SetUp() override {
    client_.Put(7, {{"config.json", "{}"},
                    {"model.safetensors", std::string(95, 'w')},
                    {"empty", ""},
                    {"state/meta.json", "meta"},
                    {"state/tensors.safetensors", std::string(40, 's')}});
  }

  // `attempts` streams of a file are begun at most.
  absl::StatusOr<Downloaded> Run(bool state = false, int attempts = 1, int64_t step = 0) {
    DownloadOptions options;
    options.job_id = "job";
    options.out = dir_ + "/out";
    options.state = state;
    options.step = step;
    return DownloadCheckpoint(
        Env::Real(), client_, options,
        [attempts](const auto& once) {
          absl::Status status;
          for (int i = 0; i < attempts && (i == 0 || absl::IsUnavailable(status)); ++i) {
            status = once([] {});
          }
          return status;
        },
        [](const DownloadProgress& at) { EXPECT_LE(at.done, at.total); });
  }

  std::map<std::string, std::string> Written() {
    std::map<std::string, std::string> found;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(dir_ + "/out")) {
      if (entry.is_regular_file()) {
        found[std::filesystem::relative(entry.path(), dir_ + "/out").string()] =
            *Env::Real().ReadFile(entry.path().string());
      }
    }
    return found;
  }

  const TempDir temp_;
  const std::string dir_ = temp_.path();
  FakeClient client_;
};

TEST_F(DownloadTest, WithState_IsTheFolder) {
  const auto done = Run(/*state=*/true);
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_EQ(Written(), client_.files.at(7));
  EXPECT_EQ(done->files, 5);
  EXPECT_EQ(done->bytes, 2 + 95 + 4 + 40);
  EXPECT_EQ(done->fetched, done->bytes);
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/out.downloading"));
}

TEST_F(DownloadTest, ModelAlone_HasAManifestOfWhatIsThere) {
  ASSERT_TRUE(Run().ok());
  std::map<std::string, std::string> written = Written();
  const auto entries = weights::ParseManifest(written.at("MANIFEST.json"), "m");
  ASSERT_TRUE(entries.ok());
  EXPECT_EQ(entries->size(), 4U);
  EXPECT_TRUE(weights::CheckSums(Env::Real(), dir_ + "/out", *entries).ok());
  written.erase("MANIFEST.json");
  EXPECT_EQ(written.size(), 4U);
  EXPECT_EQ(written.count("state/tensors.safetensors"), 0U);
}

TEST_F(DownloadTest, Broken_GoesOnBehindTheBytesThatAreHere) {
  client_.breaks_after = kInTheWeights;
  const auto broken = Run(true);
  EXPECT_TRUE(absl::IsUnavailable(broken.status())) << broken.status();
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/out"));
  const int64_t have = *Env::Real().FileSize(dir_ + "/out.downloading/model.safetensors");
  EXPECT_GT(have, 0);
  EXPECT_LT(have, 95);
  // A newer checkpoint does not take the interrupted one's place.
  client_.Put(8, {{"config.json", "newer"}});
  client_.requests.clear();
  const auto done = Run(true);
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_EQ(done->checkpoint.step(), 7);
  EXPECT_EQ(Written(), client_.files.at(7));
  EXPECT_EQ(done->bytes - done->fetched, have + 2);
  EXPECT_EQ(client_.requests[1].file(), "model.safetensors");
  EXPECT_EQ(client_.requests[1].offset(), have);
}

TEST_F(DownloadTest, WorkerAway_IsTriedAgainFromThere) {
  client_.breaks_after = kInTheWeights;
  const auto done = Run(true, /*attempts=*/2);
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_EQ(Written(), client_.files.at(7));
  EXPECT_EQ(done->fetched, done->bytes);
}

TEST_F(DownloadTest, InterruptedOneIsGone_BeginsWithTheNewest) {
  client_.breaks_after = kInTheWeights;
  EXPECT_FALSE(Run(true).ok());
  client_.files.erase(7);
  client_.Put(8, {{"config.json", "newer"}});
  const auto done = Run(true);
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_EQ(Written(), client_.files.at(8));
}

TEST_F(DownloadTest, DamagedOnTheWay_IsNamedAndFetchedAgain) {
  const std::string good = client_.files.at(7).at("model.safetensors");
  client_.files.at(7).at("model.safetensors")[50] = 'x';
  const auto damaged = Run();
  EXPECT_TRUE(absl::IsDataLoss(damaged.status()));
  EXPECT_THAT(std::string(damaged.status().message()), HasSubstr("model.safetensors: SHA-256"));
  client_.files.at(7).at("model.safetensors") = good;
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(Written().at("model.safetensors"), good);
}

TEST_F(DownloadTest, OtherManifestOrSize_IsRefused) {
  client_.files.at(7).at("model.safetensors") += "more";
  EXPECT_THAT(std::string(Run().status().message()),
              HasSubstr("the worker has 99 bytes, the manifest says 95"));
  client_.files.at(7).at("MANIFEST.json") =
      R"({"format": "hearth-checkpoint", "version": 2, "step": 7,
          "files": [{"path": "../../evil", "bytes": 1, "xxh3": "00"}]})";
  EXPECT_THAT(std::string(Run().status().message()), HasSubstr("path leaves the folder"));
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/out"));
}

TEST_F(DownloadTest, WhatIsThere_IsNotReplaced) {
  std::filesystem::create_directories(dir_ + "/out");
  EXPECT_TRUE(absl::IsAlreadyExists(Run().status()));
  EXPECT_TRUE(client_.requests.empty());
}

}  // namespace
}  // namespace hearth::jobctl
