#include "common/rpc/peer.h"

#include <map>
#include <string>

#include "gtest/gtest.h"

namespace hearth::rpc {
namespace {

TEST(AddressOfPeer, AllForms_GiveTheAddressAlone) {
  const std::map<std::string, std::string> addresses = {
      {"ipv4:10.0.0.1:5000", "10.0.0.1"},
      {"ipv6:[::1]:5000", "::1"},
      {"ipv6:%5Bfe80::1%25eth0%5D:5000", "fe80::1"},
      {"ipv6:[::ffff:10.0.0.1]:5000", "10.0.0.1"},
  };
  for (const auto& [peer, address] : addresses) {
    EXPECT_EQ(AddressOfPeer(peer), address) << peer;
  }
  for (const char* peer : {"unix:/run/hearth", "ipv4:", ""}) {
    EXPECT_EQ(AddressOfPeer(peer), "") << peer;
  }
}

TEST(IsOwnAddress, LoopbackIsAndAnAddressForExamplesIsNot) {
  EXPECT_TRUE(IsOwnAddress("127.0.0.1"));
  EXPECT_TRUE(IsOwnAddress("::1"));
  EXPECT_FALSE(IsOwnAddress("192.0.2.77"));
  EXPECT_FALSE(IsOwnAddress(""));
}

}  // namespace
}  // namespace hearth::rpc
