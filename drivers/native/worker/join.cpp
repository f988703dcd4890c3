#include "worker/join.hpp"

#include <algorithm>

#include "worker/errors.hpp"

namespace afflux::worker {

using packet::Header;

Join::Join(Session& session) : session_(session) {}

void Join::open(double now, PacketSink& out) {
    send(session_.trip.timeout(), now, out);
}

void Join::expire(double now, PacketSink& out) {
    if (deadline_ <= now) send(std::min(2 * wait_, session_.trip.cap()), now, out);
}

void Join::send(double wait, double now, PacketSink& out) {
    ++sends_;
    sent_at_ = now;
    wait_ = wait;
    deadline_ = now + wait;
    out.send(session_.join());
}

void Join::receive(packet::PacketBuffer& packet, std::size_t length, double now, PacketSink&) {
    const JobRun& job = session_.job;
    if (!packet::right_length(length, 0)) {
        ++session_.counts.ignored;
        return;
    }
    const Header header = packet::load_header(packet.datagram());
    const std::uint32_t* words = packet.words();
    const bool ours = header.key == job.key && header.job == job.number &&
                      header.worker == job.worker && header.present == 0;
    if (ours && header.version_type == packet::version_type(wire::Type::Refused)) {
        throw Refused(words[0]);
    }
    if (!ours || header.version_type != packet::version_type(wire::Type::Joined)) {
        ++session_.counts.ignored;
        return;
    }
    const JobTerms found{words[0], words[1], words[2], words[3], words[4], words[5]};
    if (found != job.terms()) throw DifferentJob(found);
    if (job.has_group()) session_.group_key = wire::Key{words[7]} << 32 | words[6];
    if (sends_ == 1) session_.trip.sample_short(sent_at_, now);
    session_.heard_at = now;
    deadline_ = kNever;
    done_ = true;
}

}  // namespace afflux::worker
