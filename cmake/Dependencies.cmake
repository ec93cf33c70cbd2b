# Every third-party library Hearth links, in one place. All are Debian 12 packages (scripts/deps.sh installs them).
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(Protobuf REQUIRED)
find_package(absl REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(gRPC CONFIG REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(spdlog REQUIRED)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(SQLite3 REQUIRED)
find_package(ZLIB REQUIRED)
pkg_check_modules(SENTENCEPIECE REQUIRED IMPORTED_TARGET sentencepiece)

# libopenblas-openmp-dev: the OpenMP flavour, whichever flavour the alternatives system points at.
find_library(HEARTH_OPENBLAS NAMES openblas PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/openblas-openmp NO_DEFAULT_PATH REQUIRED)
find_path(HEARTH_OPENBLAS_INCLUDE cblas.h PATHS /usr/include/${CMAKE_LIBRARY_ARCHITECTURE}/openblas-openmp NO_DEFAULT_PATH REQUIRED)
add_library(hearth_openblas INTERFACE)
target_link_libraries(hearth_openblas INTERFACE ${HEARTH_OPENBLAS})
target_include_directories(hearth_openblas SYSTEM INTERFACE ${HEARTH_OPENBLAS_INCLUDE})

find_library(HEARTH_GLOO NAMES gloo REQUIRED)
pkg_check_modules(MICROHTTPD REQUIRED IMPORTED_TARGET libmicrohttpd)
# The core alone: prometheus-cpp's exposer would bring a second server.
find_library(HEARTH_PROMETHEUS_CORE NAMES prometheus-cpp-core REQUIRED)

if(HEARTH_TESTS)
  find_package(GTest REQUIRED)
endif()
if(HEARTH_BENCH)
  find_package(benchmark REQUIRED)
endif()
