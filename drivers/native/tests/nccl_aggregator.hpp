// An aggregator with a control channel, as far as the plugin asks it anything.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "control/errors.hpp"
#include "control/line_socket.hpp"
#include "control/object.hpp"
#include "tests/aggregator_workers.hpp"

namespace afflux::tests {

class ControlledAggregator {
  public:
    // The job that Served makes by itself is out of the way.
    ControlledAggregator()
        : served_({.workers = 1, .lanes = 1, .slots = 1, .job = 0, .slot_base = 2047}, 1),
          listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in place{};
        place.sin_family = AF_INET;
        place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t bytes = sizeof place;
        auto* const address = reinterpret_cast<sockaddr*>(&place);
        CHECK(bind(listener_, address, bytes) == 0 && listen(listener_, 64) == 0);
        CHECK(getsockname(listener_, address, &bytes) == 0);
        port_ = ntohs(place.sin_port);
        accepting_ = std::thread([this] { accept_all(); });
    }

    ~ControlledAggregator() {
        stopping_ = true;
        shutdown(listener_, SHUT_RDWR);
        accepting_.join();
        for (std::thread& each : serving_) each.join();
        close(listener_);
    }

    std::string url() const { return "udp://127.0.0.1:" + std::to_string(port_); }

    int jobs() const { return jobs_; }

    // Ends all connections of the control channel, as a process that dies does; packets still find
    // it.
    void drop() {
        const std::scoped_lock alone(mutex_);
        stopping_ = true;
        shutdown(listener_, SHUT_RDWR);
        for (const int each : clients_) shutdown(each, SHUT_RDWR);
    }

  private:
    void accept_all() {
        for (int number; (number = accept(listener_, nullptr, nullptr)) >= 0;) {
            const std::scoped_lock alone(mutex_);
            clients_.push_back(number);
            serving_.emplace_back([this, number] { serve(control::LineSocket(number)); });
        }
    }

    void serve(control::LineSocket client) {
        try {
            while (!stopping_) {
                const auto request = control::Object::parse(
                    client.receive(std::numeric_limits<double>::max(), 4096));
                CHECK(request);
                client.send(answer(*request).line(), control::monotonic_now() + 5);
            }
        } catch (const control::Unreachable&) {
        }
    }

    control::Object answer(const control::Object& request) {
        const std::scoped_lock alone(mutex_);
        const std::string kind = *request.text("request");
        control::Object made;
        made.set("ok", true);
        if (kind == "close") --jobs_;
        if (kind != "create") return made;
        const auto slots = static_cast<unsigned>(*request.integer("slots"));
        const auto workers = static_cast<unsigned>(*request.integer("workers"));
        const Shape shape{.workers = workers,
                          .lanes = wire::kLanesMax,
                          .slots = slots,
                          .job = ++last_job_,
                          .slot_base = next_slot_};
        next_slot_ += slots;
        ++jobs_;
        served_.set(registers::Address::JobCredit, slots);
        served_.create(shape);
        std::array<char, 17> key;
        std::snprintf(key.data(), key.size(), "%016llx", static_cast<unsigned long long>(kKey));
        return made.set("job", std::int64_t{shape.job})
            .set("key", key.data())
            .set("round", std::int64_t{kFirst})
            .set("workers", std::int64_t{workers})
            .set("lanes", std::int64_t{wire::kLanesMax})
            .set("slots", std::int64_t{slots})
            .set("credit", std::int64_t{slots})
            .set("port", std::int64_t{served_.address().port()})
            .set("engine", "soft")
            .set("lease_s", *request.integer("lease_s"));
    }

    Served served_;
    int listener_;
    std::uint16_t port_ = 0;
    std::atomic<bool> stopping_ = false;
    std::atomic<int> jobs_ = 0;
    std::mutex mutex_;
    unsigned last_job_ = 0;
    unsigned next_slot_ = 0;
    std::vector<int> clients_;
    std::vector<std::thread> serving_;
    std::thread accepting_;
};

}  // namespace afflux::tests
