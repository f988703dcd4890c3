#include "aggregator/server.hpp"

#include <mutex>
#include <stdexcept>
#include <string>

#include "aggregator/steering.hpp"
#include "aggregator/thread.hpp"

namespace afflux::aggregator {

Server::Server(engine::Engine& engine, const std::vector<int>& sockets) : engine_(engine) {
    if (sockets.size() != engine.shares()) {
        throw std::invalid_argument("an engine of " + std::to_string(engine.shares()) +
                                    " shares needs as many sockets, not " +
                                    std::to_string(sockets.size()));
    }
    for (unsigned i = 0; i < engine.shares(); ++i) {
        threads_.push_back(std::make_unique<Thread>(*this, i, sockets[i]));
    }
    if (engine.shares() > 1) {
        engine.watch_jobs([this] { steer_all(); });
        steer_all();
    }
}

Server::~Server() {
    close();
}

void Server::close() {
    engine_.watch_jobs(nullptr);
    for (const auto& thread : threads_) thread->close();
}

void Server::serve(unsigned share) {
    threads_.at(share)->serve();
}

void Server::stop() {
    stopping_ = true;
    wake();
}

void Server::wake() {
    for (const auto& thread : threads_) thread->wake();
}

void Server::open_parent_port(unsigned job, int socket) {
    threads_[engine_.share_below_parent(job)]->open_parent_port(job, socket);
}

void Server::close_parent_port(unsigned job) {
    threads_[engine_.share_below_parent(job)]->close_parent_port(job);
}

Server::Totals Server::totals() const {
    Totals totals;
    for (const auto& thread : threads_) thread->add_to(totals);
    return totals;
}

void Server::steer_all() {
    engine::Engine::Share& first = engine_.share(0);
    const std::lock_guard alone(first.mutex);
    steer(threads_[0]->socket(), first.core, engine_.limits().jobs);
}

}  // namespace afflux::aggregator
