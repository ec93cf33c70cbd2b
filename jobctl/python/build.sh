#!/usr/bin/env bash
# Writes the Python client to a folder: hearth_client.py and the messages it speaks, generated from proto/. Put the folder on PYTHONPATH.
#   jobctl/python/build.sh OUT
# Needs protobuf-compiler and protobuf-compiler-grpc; the client itself python3-grpcio and python3-protobuf.
set -euo pipefail

[ $# = 1 ] || { echo "usage: jobctl/python/build.sh OUT" >&2; exit 2; }
root=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)

cd "$root/proto"
protoc -I . --python_out="$out" --grpc_python_out="$out" --plugin=protoc-gen-grpc_python="$(command -v grpc_python_plugin)" hearth/v1/*.proto
cp "$root/jobctl/python/hearth_client.py" "$out/"
echo "PYTHONPATH=$out"
