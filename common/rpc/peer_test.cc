#include "common/rpc/peer.h"

#include "gtest/gtest.h"

namespace hearth::rpc {
namespace {

TEST(AddressOfPeer, AllForms_GiveTheAddressAlone) {
  EXPECT_EQ(AddressOfPeer("ipv4:10.0.0.1:5000"), "10.0.0.1");
  EXPECT_EQ(AddressOfPeer("ipv6:[::1]:5000"), "::1");
  EXPECT_EQ(AddressOfPeer("ipv6:%5Bfe80::1%25eth0%5D:5000"), "fe80::1");
  EXPECT_EQ(AddressOfPeer("ipv6:[::ffff:10.0.0.1]:5000"), "10.0.0.1");
  EXPECT_EQ(AddressOfPeer("unix:/run/hearth"), "");
  EXPECT_EQ(AddressOfPeer("ipv4:"), "");
  EXPECT_EQ(AddressOfPeer(""), "");
}

TEST(IsOwnAddress, LoopbackIsAndAnAddressForExamplesIsNot) {
  EXPECT_TRUE(IsOwnAddress("127.0.0.1"));
  EXPECT_TRUE(IsOwnAddress("::1"));
  EXPECT_FALSE(IsOwnAddress("192.0.2.77"));
  EXPECT_FALSE(IsOwnAddress(""));
}

}  // namespace
}  // namespace hearth::rpc
