// For tests: the state of the GPUs that fake_nvml.cc plays.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "common/base/system.h"

namespace hearth::nvml {

// Owns the file and $HEARTH_FAKE_NVML, which programs started by the test inherit. One at a time.
class FakeState {
 public:
  FakeState()
      : path_(std::filesystem::temp_directory_path() /
              ("hearth-fake-nvml-" + std::to_string(getpid()))) {
    SetEnv("HEARTH_FAKE_NVML", path_.c_str());
    Write();
  }
  ~FakeState() {
    UnsetEnv("HEARTH_FAKE_NVML");
    std::filesystem::remove(path_);
  }
  FakeState(const FakeState&) = delete;
  FakeState& operator=(const FakeState&) = delete;

  // Adds to what is there, or replaces it.
  void Set(const std::map<std::string, std::string>& values) {
    for (const auto& [key, value] : values) {
      state_[key] = value;
    }
    Write();
  }
  void Erase(const std::string& key) {
    state_.erase(key);
    Write();
  }

  // GPU-0 and GPU-1, idle and healthy.
  void SetTwoGpus() {
    Set({{"driver", "580.82.07"}, {"cuda", "13000"}, {"count", "2"}});
    for (const std::string i : {"0", "1"}) {
      Set({{i + ".name", "NVIDIA Test " + i},
           {i + ".uuid", "GPU-" + i},
           {i + ".pci", "00000000:0" + std::to_string(std::stoi(i) + 1) + ":00.0"},
           {i + ".cc", i == "0" ? "90" : "120"},
           {i + ".total", std::to_string(32LL << 30)},
           {i + ".used", "0"},
           {i + ".reserved", "0"},
           {i + ".power", "100000"},
           {i + ".limit", "500000"},
           {i + ".limit_default", "575000"},
           {i + ".energy", "1000"},
           {i + ".gpu_util", "0"},
           {i + ".temp", "40"},
           {i + ".sm", "210"},
           {i + ".sm_max", "3000"},
           {i + ".mem_max", "14000"},
           {i + ".throttle", "1"},
           {i + ".persistence", "1"},
           {i + ".procs", ""}});
    }
  }

 private:
  // A reader sees the old state or the new one, never a part.
  void Write() {
    const std::string next = path_.string() + ".next";
    {
      std::ofstream file(next);
      for (const auto& [key, value] : state_) {
        file << key << "=" << value << "\n";
      }
    }
    std::filesystem::rename(next, path_);
  }

  const std::filesystem::path path_;
  std::map<std::string, std::string> state_;
};

}  // namespace hearth::nvml
