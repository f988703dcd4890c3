// Datagrams joined and not, over loopback: all arrive as they were, with few calls, and failures to
// send are noticed.
#include <net/if.h>
#include <netinet/udp.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <set>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "datagrams/receiver.hpp"
#include "datagrams/send_batch.hpp"
#include "tests/check.hpp"

using namespace afflux::datagrams;

namespace {

using Octets = std::vector<std::uint8_t>;

constexpr std::uint32_t kLoopback = 0x7F000001;
constexpr std::size_t kLongest = 4182;

// Where the tests below take place: at first with IPv4, then with IPv6.
Address loopback{kLoopback, 0};

UdpSocket bound(bool coalesce) {
    UdpSocket made(loopback.family());
    made.enlarge(4 << 20);
    made.bind(loopback);
    if (coalesce) coalesce = made.coalesce();
    return made;
}

Octets octets(std::size_t bytes, unsigned seed) {
    Octets made(bytes);
    for (std::size_t i = 0; i < bytes; ++i) made[i] = static_cast<std::uint8_t>(seed * 31 + i * 7);
    return made;
}

// Loopback delivers within the sending call, so nothing has to be waited for.
std::vector<Octets> take_all(const UdpSocket& socket, Receiver& receiver) {
    std::vector<Octets> taken;
    do {
        for (const Datagram& each : receiver.receive(socket)) {
            taken.emplace_back(each.data, each.data + each.bytes);
        }
    } while (receiver.more());
    return taken;
}

std::multiset<std::string> in_any_order(const std::vector<Octets>& all) {
    std::multiset<std::string> texts;
    for (const Octets& each : all) texts.emplace(each.begin(), each.end());
    return texts;
}

void test_many_of_one_length(bool segment, bool coalesce) {
    const UdpSocket here = bound(coalesce), there = bound(false);
    SendBatch batch(there, segment);
    std::vector<Octets> sent;
    for (unsigned i = 0; i < 100; ++i) sent.push_back(octets(kLongest, i));
    for (const Octets& each : sent) {
        // In three parts, the second of which is empty.
        const Part all(each);
        batch.add(here.own_address(), {all.first(22), Part(), all.subspan(22)});
    }
    CHECK(batch.flush() && batch.empty());
    Receiver receiver(kLongest, coalesce);
    CHECK(take_all(here, receiver) == sent);
    CHECK(batch.traffic().datagrams == 100 && batch.traffic().bytes == 100 * kLongest);
    CHECK(receiver.traffic().datagrams == 100 && receiver.traffic().bytes == 100 * kLongest);
    CHECK(batch.traffic().messages == (batch.segments() ? 7 : 100));
    CHECK(batch.traffic().calls <= 2);
    // The sender's buffers pass loopback whole.
    if (batch.segments() && coalesce) CHECK(receiver.traffic().messages == 7);
}

void test_several_destinations_and_lengths() {
    const UdpSocket there = bound(false);
    SendBatch batch(there);
    std::vector<UdpSocket> here;
    for (int i = 0; i < 3; ++i) here.push_back(bound(true));
    std::vector<Octets> sent;
    for (unsigned i = 0; i < 60; ++i) sent.push_back(octets(86 + 256 * (i % 4), i));
    for (const Octets& each : sent) {
        for (const UdpSocket& one : here) batch.add(one.own_address(), {Part(each)});
    }
    CHECK(batch.flush());
    if (batch.segments()) CHECK(batch.traffic().messages == 12 && batch.traffic().calls == 1);
    for (const UdpSocket& one : here) {
        Receiver receiver(kLongest, true);
        const std::vector<Octets> taken = take_all(one, receiver);
        CHECK(in_any_order(taken) == in_any_order(sent));
    }
}

void test_odd_lengths(bool coalesce) {
    const UdpSocket here = bound(coalesce), there = bound(false);
    SendBatch batch(there);
    const Octets none, one = octets(1, 1), long_one = octets(kLongest + 1000, 2);
    for (const Octets& each : {none, one, long_one, none}) {
        batch.add(here.own_address(), {Part(each)});
        CHECK(batch.flush());
    }
    Receiver receiver(kLongest, coalesce);
    const std::vector<Octets> taken = take_all(here, receiver);
    CHECK(taken.size() == 4);
    CHECK(taken[0].empty() && taken[1] == one && taken[3].empty());
    // One byte more than the longest shows that it is too long.
    CHECK(taken[2] == Octets(long_one.begin(), long_one.begin() + kLongest + 1));
}

void test_source() {
    const UdpSocket here = bound(true), there = bound(false);
    SendBatch batch(there);
    const Octets one = octets(86, 1);
    batch.add(here.own_address(), {Part(one)});
    CHECK(batch.flush());
    Receiver receiver(kLongest, true);
    const auto taken = receiver.receive(here);
    CHECK(taken.size() == 1 && *taken[0].source == there.own_address());
    CHECK(taken[0].source->text() == loopback.text());
}

void test_too_long_and_refused() {
    UdpSocket there(loopback.family());
    there.never_fragment();
    Address nobody;
    {
        const UdpSocket gone = bound(false);
        nobody = gone.own_address();
    }
    there.connect(nobody);
    CHECK(there.mtu() > 0);
    SendBatch batch(there);
    const Octets huge = octets(65535, 1), small = octets(86, 2);
    batch.add({}, {Part(huge)});
    CHECK(batch.flush());
    CHECK(batch.too_long() == huge.size() && batch.traffic().datagrams == 0);
    // The first is refused, which the kernel reports in place of taking the second.
    for (int i = 0; i < 2; ++i) {
        batch.add({}, {Part(small)});
        CHECK(batch.flush());
    }
    Receiver receiver(kLongest, false);
    CHECK(receiver.receive(there).empty());
    CHECK(batch.refused() && receiver.refused());
}

// A socket that cannot cut datagrams apart, and whose buffer is full soon.
void test_a_full_buffer() {
    std::array<int, 2> ends;
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends.data()) == 0);
    const UdpSocket from(ends[0]), to(ends[1]);
    SendBatch batch(from);
    CHECK(!batch.segments());
    std::vector<Octets> sent, taken;
    for (unsigned i = 0; i < 1000; ++i) sent.push_back(octets(kLongest, i));
    for (const Octets& each : sent) batch.add({}, {Part(each)});
    unsigned pauses = 0;
    Octets buffer(kLongest);
    while (!batch.flush()) {
        ++pauses;
        CHECK(!batch.empty());
        while (recv(to.number(), buffer.data(), buffer.size(), 0) > 0) taken.push_back(buffer);
    }
    while (recv(to.number(), buffer.data(), buffer.size(), 0) > 0) taken.push_back(buffer);
    CHECK(pauses > 0);
    CHECK(taken == sent);
}

// IPv4 without UDP checksums cannot be cut apart by the kernel: EIO or EINVAL.
void test_refused_segmentation() {
    const UdpSocket here = bound(false);
    UdpSocket there = bound(false);
    there.set(SOL_SOCKET, SO_NO_CHECK, "no checksum", 1);
    SendBatch batch(there);
    if (!batch.segments()) return;
    std::vector<Octets> sent;
    for (unsigned i = 0; i < 20; ++i) sent.push_back(octets(342, i));
    for (const Octets& each : sent)
        batch.add(here.own_address(), {Part(each).first(22), Part(each).subspan(22)});
    CHECK(batch.flush());
    CHECK(!batch.segments());
    Receiver receiver(kLongest, false);
    CHECK(take_all(here, receiver) == sent);
}

// Moves this process into a network of its own, whose loopback interface has this MTU. Returns
// whether it may.
bool narrow_loopback(int mtu) {
    if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return false;
    const UdpSocket any;
    ifreq request{};
    std::strcpy(request.ifr_name, "lo");
    request.ifr_mtu = mtu;
    if (ioctl(any.number(), SIOCSIFMTU, &request) != 0) return false;
    request.ifr_flags = IFF_UP;
    return ioctl(any.number(), SIOCSIFFLAGS, &request) == 0;
}

// The kernel cuts what has been joined, but makes no fragments of the pieces.
void test_a_path_that_is_narrower_than_the_datagrams() {
    const UdpSocket here = bound(false);
    UdpSocket there = bound(false);
    std::vector<Octets> sent;
    for (unsigned i = 0; i < 20; ++i) sent.push_back(octets(kLongest, i));
    SendBatch batch(there);
    const bool segments = batch.segments();
    for (const Octets& each : sent) batch.add(here.own_address(), {Part(each)});
    CHECK(batch.flush());
    Receiver receiver(kLongest, false);
    CHECK(take_all(here, receiver) == sent);
    CHECK(batch.too_long() == 0);
    // Others are joined still.
    CHECK(batch.segments() == segments);
    there.never_fragment();
    for (const Octets& each : sent) batch.add(here.own_address(), {Part(each)});
    CHECK(batch.flush());
    CHECK(take_all(here, receiver).empty());
    CHECK(batch.too_long() == kLongest);
}

void test_addresses() {
    for (const std::string text : {"10.1.2.3", "fd00::1", "::1", "fe80::1%lo"}) {
        const Address address = Address::parse(text, 4700);
        CHECK(address.text() == text && address.port() == 4700);
        CHECK(address.is_ipv6() == (text.find(':') != std::string::npos));
        CHECK(address == Address::parse(text, 4700));
        CHECK(!(address == Address::parse(text, 4701)));
        CHECK(!(address == Address::parse("fd00::2", 4700)) && !address.is_of_no_host());
        if (!address.is_ipv6()) continue;
        CHECK(address == Address(address.octets(), address.zone(), 4700));
        CHECK(!(address == Address(address.octets(), address.zone() + 1, 4700)));
    }
    CHECK(Address::parse("fe80::1%lo", 1).zone() == if_nametoindex("lo"));
    CHECK(Address::parse("10.1.2.3", 1) == Address(0x0A010203, 1));
    // The kernel's earlier value there makes no difference.
    Address again = Address::parse("fd00::1", 4700);
    const Address ipv4(kLoopback, 4700);
    std::memcpy(again.put(), ipv4.get(), ipv4.bytes());
    CHECK(again == ipv4 && !again.is_ipv6() && again.bytes() == ipv4.bytes());
    for (const char* const text : {"host", "fd00::g", "fe80::1%nowhere"}) {
        CHECK_THROWS(std::invalid_argument, Address::parse(text, 1));
    }
    CHECK(Address().is_of_no_host() && Address().bytes() == 0);
}

bool has_ipv6() {
    try {
        UdpSocket(Family::Ipv6).bind(Address::parse("::1", 0));
    } catch (const std::system_error&) {
        return false;
    }
    return true;
}

void test_on_a_wide_path() {
    for (const bool segment : {false, true}) {
        for (const bool coalesce : {false, true}) test_many_of_one_length(segment, coalesce);
    }
    test_several_destinations_and_lengths();
    test_odd_lengths(false);
    test_odd_lengths(true);
    test_source();
    test_too_long_and_refused();
    test_a_full_buffer();
    if (!loopback.is_ipv6()) test_refused_segmentation();
}

}  // namespace

int main() {
    const Address ipv6 = Address::parse("::1", 0), ipv4 = loopback;
    test_addresses();
    test_on_a_wide_path();
    if (has_ipv6()) {
        loopback = ipv6;
        test_on_a_wide_path();
    }
    if (!narrow_loopback(1500)) return 0;
    loopback = ipv4;
    test_a_path_that_is_narrower_than_the_datagrams();
    if (has_ipv6()) {
        loopback = ipv6;
        test_a_path_that_is_narrower_than_the_datagrams();
    }
}
