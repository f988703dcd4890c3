#include "nccl/own_engine.hpp"

#include <pthread.h>

#include <stdexcept>

#include "contract/registers.hpp"
#include "control/libcrypto.hpp"

namespace afflux::nccl {
namespace {

using registers::Address;

constexpr std::size_t kBuffer = 16 << 20;

engine::Limits limits_of(unsigned workers, unsigned lanes, unsigned jobs, std::size_t slots) {
    return {.workers = workers,
            .lanes = lanes,
            .jobs = jobs,
            .slots = static_cast<unsigned>(jobs * slots)};
}

datagrams::UdpSocket bound(const Interface& interface) {
    const auto place = datagrams::Address::parse(interface.address.text(), 0);
    datagrams::UdpSocket made(place.family());
    made.enlarge(kBuffer);
    made.never_fragment();
    made.bind(place);
    return made;
}

}  // namespace

OwnEngine::OwnEngine(const Interface& interface, unsigned workers, unsigned lanes, unsigned jobs,
                     std::size_t slots)
    : engine_(limits_of(workers, lanes, jobs, slots), 1), socket_(bound(interface)) {
    const datagrams::Address own = socket_.own_address();
    const auto set = [this](Address address, std::uint32_t value) {
        engine_.write(static_cast<std::uint32_t>(address), value);
    };
    if (!own.is_ipv6()) set(Address::LocalAddress, own.host());
    set(Address::LocalPort, own.port());
    server_ = std::make_unique<aggregator::Server>(engine_, std::vector<int>{socket_.number()});
    const control::Place place{own.text(), own.port()};
    for (unsigned job = 0; job < jobs; ++job) {
        control::Ticket ticket{.place = place,
                               // There is no control channel: as long as the process lives, its
                               // connections to other nodes do.
                               .control = place,
                               .job = job,
                               .workers = workers,
                               .lanes = lanes,
                               .slots = slots,
                               .credit = static_cast<std::uint32_t>(slots),
                               .engine = "soft",
                               .group = {}};
        control::fill_random(&ticket.key, sizeof ticket.key);
        control::fill_random(&ticket.round, sizeof ticket.round);
        create(ticket, job * slots);
        tickets_.push_back(ticket);
    }
    thread_ = std::thread([this] { server_->serve(0); });
    pthread_setname_np(thread_.native_handle(), "afflux-engine");
}

void OwnEngine::create(const control::Ticket& ticket, std::size_t slot_base) {
    const auto set = [this](Address address, std::size_t value) {
        engine_.write(static_cast<std::uint32_t>(address), static_cast<std::uint32_t>(value));
    };
    set(Address::JobIndex, ticket.job);
    set(Address::JobKeyLow, ticket.key & 0xFFFF'FFFF);
    set(Address::JobKeyHigh, ticket.key >> 32);
    set(Address::JobWorkers, ticket.workers);
    set(Address::JobLanes, ticket.lanes);
    set(Address::JobSlotBase, slot_base);
    set(Address::JobSlotCount, ticket.slots);
    set(Address::JobRound, ticket.round);
    set(Address::JobCredit, ticket.credit);
    set(Address::JobCommand, static_cast<std::size_t>(registers::Command::Create));
    const std::uint32_t reason = engine_.read(static_cast<std::uint32_t>(Address::JobReason));
    if (reason != 0) {
        throw std::runtime_error("the engine of this process refuses a job: reason " +
                                 std::to_string(reason));
    }
}

OwnEngine::~OwnEngine() {
    server_->stop();
    thread_.join();
    server_->close();
}

}  // namespace afflux::nccl
