// A folder in memory for parsers that read files; gone when the process ends.
#pragma once

#include <string>
#include <string_view>

namespace hearth::fuzz {

// Writes the file into the folder of this process, which holds nothing else of that name; its path.
// A target that reads a folder has one of its own: "weight_index/model.safetensors".
std::string ScratchFile(const std::string& name, std::string_view bytes);

}  // namespace hearth::fuzz
