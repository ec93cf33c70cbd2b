#!/usr/bin/env bash
# Installs the Debian 12 packages that building and testing Hearth needs; does nothing when all are there.
#   scripts/deps.sh            install what is missing (as root, or through sudo)
#   scripts/deps.sh --tests    also what only tests, benchmarks and tidying use: GoogleTest, clang's tools, Prometheus, Python's gRPC,
#                              OpenSSL's program, Chromium (1 GB)
#   scripts/deps.sh --check    only name what is missing; exit 1 if anything is
#   scripts/deps.sh --list     print the packages
set -euo pipefail

# The tool chain, then the libraries of cmake/Dependencies.cmake in its order.
packages=(
  build-essential cmake ninja-build ccache pkg-config git python3 curl ca-certificates xz-utils
  libprotobuf-dev protobuf-compiler protobuf-compiler-grpc libgrpc++-dev libabsl-dev libssl-dev libcurl4-openssl-dev zlib1g-dev libxxhash-dev
  libyaml-cpp-dev libspdlog-dev libcli11-dev nlohmann-json3-dev libsqlite3-dev
  prometheus-cpp-dev libmicrohttpd-dev
  libopenblas-openmp-dev libgloo-dev libsentencepiece-dev libpcre2-dev libseccomp-dev libutf8proc-dev libzstd-dev
)

tests=(libgtest-dev libgmock-dev libbenchmark-dev clang-format clang-tidy sqlite3
  prometheus python3-yaml python3-jsonschema python3-grpcio python3-protobuf python3-numpy openssl mount tmux zsh fish
  chromium chromium-driver python3-selenium)

case "${1:-}" in
  "" | --check) ;;
  --tests) packages+=("${tests[@]}") ;;
  --list) printf '%s\n' "${packages[@]}"; exit 0 ;;
  *) echo "deps: unknown argument '$1' (none, --tests, --check or --list)" >&2; exit 2 ;;
esac

command -v dpkg-query >/dev/null ||
  { echo "deps: not a Debian system; install by hand: ${packages[*]}" >&2; exit 1; }

missing=()
for package in "${packages[@]}"; do
  state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$state" = installed ] || missing+=("$package")
done

if [ ${#missing[@]} -eq 0 ]; then
  echo "deps: all ${#packages[@]} packages are installed"
  exit 0
fi
echo "deps: missing: ${missing[*]}"
[ "${1:-}" != --check ] || exit 1

as_root=()
if [ "$(id -u)" != 0 ]; then
  command -v sudo >/dev/null || { echo "deps: run as root: apt-get install ${missing[*]}" >&2; exit 1; }
  as_root=(sudo)
fi
export DEBIAN_FRONTEND=noninteractive
install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends)
# The package lists may be absent (a fresh container) or too old: update only when the first try fails.
if ! "${install[@]}" "${missing[@]}"; then
  "${as_root[@]}" apt-get update
  "${install[@]}" "${missing[@]}"
fi
