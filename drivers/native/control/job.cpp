#include "control/job.hpp"

#include <array>
#include <charconv>
#include <cstdio>
#include <limits>
#include <utility>

#include "contract/wire.hpp"
#include "control/errors.hpp"

namespace afflux::control {
namespace {

constexpr std::int64_t kProtocol = wire::kVersion;
constexpr std::int64_t kRangesMax = 64;

std::string hexadecimal(std::uint64_t key) {
    std::array<char, 17> text;
    std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(key));
    return text.data();
}

// The number that a member is, if it is one in this range.
template <typename Number>
bool read(const Object& object, const char* name, Number& out, std::int64_t least,
          std::int64_t most) {
    const std::optional<std::int64_t> found = object.integer(name);
    if (!found || *found < least || *found > most) return false;
    out = static_cast<Number>(*found);
    return true;
}

bool read_key(const Object& object, std::uint64_t& out) {
    const std::string text = object.text("key").value_or("");
    const char* const end = text.data() + text.size();
    return text.size() == 16 && std::from_chars(text.data(), end, out, 16).ptr == end;
}

// Reads the fields that tickets and answers both have; names one that is missing or wrong.
const char* read_terms(const Object& object, Ticket& out) {
    constexpr std::int64_t kPorts = 65535, kWords = std::numeric_limits<std::uint32_t>::max();
    if (!read(object, "port", out.place.port, 1, kPorts)) return "port";
    if (!read(object, "job", out.job, 0, 255)) return "job";
    if (!read_key(object, out.key)) return "key";
    if (!read(object, "round", out.round, 0, kWords)) return "round";
    if (!read(object, "workers", out.workers, 1, wire::kWorkersMax)) return "workers";
    if (!read(object, "lanes", out.lanes, 1, wire::kLanesMax)) return "lanes";
    if (!read(object, "slots", out.slots, 1, 65536)) return "slots";
    if (!read(object, "credit", out.credit, 1, kWords)) return "credit";
    out.engine = object.text("engine").value_or("");
    if (out.engine.empty()) return "engine";
    if (object.has("group")) {
        out.group = object.text("group").value_or("");
        if (out.group.empty()) return "group";
        if (!read(object, "group_port", out.group_port, 1, kPorts)) return "group_port";
    }
    if (object.has("ranges") && !read(object, "ranges", out.ranges, 1, kRangesMax)) {
        return "ranges";
    }
    return nullptr;
}

}  // namespace

Object Ticket::object() const {
    Object made;
    made.set("host", place.host)
        .set("port", std::int64_t{place.port})
        .set("control_host", control.host)
        .set("control_port", std::int64_t{control.port})
        .set("job", std::int64_t{job})
        .set("key", hexadecimal(key))
        .set("round", std::int64_t{round})
        .set("workers", std::int64_t{workers})
        .set("lanes", std::int64_t{lanes})
        .set("slots", static_cast<std::int64_t>(slots))
        .set("credit", std::int64_t{credit})
        .set("engine", engine)
        .set("ranges", std::int64_t{ranges});
    if (!group.empty()) made.set("group", group).set("group_port", std::int64_t{group_port});
    return made;
}

std::optional<Ticket> Ticket::of(const Object& object) {
    Ticket made;
    made.place.host = object.text("host").value_or("");
    made.control.host = object.text("control_host").value_or("");
    const bool complete = !made.place.host.empty() && !made.control.host.empty() &&
                          read(object, "control_port", made.control.port, 1, 65535) &&
                          read_terms(object, made) == nullptr;
    return complete ? std::optional(made) : std::nullopt;
}

JobLease::JobLease(const Place& place, std::optional<std::string> secret, const JobWish& wish,
                   double seconds)
    : place_(place), secret_(std::move(secret)), channel_(opened(seconds)) {
    Object create;
    create.set("request", "create")
        .set("protocol", kProtocol)
        .set("workers", std::int64_t{wish.workers})
        .set("lanes", std::int64_t{wish.lanes})
        .set("slots", static_cast<std::int64_t>(wish.slots));
    if (wish.lease_s != 0) create.set("lease_s", std::int64_t{wish.lease_s});
    const Object answer = channel_->ask(create, seconds);
    const std::string what = "create on the aggregator at " + place.text();
    if (const char* wrong = read_terms(answer, ticket_)) {
        throw Misbehaved(what + ": malformed answer: missing or invalid '" + wrong + "'");
    }
    // The address that has answered: others could come to another one of the same name.
    ticket_.control = {channel_->address(), place.port};
    ticket_.place.host = answer.text("host").value_or(ticket_.control.host);
    lease_s_ = wish.lease_s == 0 ? 0 : static_cast<int>(answer.integer("lease_s").value_or(0));
    if (ticket_.workers != wish.workers || ticket_.lanes > wish.lanes ||
        ticket_.slots > wish.slots || ticket_.slots > ticket_.credit || lease_s_ < 0 ||
        lease_s_ > wish.lease_s) {
        throw Misbehaved(what + ": the job is not what was asked for: " + answer.line());
    }
}

JobLease::~JobLease() = default;

std::unique_ptr<Channel> JobLease::opened(double seconds) const {
    return std::make_unique<Channel>(place_, secret_, seconds);
}

Object JobLease::request(const char* kind) const {
    return Object()
        .set("request", kind)
        .set("job", std::int64_t{ticket_.job})
        .set("key", hexadecimal(ticket_.key));
}

void JobLease::renew(double seconds) {
    const std::scoped_lock alone(mutex_);
    if (closed_) return;
    std::unique_ptr<Channel> another;
    if (!channel_ || silent_) {
        try {
            another = opened(seconds);
        } catch (const Refused& error) {
            // It does not take the connection; of the job nothing is known.
            throw Unreachable(error.what());
        }
    }
    Channel& asked = another ? *another : *channel_;
    try {
        asked.ask(request("renew"), seconds);
    } catch (const Refused&) {
        throw;
    } catch (const Error&) {
        if (!another && asked.broken()) {
            channel_.reset();
        } else if (!another) {
            silent_ = true;
        }
        throw;
    }
    if (another) channel_ = std::move(another);
    silent_ = false;
}

void JobLease::heed() {
    const std::scoped_lock alone(mutex_);
    if (!channel_) return;
    try {
        channel_->heed();
    } catch (const Refused&) {
        throw;
    } catch (const Error&) {
        channel_.reset();
        throw;
    }
}

int JobLease::number() const {
    const std::scoped_lock alone(mutex_);
    return channel_ ? channel_->number() : -1;
}

void JobLease::close(double seconds) {
    const std::scoped_lock alone(mutex_);
    if (std::exchange(closed_, true)) return;
    const std::unique_ptr<Channel> last = std::move(channel_);
    std::unique_ptr<Channel> another;
    if (!last || silent_) another = opened(seconds);
    (another ? *another : *last).ask(request("close"), seconds);
}

}  // namespace afflux::control
