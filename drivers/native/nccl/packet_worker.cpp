#include "nccl/packet_worker.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <system_error>

#include "worker/errors.hpp"
#include "worker/join.hpp"

namespace afflux::nccl {
namespace {

worker::JobRun job_of(const control::Ticket& ticket, unsigned rank) {
    const bool grouped = !ticket.group.empty();
    return {.number = static_cast<wire::Job>(ticket.job),
            .key = ticket.key,
            .first_round = ticket.round,
            .workers = ticket.workers,
            .lanes = ticket.lanes,
            .slots = ticket.slots,
            .worker = static_cast<wire::Worker>(rank),
            .rank = rank,
            .ranks = ticket.workers,
            .credit = ticket.credit,
            .group_host = grouped ? worker::Address::parse(ticket.group, 0).host() : 0,
            .group_port = ticket.group_port,
            .ranges = ticket.ranges};
}

std::unique_ptr<worker::LossSwitch> loss_of(unsigned rank, const Settings& settings) {
    if (settings.loss == 0) return nullptr;
    return std::make_unique<worker::LossSwitch>(settings.loss, settings.seed, rank);
}

const char* name_of(arithmetic::Dtype dtype) {
    constexpr std::array kNames{"int32", "float32", "float16", "bfloat16"};
    return kNames[static_cast<std::size_t>(dtype)];
}

const char* name_of(arithmetic::Op op) {
    constexpr std::array kNames{"sum", "avg", "max", "min"};
    return kNames[static_cast<std::size_t>(op)];
}

}  // namespace

PacketWorker::End::End(const control::Ticket& given, unsigned rank, const Settings& settings)
    : ticket(given),
      // Several probes must fit the time in which their silence is judged.
      session(job_of(given, rank), std::min(1.0, settings.peer_s / 5)),
      loss(loss_of(rank, settings)),
      line(worker::Address::parse(given.place.host, given.place.port), session, loss.get()),
      liveness(line, session, ticket) {
    if (!given.group.empty()) {
        line.join_group(worker::Address::parse(given.group, given.group_port));
    }
}

PacketWorker::PacketWorker(std::vector<control::Ticket> tickets, unsigned rank,
                           const Settings& settings)
    : tickets_(std::move(tickets)), peer_s_(settings.peer_s) {
    std::vector<worker::Line*> lines;
    std::vector<worker::Session*> sessions;
    for (const control::Ticket& ticket : tickets_) {
        try {
            End& made = ends_.emplace_back(ticket, rank, settings);
            lines.push_back(&made.line);
            sessions.push_back(&made.session);
        } catch (const std::exception& error) {
            throw std::runtime_error("cannot reach the aggregator at " + ticket.place.text() +
                                     ": " + error.what());
        }
    }
    loop_ = std::make_unique<worker::UdpLoop>(lines);
    calls_ = std::make_unique<worker::Calls>(*loop_, lines, sessions);
}

void PacketWorker::join(double seconds) {
    std::deque<worker::Join> joins;
    try {
        for (End& each : ends_) each.line.open(joins.emplace_back(each.session));
        loop_->run(worker::monotonic_now() + seconds);
    } catch (const worker::Refused& error) {
        throw std::runtime_error("join: the aggregator at " +
                                 tickets_[loop_->serving()].place.text() +
                                 " refused: " + refused_because(error.cause));
    } catch (const worker::DifferentJob&) {
        throw std::runtime_error("join: the aggregator at " +
                                 tickets_[loop_->serving()].place.text() +
                                 " has another job than its control channel has said");
    }
    for (std::size_t i = 0; i < ends_.size(); ++i) {
        if (joins[i].done()) continue;
        throw std::runtime_error("join timed out: no answer from the aggregator at " +
                                 tickets_[i].place.text() + ", " +
                                 std::to_string(joins[i].sends()) + " packets sent" +
                                 (ends_[i].line.refused() ? " (its host refuses the port)" : ""));
    }
}

void PacketWorker::begin(const Reduction& reduction) {
    std::string about = std::string(":") + name_of(reduction.op) + ":" + name_of(reduction.dtype) +
                        ":" + std::to_string(reduction.count);
    void* outputs[] = {reduction.elements};
    const afflux_request request{.collective = AFFLUX_ALL_REDUCE,
                                 .dtype = static_cast<std::int32_t>(reduction.dtype),
                                 .reduction = static_cast<std::int32_t>(reduction.op),
                                 .root = 0,
                                 .count = reduction.count,
                                 .fingerprint = calls_->describe(about),
                                 .history = 0,
                                 .inputs = nullptr,
                                 .outputs = outputs,
                                 .input_count = 0,
                                 .output_count = 1};
    afflux_outcome outcome{};
    if (calls_->begin(request, outcome) != AFFLUX_NOT_YET) fail(outcome.text);
    operation_ = outcome.operation;
    const double now = worker::monotonic_now();
    for (End& each : ends_) each.liveness.begin(now);
    next_look_ = now + kLook;
}

bool PacketWorker::advance() {
    afflux_outcome outcome{};
    switch (calls_->advance(operation_, 0, outcome)) {
        case AFFLUX_OVER:
            operation_ = 0;
            return true;
        case AFFLUX_NOT_YET:
            break;
        default:
            fail(outcome.text);
    }
    const double now = worker::monotonic_now();
    if (now >= next_look_) look(now);
    return false;
}

void PacketWorker::look(double now) {
    next_look_ = now + kLook;
    const std::vector<const worker::Operation*> parts = calls_->parts();
    for (std::size_t i = 0; i < ends_.size(); ++i) {
        End& each = ends_[i];
        if (each.line.idle()) continue;
        const std::size_t vanishing = i < parts.size() ? parts[i]->vanishing() : 0;
        const std::size_t too_long = std::max(each.line.too_long(), vanishing);
        if (too_long != 0) {
            throw std::runtime_error("packets of " + std::to_string(too_long) +
                                     " bytes do not reach the aggregator at " +
                                     each.ticket.place.text() + ", while short ones do: set " +
                                     "AFFLUX_LANES to less than " +
                                     std::to_string(each.ticket.lanes));
        }
        const std::string gone = each.liveness.look(now, peer_s_);
        if (!gone.empty()) throw AggregatorGone(gone);
    }
}

void PacketWorker::fail(const char* text) {
    try {
        calls_->raise_failure();
    } catch (const worker::Disagreed&) {
        throw std::runtime_error(
            "the nodes disagree: some node called another operation, type or count");
    } catch (const std::exception& error) {
        throw AggregatorGone("the aggregator at " + tickets_[loop_->serving()].place.text() + ": " +
                             error.what());
    }
    throw std::runtime_error(text);
}

double PacketWorker::next_timer() const {
    double next = next_look_;
    for (const End& each : ends_) next = std::min(next, each.line.next_timer());
    return next;
}

void PacketWorker::watch(std::vector<pollfd>& polled) const {
    for (const End& each : ends_) {
        if (each.line.idle()) continue;
        short events = each.line.blocked() ? POLLIN | POLLOUT : POLLIN;
        for (const int number : each.line.numbers()) {
            if (number >= 0) polled.push_back({number, events, 0});
            events = POLLIN;
        }
    }
}

void PacketWorker::stop() {
    if (calls_) calls_->close();
    operation_ = 0;
    for (End& each : ends_) each.line.close();
}

std::string PacketWorker::engine() const {
    const std::string& first = tickets_.front().engine;
    const auto same = [&first](const control::Ticket& each) { return each.engine == first; };
    return std::all_of(tickets_.begin(), tickets_.end(), same) ? first : "";
}

std::string PacketWorker::statistics() const {
    std::uint64_t packets = 0, blocks = 0;
    for (const End& each : ends_) {
        packets += each.session.counts.packets_sent;
        blocks += each.session.counts.blocks_sent;
    }
    return std::to_string(packets) + " packets, " + std::to_string(blocks) + " blocks sent";
}

}  // namespace afflux::nccl
