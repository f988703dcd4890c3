#include "packet/frame.hpp"

#include <algorithm>

#include "packet/octets.hpp"
#include "packet/partial_dtype.hpp"

namespace afflux::packet {

Header join_header(wire::Job job, wire::Worker worker, wire::Key key) {
    return {
        .version_type = version_type(wire::Type::Join),
        .opcode_dtype = 0,
        .job = job,
        .worker = worker,
        .slot = 0,
        .present = 0,
        .round = 0,
        .key = key,
        .operation = 0,
    };
}

Header load_header(const std::uint8_t* at) {
    return {
        .version_type = load<wire::VersionType>(at + wire::kVersionTypeAt),
        .opcode_dtype = load<wire::OpcodeDtype>(at + wire::kOpcodeDtypeAt),
        .job = load<wire::Job>(at + wire::kJobAt),
        .worker = load<wire::Worker>(at + wire::kWorkerAt),
        .slot = load<wire::Slot>(at + wire::kSlotAt),
        .present = load<wire::Present>(at + wire::kPresentAt),
        .round = load<wire::Round>(at + wire::kRoundAt),
        .key = load<wire::Key>(at + wire::kKeyAt),
        .operation = load<wire::Operation>(at + wire::kOperationAt),
    };
}

void store_header(std::uint8_t* at, const Header& header) {
    store(at + wire::kVersionTypeAt, header.version_type);
    store(at + wire::kOpcodeDtypeAt, header.opcode_dtype);
    store(at + wire::kJobAt, header.job);
    store(at + wire::kWorkerAt, header.worker);
    store(at + wire::kSlotAt, header.slot);
    store(at + wire::kPresentAt, header.present);
    store(at + wire::kRoundAt, header.round);
    store(at + wire::kKeyAt, header.key);
    store(at + wire::kOperationAt, header.operation);
}

void store_front(std::uint8_t* at, const Endpoint& from, const Endpoint& to, std::size_t payload) {
    std::copy(to.mac.begin(), to.mac.end(), at);
    std::copy(from.mac.begin(), from.mac.end(), at + 6);
    store_big_16(at + 12, 0x0800);
    std::uint8_t* ip = at + wire::kEthernetBytes;
    const std::size_t udp_bytes = wire::kUdpBytes + payload;
    store_big_16(ip, 0x4500);
    store_big_16(ip + 2, static_cast<std::uint16_t>(wire::kIpv4Bytes + udp_bytes));
    store_big_32(ip + 4, 0x4000);      // identification 0, don't fragment
    store_big_32(ip + 8, 0x40110000);  // time to live 64, UDP, checksum to come
    store_big_32(ip + 12, from.address);
    store_big_32(ip + 16, to.address);
    const std::uint16_t sum = fold(add_words(0, ip, wire::kIpv4Bytes));
    store_big_16(ip + 10, static_cast<std::uint16_t>(~sum));
    std::uint8_t* udp = ip + wire::kIpv4Bytes;
    store_big_16(udp, from.port);
    store_big_16(udp + 2, to.port);
    store_big_16(udp + 4, static_cast<std::uint16_t>(udp_bytes));
    store_big_16(udp + 6, 0);
}

Head make_head(const Endpoint& from, const Endpoint& to, const Header& header) {
    Head head;
    const std::size_t payload =
        wire::kUdpPayloadMin + header.blocks() * block_bytes(header.opcode_dtype);
    store_front(head.data(), from, to, payload);
    store_header(head.data() + wire::kAffluxOffset, header);
    return head;
}

Seal make_seal(Head& head, std::uint64_t body_sum) {
    std::uint8_t* ip = head.data() + wire::kEthernetBytes;
    std::uint8_t* udp = ip + wire::kIpv4Bytes;
    const auto lengthen = [](std::uint8_t* at) {
        store_big_16(at, static_cast<std::uint16_t>(load_big_16(at) + wire::kSealBytes));
    };
    lengthen(ip + 2);
    lengthen(udp + 4);
    store_big_16(ip + 10, 0);
    const std::uint16_t ip_sum = fold(add_words(0, ip, wire::kIpv4Bytes));
    store_big_16(ip + 10, static_cast<std::uint16_t>(~ip_sum));
    store_big_16(udp + 6, wire::kSealedChecksum);
    // The pseudo-header: both addresses, protocol, length.
    const std::uint64_t pseudo = add_words(ip[9] + load_big_16(udp + 4), ip + 12, 8);
    const std::size_t rest = wire::kUdpBytes + wire::kHeaderBytes;
    const std::uint16_t sum = fold(add_words(pseudo, udp, rest) + body_sum);
    Seal seal{};
    store_big_16(seal.data() + 2, static_cast<std::uint16_t>(~sum));
    return seal;
}

}  // namespace afflux::packet
