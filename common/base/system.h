// What the C library says of the process and of errors. Thread-safe, except SetEnv and UnsetEnv.
#pragma once

#include <cstdlib>
#include <cstring>

namespace hearth {

// The variable's value, null if it is not set. Valid until SetEnv or UnsetEnv.
inline const char* GetEnv(const char* name) {
  return std::getenv(name);  // NOLINT(concurrency-mt-unsafe): only SetEnv changes the environment
}

// Only where no other thread runs that reads the environment: at the start of main, in tests.
// `overwrite` false keeps a value that is there. False: no memory, or the name is empty or has '='.
inline bool SetEnv(const char* name, const char* value, bool overwrite = true) {
  return setenv(name, value, overwrite ? 1 : 0) == 0;  // NOLINT(concurrency-mt-unsafe): see above
}
inline void UnsetEnv(const char* name) {
  unsetenv(name);  // NOLINT(concurrency-mt-unsafe): see above
}

// "No such file or directory". Never null; the text lives as long as the process.
inline const char* ErrnoText(int error) {
  const char* text = strerrordesc_np(error);
  return text == nullptr ? "unknown error" : text;
}

// "Segmentation fault", of a signal's number. Never null.
inline const char* SignalText(int signal) {
  const char* text = sigdescr_np(signal);
  return text == nullptr ? "unknown signal" : text;
}

}  // namespace hearth
