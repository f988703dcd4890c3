// An engine in software on UDP sockets of its own: C++ from socket to socket.
//
// There is one socket for each core of the engine, and one thread serves each; all sockets have the
// same address and port. Packets go from the receive buffer into the slots, and results from the
// slots to all workers, without a copy in between.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "datagrams/traffic.hpp"
#include "engine/engine.hpp"

namespace afflux::aggregator {

class Server {
  public:
    // Takes copies of the file numbers of bound sockets, in the order of the engine's cores. The
    // engine must live as long, and nobody else give it packets. Throws std::invalid_argument if
    // the numbers differ, std::system_error if the kernel refuses.
    Server(engine::Engine& engine, const std::vector<int>& sockets);
    ~Server();

    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;

    // Serves one core until stop() is called. Each is served by one thread.
    void serve(unsigned share);

    // These may be called by any thread at any time.
    void stop();
    // Has commands carried out that the engine has been given.
    void wake();
    // Opens and closes the port on which the parent of a job answers, given its bound socket. One
    // that is connected leads to the parent even where the engine's registers cannot name it.
    void open_parent_port(unsigned job, int socket);
    void close_parent_port(unsigned job);

    // Closes all sockets, once no thread serves. Later traffic is lost.
    void close();

    // Bytes and system calls of all threads, as far as they are known between two batches.
    struct Totals {
        datagrams::Traffic received;
        datagrams::Traffic sent;
        std::uint64_t handed_off = 0;  // packets that had to be handed from thread to thread
        std::uint64_t waits = 0;       // for packets, each with one system call
    };
    Totals totals() const;

  private:
    class Thread;

    void steer_all();

    engine::Engine& engine_;
    std::atomic<bool> stopping_ = false;
    std::vector<std::unique_ptr<Thread>> threads_;
};

}  // namespace afflux::aggregator
