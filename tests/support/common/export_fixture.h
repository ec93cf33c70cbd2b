// A fixture of tests that export a small model from a folder of their own.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "common/weights/export.h"
#include "gtest/gtest.h"
#include "tests/support/common/gguf_reader.h"
#include "tests/support/common/temp_dir.h"
#include "tests/support/common/weight_folder.h"

namespace hearth::weights {

class ExportTest : public ::testing::Test {
 protected:
  absl::StatusOr<Exported> Export(const ExportFormat& format,
                                  const formats::StoredFormat& dtype,
                                  const std::string& out,
                                  int threads = 2) {
    ExportOptions options;
    options.dtype = &dtype;
    options.out = out;
    options.threads = threads;
    options.tokenizer = false;
    return ExportModel(Env::Real(), FileVerifier("", 1), model_, format, options);
  }

  static v1::ModelSpec Llama64() {
    v1::ModelSpec spec = TestModelSpec("llama");
    spec.set_hidden(64);
    spec.set_head_dim(16);
    return spec;
  }

  // Writes the folder of a model, its values times `factor`, and returns its tensors by name.
  std::map<std::string, TestTensor> WriteModel(const v1::ModelSpec& spec, float factor = 1.0F) {
    const TestModel m = MakeTestModel(spec);
    auto tensors = TestTensors(m);
    for (auto& [name, tensor] : tensors) {
      for (float& value : tensor.values) {
        value *= factor;
      }
    }
    WriteTestFolder(model_, m, tensors);
    return tensors;
  }

  GgufFile Gguf(const formats::StoredFormat& dtype) {
    const std::string out = dir_ + "/out.gguf";
    std::filesystem::remove(out);
    const auto done = Export(kGgufExport, dtype, out);
    EXPECT_TRUE(done.ok()) << done.status();
    const auto bytes = Env::Real().ReadFile(out);
    EXPECT_TRUE(bytes.ok()) << bytes.status();
    if (done.ok() && bytes.ok()) {
      EXPECT_EQ(done->bytes, static_cast<int64_t>(bytes->size()));
      notes_ = done->notes;
      return ReadGguf(*bytes);
    }
    return {};
  }

  const TempDir temp_;
  const std::string dir_ = temp_.path();
  const std::string model_ = dir_ + "/model";
  std::vector<std::string> notes_;
};

}  // namespace hearth::weights
